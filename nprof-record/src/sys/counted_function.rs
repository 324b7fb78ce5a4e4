//! Functions of this program and one of the kernel with calls that are counted, to measure the time that
//! counting takes.

/// Returns at once. Its first instruction is like those of the functions that `nprof-symbolize --entries`
/// lists: on x86-64 the kernel emulates it, on arm64 it executes most of them in a single step (3501 of
/// 4220 functions of libstdc++, 731 of 2274 of glibc).
#[unsafe(naked)]
extern "C" fn counted_function() {
    // SAFETY: the code pops the register that it pushes, so that it returns to the caller with all
    // registers unchanged.
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("push rbx", "pop rbx", "ret");
    // SAFETY: it returns to the caller with all registers unchanged.
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x9, x9", "ret")
}

/// Returns at once. The kernel executes its first instruction in a single step.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn slow_function() {
    // SAFETY: it returns to the caller with all registers unchanged.
    core::arch::naked_asm!("mov rbx, rbx", "ret");
}

/// A function of this program, with calls that can be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnFunction {
    pub(crate) call: extern "C" fn(),
    /// The distance of its last instruction from its first one.
    pub(crate) end: u64,
}

impl OwnFunction {
    /// That with an entry like most functions.
    pub(crate) const COUNTED: Self =
        Self { call: counted_function, end: if cfg!(target_arch = "x86_64") { 2 } else { 4 } };

    /// That with an entry at which a count is slow, see `slow` in `nprof-symbolize --entries`.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const SLOW: Self = Self { call: slow_function, end: 3 };
    /// No entry is slow.
    #[cfg(target_arch = "aarch64")]
    pub(crate) const SLOW: Self = Self::COUNTED;

    /// Returns its address.
    pub(crate) fn address(self) -> u64 {
        self.call as *const () as u64
    }
}

/// Makes a system call that does nothing else.
pub(crate) extern "C" fn system_call() {
    // SAFETY: getppid(2) has no arguments and does not fail. The C library keeps no copy of its result.
    unsafe { libc::getppid() };
}
