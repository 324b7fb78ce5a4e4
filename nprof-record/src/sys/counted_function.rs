//! A function of this program and one of the kernel whose calls are counted, to measure the time that
//! counting takes.

/// Returns at once. Its first instruction is one that the kernel emulates, as those of the functions
/// that `nprof-symbolize --entries` lists.
#[unsafe(naked)]
pub(crate) extern "C" fn counted_function() {
    // SAFETY: the code pops the register that it pushes, so that it returns to the caller with all
    // registers unchanged.
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("push rbx", "pop rbx", "ret");
    // SAFETY: it returns to the caller with all registers unchanged.
    #[cfg(not(target_arch = "x86_64"))]
    core::arch::naked_asm!("ret")
}

/// Makes a system call that does nothing else.
pub(crate) extern "C" fn system_call() {
    // SAFETY: getppid(2) has no arguments and does not fail. The C library keeps no copy of its result.
    unsafe { libc::getppid() };
}

/// Returns the address of [`counted_function`].
pub(crate) fn counted_function_address() -> u64 {
    counted_function as *const () as u64
}
