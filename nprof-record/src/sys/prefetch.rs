//! A hint to the processor.

/// Starts to load the first line of the cache with a value.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    prefetch_at(std::ptr::from_ref(value).cast());
}

/// Starts to load the line of the cache at an address. It does not access memory as far as the program is
/// concerned, so that any address is valid.
#[inline]
pub(super) fn prefetch_at(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction has no effect but on the cache, and raises no exception.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    // The intrinsic of this architecture is not stable yet.
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly),
        );
    }
}
