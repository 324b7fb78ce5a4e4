//! The registers that the kernel saves on entry: `struct pt_regs` of
//! arch/x86/include/asm/ptrace.h, with which `struct bpf_perf_event_data` begins, too.

/// The offset of the code segment (cs); its lowest bits are the privilege level.
pub(crate) const MODE: i16 = 136;

/// The bits of [`MODE`] with the privilege level, and their value for user code.
pub(crate) const MODE_MASK: i32 = 3;
pub(crate) const MODE_USER: i32 = 3;

/// The value of [`MODE`] for 32-bit user code, `__USER32_CS`.
pub(crate) const MODE_COMPAT: i32 = 0x23;

/// The offset of the stack pointer.
pub(crate) const SP: i16 = 152;
