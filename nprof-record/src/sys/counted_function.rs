//! A function of this program whose calls are counted, to measure the time that it takes.

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

/// Returns the address of that function.
pub(crate) fn counted_function_address() -> u64 {
    counted_function as *const () as u64
}
