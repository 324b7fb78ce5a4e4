//! Words in a map of BPF programs, shared with this process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::system::page_size;

/// An array of 64-bit words in a map, shared with BPF programs.
#[derive(Debug)]
pub(crate) struct SharedWords {
    base: *mut libc::c_void,
    /// Bytes mapped.
    length: usize,
    /// Words.
    count: usize,
}

impl SharedWords {
    /// Maps the first `count` words of an array created as `mapped`.
    ///
    /// # Errors
    ///
    /// mmap(2).
    pub(crate) fn map(array: &File, count: usize) -> io::Result<Self> {
        let length = (count * size_of::<u64>()).next_multiple_of(page_size());
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let fd = array.as_raw_fd();
        // SAFETY: a new mapping at an address that the kernel chooses does not affect memory in
        // use; the descriptor is open.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base, length, count })
    }

    /// Returns a word. None if the index is too large.
    fn word(&self, index: usize) -> Option<&AtomicU64> {
        if index >= self.count {
            return None;
        }
        // SAFETY: the mapping is page-aligned, has at least `count` words and lives as long as
        // `self`. BPF programs and this process access it only by aligned loads, stores and atomic
        // additions of whole words, which are atomic on all architectures with 64 bits.
        Some(unsafe { AtomicU64::from_ptr(self.base.cast::<u64>().add(index)) })
    }

    /// Returns a word; 0 if the index is too large.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.word(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Sets a word, unless the index is too large.
    pub(crate) fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            // Release: words are seen in the order in which they were set.
            word.store(value, Ordering::Release);
        }
    }

    /// Adds to a word that only this process writes.
    pub(crate) fn add(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            // No other writer: a separate load and store suffice.
            word.store(word.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
        }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping of `map`, and references into it
        // borrow `self`.
        unsafe { libc::munmap(self.base, self.length) };
    }
}
