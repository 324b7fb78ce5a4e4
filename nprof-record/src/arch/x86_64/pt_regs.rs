//! The registers that the kernel saves on entry: `struct pt_regs` of
//! arch/x86/include/asm/ptrace.h, with which `struct bpf_perf_event_data` begins, too.

use nprof_unwind::arch;

/// The offset of the code segment (cs); its lowest bits are the privilege level.
pub(crate) const MODE: i16 = 136;

/// The bits of [`MODE`] with the privilege level, and their value for user code.
pub(crate) const MODE_MASK: i32 = 3;
pub(crate) const MODE_USER: i32 = 3;

/// The value of [`MODE`] for 32-bit user code, `__USER32_CS`.
pub(crate) const MODE_COMPAT: i32 = 0x23;

/// The offset of the stack pointer.
pub(crate) const SP: i16 = 152;

/// Bytes of the structure.
pub(crate) const BYTES: usize = 168;

/// The offset of the number of the system call (orig_ax); -1 outside of one.
pub(crate) const CALL: u32 = 120;

/// The offset of the first argument of a system call (di).
pub(crate) const ARGUMENT: u32 = 112;

/// The offset of the instruction pointer.
pub(crate) const IP: usize = 128;

/// True if the structure is that of 32-bit user code.
pub(crate) fn is_compat(structure: &[u8]) -> bool {
    structure.get(MODE as usize..).and_then(<[u8]>::first_chunk).copied().map(u16::from_le_bytes)
        == Some(MODE_COMPAT as u16)
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
    let words = [
        (IP, ip),
        (SP as usize, sp),
        (CALL as usize, call),
        (ARGUMENT as usize, argument),
        (MODE as usize, if is_compat { MODE_COMPAT } else { MODE_USER } as u64),
    ];
    for (at, word) in words {
        structure[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    structure
}

/// The offsets of the registers in [`arch::MASK`], in the order of their bits.
const SAMPLED: [usize; arch::COUNT] =
    [80, 40, 88, 96, 104, 112, 32, 152, 128, 72, 64, 56, 48, 24, 16, 8, 0];

/// Returns the registers in the order of [`arch::NUMBERS`], given the structure. Empty if they are not
/// those of user code.
pub(crate) fn sampled(structure: &[u8]) -> Vec<u8> {
    let word = |at: usize| structure.get(at..at + 8).unwrap_or_default();
    let is_user = word(MODE as usize).first().is_some_and(|mode| mode & 3 == MODE_USER as u8);
    if is_user { SAMPLED.map(word).concat() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_in_the_order_of_samples() {
        let mut structure: Vec<u8> =
            (0..21_u64).flat_map(|word| (word * 8).to_le_bytes()).collect();
        structure[MODE as usize] = 0x33;
        let words: Vec<u8> = sampled(&structure).chunks(8).map(|word| word[0]).collect();
        assert_eq!(words, SAMPLED.map(|offset| offset as u8));
        assert_eq!((SAMPLED[7], SAMPLED[8]), (SP as usize, 128));
        structure[MODE as usize] = 0x10;
        assert!(sampled(&structure).is_empty(), "a thread of the kernel");
    }
}
