//! The registers that the kernel saves on entry: `struct pt_regs` of
//! arch/arm64/include/asm/ptrace.h. It begins with `struct user_pt_regs`, as does
//! `struct bpf_perf_event_data`.

use nprof_unwind::arch;

/// The offset of the state of the processor (pstate); its lowest bits are the exception level.
pub(crate) const MODE: i16 = 264;

/// The bits of [`MODE`] with the exception level and the bit of 32-bit code, and their value for user code
/// (`PSR_MODE_EL0t`).
pub(crate) const MODE_MASK: i32 = 0x1f;
pub(crate) const MODE_USER: i32 = 0;

/// No value of [`MODE`]: 32-bit code is not [`MODE_USER`].
pub(crate) const MODE_COMPAT: i32 = -1;

/// The offset of the stack pointer.
pub(crate) const SP: i16 = 248;

/// Bytes of the part up to the number of the system call.
pub(crate) const BYTES: usize = 288;

/// The offset of the number of the system call (syscallno), of 32 bits; -1 outside of one. The other half of
/// its word has another meaning.
pub(crate) const CALL: u32 = 280;

/// The offset of the first argument of a system call (orig_x0).
pub(crate) const ARGUMENT: u32 = 272;

/// The offset of the instruction pointer.
pub(crate) const IP: usize = 256;

/// The bytes of the registers in [`arch::MASK`], in the order of their bits: x0 to x30, sp and pc.
const SAMPLED_BYTES: usize = 8 * arch::COUNT;

/// The value of [`MODE`] for 32-bit user code (`PSR_MODE32_BIT`).
const MODE_32: u64 = 0x10;

/// True if the structure is that of 32-bit user code. [`sampled`] has no registers of it.
pub(crate) fn is_compat(_structure: &[u8]) -> bool {
    false
}

/// Returns the structure of user code of which only these registers are known.
pub(crate) fn with_pointers(
    ip: u64,
    sp: u64,
    call: u64,
    argument: u64,
    is_compat: bool,
) -> Vec<u8> {
    let mut structure = vec![0; BYTES];
    let mode = if is_compat { MODE_32 } else { MODE_USER as u64 };
    let words = [
        (IP, ip),
        (SP as usize, sp),
        (CALL as usize, call),
        (ARGUMENT as usize, argument),
        (MODE as usize, mode),
    ];
    for (at, word) in words {
        structure[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    structure
}

/// Returns the registers in the order of [`arch::NUMBERS`], given the structure. Empty if they are not
/// those of user code.
pub(crate) fn sampled(structure: &[u8]) -> Vec<u8> {
    let mode = structure.get(MODE as usize).map(|mode| mode & MODE_MASK as u8);
    if mode != Some(MODE_USER as u8) {
        return Vec::new();
    }
    structure.get(..SAMPLED_BYTES).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_in_the_order_of_samples() {
        let mut structure: Vec<u8> =
            (0..36_u64).flat_map(|word| (word * 8).to_le_bytes()).collect();
        structure[MODE as usize..][..8].fill(0);
        let words: Vec<u16> = sampled(&structure)
            .chunks(8)
            .map(|word| u16::from_le_bytes([word[0], word[1]]))
            .collect();
        assert_eq!(words, (0..33).map(|word| word * 8).collect::<Vec<_>>());
        assert_eq!((words[31], usize::from(words[32])), (SP as u16, IP));
        structure[MODE as usize] = 5;
        assert!(sampled(&structure).is_empty(), "a thread of the kernel");
        structure[MODE as usize] = 0x10;
        assert!(sampled(&structure).is_empty(), "32-bit code");
    }
}
