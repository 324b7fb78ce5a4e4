//! The registers of a frame, by DWARF's numbers (DWARF for the Arm 64-bit Architecture, section 4.1).

/// The number of registers: x0 to x30, sp and pc.
pub const COUNT: usize = 33;
/// DWARF's number of the frame pointer (x29).
pub const FP: u16 = 29;
/// DWARF's number of the link register (x30), in which `bl` leaves the return address.
pub const LINK: u16 = 30;
/// DWARF's number of the stack pointer.
pub const SP: u16 = 31;
/// DWARF's number of the program counter.
pub const IP: u16 = 32;
/// DWARF's number of the first argument of a system call (x0).
pub const ARGUMENT: u16 = 0;
/// The registers a function gives back as it found them (Procedure Call Standard, section 6.1.1):
/// x19 to x29.
pub const PRESERVED: [u16; 11] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];
/// Those of them besides the frame pointer.
pub const CALL_SAVED: [u16; 10] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28];

/// The registers asked of the kernel, PERF_REG_ARM64_* of arch/arm64/include/uapi/asm/perf_regs.h:
/// x0 to x29, lr, sp and pc.
pub const MASK: u64 = (1 << COUNT) - 1;
/// DWARF's numbers of the registers in [`MASK`], in the order of their bits.
pub const NUMBERS: [u16; COUNT] = {
    let mut numbers = [0; COUNT];
    let mut at = 0;
    while at < COUNT {
        numbers[at] = at as u16;
        at += 1;
    }
    numbers
};
/// The names of these registers in perf(1).
pub const NAMES: [&str; COUNT] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
    "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",
    "x28", "x29", "lr", "sp", "pc",
];
