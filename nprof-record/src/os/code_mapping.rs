//! Executable memory as the kernel reports it, in records and in procfs. Plain data, so that images
//! do not depend on the decoder of records.

use std::borrow::Cow;

use nprof_object::{FileOffset, RuntimeAddress};

/// A mapping of executable memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mmap<'a> {
    pub(crate) pid: u32,
    pub(crate) start: RuntimeAddress,
    pub(crate) length: u64,
    /// The file offset of the byte at `start`.
    pub(crate) offset: FileOffset,
    pub(crate) identity: Identity,
    /// The path as the process sees it; ends in ` (deleted)` if the file was unlinked.
    pub(crate) path: Cow<'a, [u8]>,
}

/// The identity of a mapped file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// The major and minor number of the device.
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    /// The generation of the inode, since file systems reuse inode numbers.
    pub(crate) generation: u64,
}

/// The code of a BPF program that this process has loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadedCode {
    pub(crate) start: RuntimeAddress,
    pub(crate) size: u64,
    pub(crate) name: Vec<u8>,
}

/// Code that the kernel generated at run time, or released: a BPF program, a trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ksymbol<'a> {
    pub(crate) start: RuntimeAddress,
    pub(crate) size: u64,
    /// True if the code was released.
    pub(crate) is_unregistered: bool,
    pub(crate) name: &'a [u8],
}
