//! The layout of frames: return addresses, frame records, signal frames.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::arch::aarch64::registers::{COUNT, IP, SP};

/// The instruction that calls the kernel: `svc #0`.
pub const SYSTEM_CALL: [u8; 4] = [0x01, 0, 0, 0xd4];

/// `mov x8, #139; svc #0`: the code that signal handlers return to, in the vDSO and in C libraries.
/// libgcc knows it by these bytes, too: the vDSO has no unwind table for it, by intention
/// (arch/arm64/kernel/vdso/sigreturn.S).
pub const SIGNAL_RETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];

/// The offset of x0 from the stack pointer of a signal frame: `struct rt_sigframe` has 128 bytes of
/// siginfo, and 176 of ucontext before `struct sigcontext`, which begins with the fault address
/// (arch/arm64/include/uapi/asm/sigcontext.h). The others follow: x1 to x30, sp and pc.
const SAVED_X0: i64 = 128 + 176 + 8;

/// The offsets above the stack pointer at which the kernel saves the registers of the interrupted
/// frame.
pub const SIGNAL_SAVED: [(u16, i64); COUNT] = {
    let mut saved = [(0, 0); COUNT];
    let mut at = 0;
    while at < COUNT {
        saved[at] = (at as u16, SAVED_X0 + 8 * at as i64);
        at += 1;
    }
    assert!(saved[COUNT - 2].0 == SP && saved[COUNT - 1].0 == IP);
    saved
};

/// The most bits of an address of user code. The others of a return address may hold a signature of it
/// (pointer authentication). The kernel maps nothing above, even with addresses of 52 bits, unless a
/// program asks for it.
const MAX_ADDRESS_BITS: u32 = 48;

/// The least bits: kernels with pages of 16 KiB in two levels (CONFIG_ARM64_VA_BITS_36).
const MIN_ADDRESS_BITS: u32 = 36;

/// The bits of an address of user code on the machine of the stacks.
static ADDRESS_BITS: AtomicU32 = AtomicU32::new(MAX_ADDRESS_BITS);

/// Returns the bits of user addresses, given one in the main stack of a program: the kernel puts it within a
/// few GiB below the end of the address space (`randomize_stack_top` in mm/util.c).
fn address_bits(main_stack: u64) -> u32 {
    (u64::BITS - main_stack.leading_zeros()).clamp(MIN_ADDRESS_BITS, MAX_ADDRESS_BITS)
}

/// Sets the bits of user addresses for all walks to those of the machine that has this address in the main stack
/// of a program.
pub(super) fn set_address_bits(main_stack: u64) {
    ADDRESS_BITS.store(address_bits(main_stack), Relaxed);
}

/// Returns the code address in a word, without its signature.
#[inline]
pub fn code_address(word: u64) -> u64 {
    without_signature(word, ADDRESS_BITS.load(Relaxed))
}

#[inline]
fn without_signature(word: u64, bits: u32) -> u64 {
    word & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_removed_for_each_size_of_addresses() {
        for (main_stack, word, address) in [
            (0xffff_f1d2_3000, 0x003c_aaaa_bbbb_cccc, 0xaaaa_bbbb_cccc),
            // 39 bits: the signature begins at bit 39.
            (0x7f_f1d2_3000, 0x003c_aad5_bbbb_cccc, 0x55_bbbb_cccc),
            // 42 bits, with pages of 64 KiB.
            (0x3ff_f1d2_0000, 0x003c_aaaa_bbbb_cccc, 0x2aa_bbbb_cccc),
            // A program may have asked for addresses of 52 bits.
            (0xf_ffff_f1d2_3000, 0x003c_aaaa_bbbb_cccc, 0xaaaa_bbbb_cccc),
        ] {
            let bits = address_bits(main_stack);
            assert_eq!(without_signature(word, bits), address, "{main_stack:#x}: {bits} bits");
        }
    }
}
