//! The types of the running kernel, in memory.

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;

/// The types of the kernel, encoded as Documentation/bpf/btf.rst of Linux defines.
#[derive(Debug)]
pub(crate) enum KernelTypes {
    /// Memory of the kernel, with its length.
    Mapped(*mut libc::c_void, usize),
    Copied(Vec<u8>),
}

impl KernelTypes {
    /// The file of the types.
    pub(crate) const FILE: &str = "/sys/kernel/btf/vmlinux";

    /// Maps the types, which Linux 6.16 allows, or reads them: to copy their 5 MB takes 7 ms.
    ///
    /// # Errors
    ///
    /// Those of open(2) and read(2).
    pub(crate) fn read() -> io::Result<Self> {
        Self::map().or_else(|_| fs::read(Self::FILE).map(Self::Copied))
    }

    fn map() -> io::Result<Self> {
        let file = File::open(Self::FILE)?;
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let (rights, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
        // SAFETY: a new mapping at an address that the kernel chooses does not affect memory in
        // use; the descriptor is open.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self::Mapped(base, length))
    }
}

impl Deref for KernelTypes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            // SAFETY: the mapping has `length` bytes and lives as long as `self`. It is memory of the
            // kernel that does not change: the file can only be read.
            Self::Mapped(base, length) => unsafe {
                std::slice::from_raw_parts(base.cast::<u8>(), *length)
            },
            Self::Copied(bytes) => bytes,
        }
    }
}

impl Drop for KernelTypes {
    fn drop(&mut self) {
        if let Self::Mapped(base, length) = *self {
            // SAFETY: address and length are those of the mapping of `map`, and references into it
            // borrow `self`.
            unsafe { libc::munmap(base, length) };
        }
    }
}
