//! The registers of a frame, by DWARF's numbers (System V ABI AMD64, figure 3.36).

/// The number of DWARF registers, the return address column included.
pub const COUNT: usize = 17;
/// DWARF's number of the frame pointer (rbp).
pub const FP: u16 = 6;
/// DWARF's number of the stack pointer (rsp).
pub const SP: u16 = 7;
/// DWARF's number of the return address column; holds the instruction pointer (rip).
pub const IP: u16 = 16;
/// DWARF's number of the first argument of a system call (rdi).
pub const ARGUMENT: u16 = 5;
/// The registers a function gives back as it found them: rbx, rbp, r12 to r15.
pub const PRESERVED: [u16; 6] = [3, 6, 12, 13, 14, 15];
/// Those of them besides the frame pointer: rbx, r12 to r15.
pub const CALL_SAVED: [u16; 5] = [3, 12, 13, 14, 15];
/// The registers that a function of Go gives back as it found them, but for the stack pointer
/// (cmd/compile/abi-internal.md of Go): rbp. HotSpot and V8 promise no more at run time.
pub(super) const FRAME_POINTER_ONLY: [u16; 1] = [6];

/// The registers asked of the kernel, PERF_REG_X86_* of arch/x86/include/uapi/asm/perf_regs.h:
/// ax, bx, cx, dx, si, di, bp, sp, ip and r8 to r15.
pub const MASK: u64 = 0x00ff_01ff;
/// DWARF's numbers of the registers in [`MASK`], in the order of their bits.
pub const NUMBERS: [u16; COUNT] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15];
/// The names of these registers in perf(1).
pub const NAMES: [&str; COUNT] = [
    "ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
