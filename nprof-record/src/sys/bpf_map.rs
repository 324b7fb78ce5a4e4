//! bpf(2): the maps of programs, read and changed by this process.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

use crate::sys::bpf::{NAME, address, bpf};

/// Commands of bpf(2), from include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const MAP_FREEZE: libc::c_int = 22;
const MAP_LOOKUP_BATCH: libc::c_int = 24;

/// Kinds of maps (`enum bpf_map_type`).
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PROGRAMS: u32 = 3;
const PERF_EVENTS: u32 = 4;

/// BPF_F_MMAPABLE: the array can be mapped (Linux 5.5).
const F_MMAPABLE: u32 = 1 << 10;

/// BPF_NOEXIST: the key must be new.
const NO_EXIST: u64 = 1;

/// The elements that are read at once. All elements of one bucket must fit.
const BATCH: usize = 1024;

/// The kinds of maps with keys from 0 up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// An array of values; `mapped`: this process can map it.
    Array { mapped: bool },
    /// An array of perf events that programs write to.
    PerfEvents,
    /// An array of programs that programs go on with.
    Programs,
}

/// A map as bpf(2) describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapLayout {
    /// `enum bpf_map_type`.
    pub(crate) kind: u32,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) entries: u32,
    pub(crate) flags: u32,
}

/// The part of `union bpf_attr` for [`MAP_CREATE`], up to the name.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

/// The part for one element.
#[repr(C)]
struct MapElement {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The part for [`MAP_FREEZE`].
#[repr(C)]
struct MapFreeze {
    map_fd: u32,
}

/// The part for [`MAP_LOOKUP_BATCH`].
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

/// A map. Keys and values are words of this process's byte order.
#[derive(Debug)]
pub(crate) struct BpfMap {
    pub(crate) file: File,
    layout: MapLayout,
}

impl BpfMap {
    /// Creates a map; closed on exec.
    ///
    /// # Errors
    ///
    /// bpf(2): EPERM without CAP_BPF or if the limit of locked memory is exceeded (before Linux 5.11),
    /// ENOSYS or EINVAL on old kernels, ENOMEM.
    pub(crate) fn create(layout: MapLayout) -> io::Result<Self> {
        let mut attr = MapCreate {
            map_type: layout.kind,
            key_size: layout.key_bytes,
            value_size: layout.value_bytes,
            max_entries: layout.entries,
            map_flags: layout.flags,
            inner_map_fd: 0,
            numa_node: 0,
            map_name: NAME,
        };
        // SAFETY: the structure has no pointers.
        let fd = unsafe { bpf(MAP_CREATE, &mut attr) }?;
        // SAFETY: the kernel has just created this descriptor; nothing else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        Ok(Self { file, layout })
    }

    fn value_bytes(&self) -> usize {
        self.layout.value_bytes as usize
    }

    /// Returns the arguments for an element. `value` is the address of a value.
    fn element(&self, key: &[u8], value: u64, flags: u64) -> io::Result<MapElement> {
        // Values of other kinds have other sizes, one for each CPU for example.
        let is_readable = [HASH, ARRAY].contains(&self.layout.kind);
        if !is_readable || key.len() != self.layout.key_bytes as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (map_fd, key) = (self.file.as_raw_fd() as u32, address(key.as_ptr()));
        Ok(MapElement { map_fd, padding: 0, key, value, flags })
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    ///
    /// bpf(2): E2BIG if the map is full. InvalidInput if a size is not that of the map.
    pub(crate) fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.update(key, value, 0)
    }

    /// Sets the value of a key that must be new.
    ///
    /// # Errors
    ///
    /// Those of [`Self::set`]; EEXIST.
    pub(crate) fn set_new(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.update(key, value, NO_EXIST)
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64) -> io::Result<()> {
        let mut attr = self.element(key, address(value.as_ptr()), flags)?;
        if value.len() != self.value_bytes() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: key and value are live and have the sizes with which the map was created; the kernel
        // only reads them, during the call.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// Returns the value of a key. None if there is none.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut value = vec![0_u8; self.value_bytes()];
        let to = value.as_mut_ptr().expose_provenance() as u64;
        let mut attr = self.element(key, to, 0).ok()?;
        // SAFETY: key and value are live and have the sizes with which the map was created; the kernel
        // writes one value in maps of these kinds, of which nothing else has a reference.
        unsafe { bpf(MAP_LOOKUP_ELEM, &mut attr) }.ok()?;
        Some(value)
    }

    /// Removes a key. No error if there is none.
    pub(crate) fn remove(&self, key: &[u8]) {
        let Ok(mut attr) = self.element(key, 0, 0) else { return };
        // SAFETY: the key has the size with which the map was created; the kernel only reads it.
        let _ = unsafe { bpf(MAP_DELETE_ELEM, &mut attr) };
    }

    /// Makes the values constant, so that the verifier knows them.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn freeze(&self) -> io::Result<()> {
        let mut attr = MapFreeze { map_fd: self.file.as_raw_fd() as u32 };
        // SAFETY: the structure has no pointers.
        unsafe { bpf(MAP_FREEZE, &mut attr) }.map(drop)
    }

    /// Visits all elements of a hash map, and perhaps some that are added during this.
    ///
    /// # Errors
    ///
    /// bpf(2): EINVAL before Linux 5.6. InvalidInput for other kinds of maps.
    pub(crate) fn visit(&self, mut visit: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
        if self.layout.kind != HASH {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (key_bytes, value_bytes) = (self.layout.key_bytes as usize, self.value_bytes());
        let mut keys = vec![0_u8; BATCH * key_bytes];
        let mut values = vec![0_u8; BATCH * value_bytes];
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
            let pairs = keys.chunks_exact(key_bytes).zip(values.chunks_exact(value_bytes));
            pairs.take(count).for_each(|(key, value)| visit(key, value));
            if is_last {
                return Ok(());
            }
            place = next;
            is_first = false;
        }
    }
}

/// Creates a map of `entries` values of `size` bytes each; closed on exec.
///
/// # Errors
///
/// Those of [`BpfMap::create`].
pub(crate) fn bpf_map(kind: MapKind, size: u32, entries: u32) -> io::Result<File> {
    let (kind, flags) = match kind {
        MapKind::Array { mapped } => (ARRAY, if mapped { F_MMAPABLE } else { 0 }),
        MapKind::PerfEvents => (PERF_EVENTS, 0),
        MapKind::Programs => (PROGRAMS, 0),
    };
    let layout = MapLayout { kind, key_bytes: 4, value_bytes: size, entries, flags };
    Ok(BpfMap::create(layout)?.file)
}

/// Stores a descriptor in a map: an event that is open on a CPU at the number of that CPU, or a program.
///
/// # Errors
///
/// bpf(2): E2BIG if the map has no such number.
pub(crate) fn bpf_map_set(map: &File, number: u32, file: &File) -> io::Result<()> {
    let value = file.as_raw_fd();
    let (key, value) = (address(&raw const number), address(&raw const value));
    let map_fd = map.as_raw_fd() as u32;
    let mut attr = MapElement { map_fd, padding: 0, key, value, flags: 0 };
    // SAFETY: key and value point to live numbers of four bytes, the sizes with which the map was
    // created; the kernel only reads them.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
}
