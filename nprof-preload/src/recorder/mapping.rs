//! A shared mapping of a file that cannot shrink.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapping, which its process may write at any time.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping lives as long as this value, and nothing in it depends on the thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; its memory is accessed as atomics, or copied.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first bytes of a file.
    ///
    /// # Errors
    ///
    /// Those of mmap(2).
    pub(super) fn new(file: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Mapping { base, bytes })
    }

    /// Returns the address of a byte of it, or of its end.
    pub(super) fn address(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.bytes);
        // SAFETY: the callers pass offsets within the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps the range of `new`, to which no reference is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
