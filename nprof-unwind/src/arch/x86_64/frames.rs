//! The layout of frames: return addresses, frame records, signal frames.

use crate::arch::rule::RegisterRule;
use crate::arch::x86_64::registers::COUNT;

/// Bytes of a word of the stack.
pub const WORD: u64 = 8;

/// The rule of the return address of a function that was called: `call` pushes it, so it lies in
/// the word below the CFA.
pub const PUSHED_RETURN_ADDRESS: RegisterRule = RegisterRule::AtCfaOffset(-8);

/// Returns the address of the word that `call` pushed for the frame with this CFA. `None` if there
/// cannot be one.
pub fn return_address_slot(cfa: u64) -> Option<u64> {
    cfa.checked_sub(WORD)
}

/// The offset of the return address from the word that the frame pointer points to, which holds
/// the frame pointer of the caller.
pub const FRAME_RECORD_RETURN_ADDRESS: u64 = 8;

/// Bytes of the frame record: the stack pointer of the caller is above it.
pub const FRAME_RECORD: u64 = 16;

/// The instruction that calls the kernel.
pub const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// `mov $15,%rax; syscall`: the code that signal handlers return to, in every C library.
pub const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// The offsets above the stack pointer at which the kernel saves the registers of the interrupted
/// frame, by DWARF's numbers: `struct sigcontext` in `ucontext` (5 words in), of
/// arch/x86/include/uapi/asm/sigcontext.h.
pub const SIGNAL_SAVED: [(u16, i64); COUNT] = [
    (8, 40),
    (9, 48),
    (10, 56),
    (11, 64),
    (12, 72),
    (13, 80),
    (14, 88),
    (15, 96),
    (5, 104),
    (4, 112),
    (6, 120),
    (3, 128),
    (1, 136),
    (0, 144),
    (2, 152),
    (7, 160),
    (16, 168),
];
