//! x86-64: registers by DWARF's numbers, what the kernel is asked for, and the code it makes.

/// How many registers DWARF's numbers name, the return address column included.
pub const COUNT: usize = 17;
/// DWARF's number of the frame pointer (rbp).
pub const FP: u16 = 6;
/// DWARF's number of the stack pointer (rsp).
pub const SP: u16 = 7;
/// DWARF's number of the return address column; holds the instruction pointer (rip).
pub const IP: u16 = 16;
/// The registers a function gives back as it found them: rbx, rbp, r12 to r15.
pub const PRESERVED: [u16; 6] = [3, 6, 12, 13, 14, 15];

/// The registers asked of the kernel, PERF_REG_X86_* of arch/x86/include/uapi/asm/perf_regs.h:
/// ax, bx, cx, dx, si, di, bp, sp, ip and r8 to r15.
pub const MASK: u64 = 0x00ff_01ff;
/// DWARF's numbers of the registers in [`MASK`], in the order of their bits.
pub const NUMBERS: [u16; COUNT] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15];

/// The instruction that calls the kernel.
pub const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// `mov $15,%rax; syscall`: what a signal handler returns to, in every C library.
pub const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// Where above the stack pointer the kernel saved the registers of what a signal
/// interrupted, by DWARF's numbers: `struct sigcontext` in `ucontext` (5 words in), of
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
