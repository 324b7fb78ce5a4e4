//! bpf(2): maps, some of them shared with this process, and programs that perf events run.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys as perf;

use crate::sys::system::{check, page_size};

/// Commands of bpf(2), from include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
pub(super) const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;

/// BPF_F_MMAPABLE: the array can be mapped (Linux 5.5).
const F_MMAPABLE: u32 = 1 << 10;

/// BPF_F_NO_PREALLOC: a hash map takes memory for the elements that exist.
const F_NO_PREALLOC: u32 = 1;

/// BPF_TRACE_UPROBE_MULTI: the program runs at many places of a file (Linux 6.6).
pub(super) const UPROBE_MULTI: u32 = 48;

/// The kinds of programs, from include/uapi/linux/bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    /// Perf events run it (BPF_PROG_TYPE_PERF_EVENT).
    PerfEvent,
    /// A tracepoint runs it (BPF_PROG_TYPE_RAW_TRACEPOINT).
    RawTracepoint,
    /// Many places of a file run it (BPF_PROG_TYPE_KPROBE).
    Uprobes,
}

/// The name of the maps and the program in bpftool(8).
const NAME: [u8; 16] = *b"nprof_record\0\0\0\0";

/// The licence of the program. It calls helpers that the kernel reserves for GPL-compatible
/// programs; it is available under the MIT licence, too.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";

/// The kinds of maps, from include/uapi/linux/bpf.h. Keys of all but hash maps are numbers from 0 up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// A hash map with keys of this size (BPF_MAP_TYPE_HASH).
    Hash { key_bytes: u32 },
    /// An array of values (BPF_MAP_TYPE_ARRAY); `mapped`: this process can map it.
    Array { mapped: bool },
    /// An array of perf events that programs write to (BPF_MAP_TYPE_PERF_EVENT_ARRAY).
    PerfEvents,
    /// An array of programs that programs go on with (BPF_MAP_TYPE_PROG_ARRAY).
    Programs,
}

/// The part of `union bpf_attr` for [`MAP_CREATE`], up to the name.
#[repr(C)]
#[derive(Default)]
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

/// The part for [`MAP_UPDATE_ELEM`].
#[repr(C)]
pub(super) struct MapUpdate {
    pub(super) map_fd: u32,
    pub(super) padding: u32,
    pub(super) key: u64,
    pub(super) value: u64,
    pub(super) flags: u64,
}

/// The part for [`PROG_LOAD`], up to the type of attachment.
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// Calls bpf(2) with a structure that is a prefix of `union bpf_attr` for the command. The kernel
/// takes the rest as zero.
///
/// # Safety
///
/// All pointers in the structure must be valid for the accesses of the command.
pub(super) unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: pointer and length are those of a live, initialized structure, which the kernel may
    // also write; the caller guarantees the pointers in it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size_of::<T>()) };
    check(result as libc::c_int)
}

/// Returns a pointer as an argument of the kernel. Its provenance is exposed, because the kernel
/// accesses the memory through the number.
pub(super) fn address<T>(of: *const T) -> u64 {
    of.expose_provenance() as u64
}

/// Creates a map of `entries` values of `size` bytes each; closed on exec.
///
/// # Errors
///
/// bpf(2): EPERM without CAP_BPF or if the limit of locked memory is exceeded (before Linux 5.11),
/// ENOSYS or EINVAL on old kernels, ENOMEM.
pub(crate) fn bpf_map(kind: MapKind, size: u32, entries: u32) -> io::Result<File> {
    let key_size = match kind {
        MapKind::Hash { key_bytes } => key_bytes,
        _ => 4,
    };
    let (map_type, map_flags) = match kind {
        MapKind::Hash { .. } => (1, F_NO_PREALLOC),
        MapKind::Array { mapped } => (2, if mapped { F_MMAPABLE } else { 0 }),
        MapKind::PerfEvents => (4, 0),
        MapKind::Programs => (3, 0),
    };
    let mut attr = MapCreate {
        map_type,
        key_size,
        value_size: size,
        max_entries: entries,
        map_flags,
        map_name: NAME,
        ..MapCreate::default()
    };
    // SAFETY: the structure has no pointers.
    let fd = unsafe { bpf(MAP_CREATE, &mut attr) }?;
    // SAFETY: the kernel has just created this descriptor; nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Stores a descriptor in a map: an event that is open on a CPU at the number of that CPU, or a program.
///
/// # Errors
///
/// bpf(2): E2BIG if the map has no such number.
pub(crate) fn bpf_map_set(map: &File, number: u32, file: &File) -> io::Result<()> {
    let value = file.as_raw_fd();
    let (key, value) = (address(&raw const number), address(&raw const value));
    let mut attr = MapUpdate { map_fd: map.as_raw_fd() as u32, padding: 0, key, value, flags: 0 };
    // SAFETY: key and value point to live numbers of four bytes, the sizes with which the map was
    // created; the kernel only reads them.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
}

/// Loads a program; closed on exec.
///
/// # Errors
///
/// bpf(2): EPERM without CAP_BPF and CAP_PERFMON, EINVAL and EACCES if the verifier rejects it,
/// ENOSYS.
pub(crate) fn bpf_program(kind: ProgramKind, instructions: &[u64]) -> io::Result<File> {
    let (prog_type, expected_attach_type) = match kind {
        ProgramKind::PerfEvent => (7, 0),
        ProgramKind::RawTracepoint => (17, 0),
        ProgramKind::Uprobes => (2, UPROBE_MULTI),
    };
    let mut attr = ProgLoad {
        prog_type,
        insn_cnt: instructions.len() as u32,
        insns: address(instructions.as_ptr()),
        license: address(LICENCE.as_ptr()),
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: NAME,
        prog_ifindex: 0,
        expected_attach_type,
    };
    // SAFETY: the instructions are a live slice of `insn_cnt` instructions of 8 bytes; the licence
    // is a live string with a terminating NUL. The kernel only reads them, during the call.
    let fd = unsafe { bpf(PROG_LOAD, &mut attr) }?;
    // SAFETY: the kernel has just created this descriptor; nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Attaches a program to an event and those inherited from it. It runs at each overflow, before the
/// sample is written, until the event is closed.
///
/// # Errors
///
/// ioctl(2): EINVAL for events that run other kinds of programs, EEXIST if the event has one.
pub(crate) fn attach_program(event: &File, program: &File) -> io::Result<()> {
    let program = program.as_raw_fd() as u32;
    // SAFETY: both descriptors are open, and the request takes a number, no pointer.
    check(unsafe { perf::ioctls::SET_BPF(event.as_raw_fd(), program) }).map(drop)
}

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
        // additions of whole words, which are atomic on x86-64.
        Some(unsafe { AtomicU64::from_ptr(self.base.cast::<u64>().add(index)) })
    }

    /// Returns a word; 0 if the index is too large.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.word(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Sets a word, unless the index is too large.
    pub(crate) fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value, Ordering::Relaxed);
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
