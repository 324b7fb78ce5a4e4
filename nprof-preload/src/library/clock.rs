//! CLOCK_MONOTONIC by the vDSO.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering};

use super::{symbols, sys};

/// The address of the vDSO's function; 0 before the first call, 1 if there is none.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);

/// Returns the time in nanoseconds.
pub(super) fn now_ns() -> u64 {
    const CLOCK_MONOTONIC: i32 = 1;
    let mut address = FUNCTION.load(Ordering::Relaxed);
    if address == 0 {
        address = symbols::any(c"__vdso_clock_gettime").unwrap_or(1);
        FUNCTION.store(address, Ordering::Relaxed);
    }
    if address == 1 {
        return sys::monotonic_ns();
    }
    let mut time = [0_i64; 2];
    // SAFETY: the kernel's function has this type; a timespec has two words.
    unsafe {
        let function: unsafe extern "C" fn(i32, *mut [i64; 2]) -> i32 =
            core::mem::transmute(address);
        function(CLOCK_MONOTONIC, &raw mut time);
    }
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}
