//! A function of this program and one of the kernel whose calls are counted, to measure the time that
//! counting takes.

/// Returns at once. Its first instruction is like those of the functions that `nprof-symbolize --entries`
/// lists: on x86-64 the kernel emulates it, on arm64 it executes most of them in a single step (3501 of
/// 4220 functions of libstdc++, 731 of 2274 of glibc).
#[unsafe(naked)]
pub(crate) extern "C" fn counted_function() {
    // SAFETY: the code pops the register that it pushes, so that it returns to the caller with all
    // registers unchanged.
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("push rbx", "pop rbx", "ret");
    // SAFETY: it returns to the caller with all registers unchanged.
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x9, x9", "ret")
}

/// The distance of its last instruction from its first one.
pub(crate) const COUNTED_FUNCTION_END: u64 = if cfg!(target_arch = "x86_64") { 2 } else { 4 };

/// Makes a system call that does nothing else.
pub(crate) extern "C" fn system_call() {
    // SAFETY: getppid(2) has no arguments and does not fail. The C library keeps no copy of its result.
    unsafe { libc::getppid() };
}

/// Returns the address of [`counted_function`].
pub(crate) fn counted_function_address() -> u64 {
    counted_function as *const () as u64
}
