//! Hash maps of BPF programs, read and changed by this process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::sys::bpf::{MAP_UPDATE_ELEM, MapKind, MapUpdate, address, bpf, bpf_map};

/// Commands of bpf(2), from include/uapi/linux/bpf.h.
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_DELETE_ELEM: libc::c_int = 3;
const MAP_LOOKUP_BATCH: libc::c_int = 24;

/// The elements that are read at once. All elements of one bucket must fit.
const BATCH: usize = 1024;

/// A hash map. Keys and values are words of this process's byte order.
#[derive(Debug)]
pub(crate) struct BpfHash {
    pub(crate) file: File,
    key_bytes: usize,
    value_bytes: usize,
}

/// The part of `union bpf_attr` for [`MAP_LOOKUP_BATCH`].
#[repr(C)]
#[derive(Default)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

impl BpfHash {
    /// Creates a map of at most `entries` elements. Memory is used for those that exist.
    ///
    /// # Errors
    ///
    /// Those of [`bpf_map`].
    pub(crate) fn new(key_bytes: usize, value_bytes: usize, entries: u32) -> io::Result<Self> {
        let kind = MapKind::Hash { key_bytes: key_bytes as u32 };
        let file = bpf_map(kind, value_bytes as u32, entries)?;
        Ok(Self { file, key_bytes, value_bytes })
    }

    fn check(&self, key: &[u8]) -> io::Result<()> {
        if key.len() == self.key_bytes { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    ///
    /// bpf(2): E2BIG if the map is full.
    pub(crate) fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check(key)?;
        if value.len() != self.value_bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut attr = MapUpdate {
            map_fd: self.file.as_raw_fd() as u32,
            padding: 0,
            key: address(key.as_ptr()),
            value: address(value.as_ptr()),
            flags: 0,
        };
        // SAFETY: key and value have the sizes with which the map was created; the kernel only reads
        // them.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// Returns the value of a key. None if there is none.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.check(key).ok()?;
        let mut value = vec![0_u8; self.value_bytes];
        let mut attr = MapUpdate {
            map_fd: self.file.as_raw_fd() as u32,
            padding: 0,
            key: address(key.as_ptr()),
            value: value.as_mut_ptr().expose_provenance() as u64,
            flags: 0,
        };
        // SAFETY: key and value have the sizes with which the map was created; the kernel writes the
        // value, of which nothing else has a reference.
        unsafe { bpf(MAP_LOOKUP_ELEM, &mut attr) }.ok()?;
        Some(value)
    }

    /// Removes a key. No error if there is none.
    pub(crate) fn remove(&self, key: &[u8]) {
        if self.check(key).is_err() {
            return;
        }
        let mut attr = MapUpdate {
            map_fd: self.file.as_raw_fd() as u32,
            padding: 0,
            key: address(key.as_ptr()),
            value: 0,
            flags: 0,
        };
        // SAFETY: the key has the size with which the map was created; the kernel only reads it.
        let _ = unsafe { bpf(MAP_DELETE_ELEM, &mut attr) };
    }

    /// Visits all elements, and perhaps some that are added during this.
    ///
    /// # Errors
    ///
    /// bpf(2): EINVAL before Linux 5.6.
    pub(crate) fn visit(&self, mut visit: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
        let mut keys = vec![0_u8; BATCH * self.key_bytes];
        let mut values = vec![0_u8; BATCH * self.value_bytes];
        // The kernel's place in the map: 4 bytes.
        let (mut place, mut next) = (0_u64, 0_u64);
        let mut is_first = true;
        loop {
            let mut attr = Batch {
                in_batch: if is_first { 0 } else { address(&raw const place) },
                out_batch: (&raw mut next).expose_provenance() as u64,
                keys: keys.as_mut_ptr().expose_provenance() as u64,
                values: values.as_mut_ptr().expose_provenance() as u64,
                count: BATCH as u32,
                map_fd: self.file.as_raw_fd() as u32,
                ..Batch::default()
            };
            // SAFETY: the buffers have room for `count` keys and values of the sizes with which the
            // map was created, and the places for 4 bytes. Nothing else has references into them.
            let result = unsafe { bpf(MAP_LOOKUP_BATCH, &mut attr) };
            let is_last = match result {
                Ok(_) => false,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                Err(error) => return Err(error),
            };
            let count = (attr.count as usize).min(BATCH);
            let pairs =
                keys.chunks_exact(self.key_bytes).zip(values.chunks_exact(self.value_bytes));
            pairs.take(count).for_each(|(key, value)| visit(key, value));
            if is_last {
                return Ok(());
            }
            place = next;
            is_first = false;
        }
    }
}
