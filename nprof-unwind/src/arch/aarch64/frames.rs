//! The layout of frames: return addresses, frame records, signal frames.

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

/// The bits of an address of user code. The others of a return address may hold a signature of it
/// (pointer authentication). The kernel maps nothing above, even with addresses of 52 bits, unless a
/// program asks for it.
const ADDRESS_BITS: u32 = 48;

/// Returns the code address in a word, without its signature.
#[inline]
pub fn code_address(word: u64) -> u64 {
    word & ((1 << ADDRESS_BITS) - 1)
}
