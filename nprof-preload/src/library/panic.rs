//! The panic handler that a library without std must have.

/// Ends the program. The hooks do not panic: no checked index, no overflow check, no unwrap.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    super::arch::abort()
}
