//! The error number of the thread, in the C library.
#![allow(unsafe_code)]

use core::ffi::c_int;

use super::next;

pub(super) const ENOMEM: c_int = 12;
pub(super) const ENOSYS: c_int = 38;

/// Returns errno.
pub(super) fn get() -> c_int {
    // SAFETY: the C library returns the address of the thread's errno.
    next::__errno_location().map_or(0, |location| unsafe { *location() })
}

/// Sets errno.
pub(super) fn set(number: c_int) {
    if let Some(location) = next::__errno_location() {
        // SAFETY: as above.
        unsafe { *location() = number };
    }
}
