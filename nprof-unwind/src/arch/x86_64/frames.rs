//! System calls and signal frames.

use crate::arch::x86_64::registers::COUNT;

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
