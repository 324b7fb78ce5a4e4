//! bpf(2): maps, some of them in our memory, and programs run by perf events.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys as perf;

use crate::sys::system::{check, page_size};

/// Commands of bpf(2), from include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;

/// Flag of arrays that can be mapped, Linux 5.5.
const F_MMAPABLE: u32 = 1 << 10;

/// BPF_PROG_TYPE_PERF_EVENT: programs run by perf events.
const PERF_EVENT_PROGRAM: u32 = 7;

/// What the kernel calls the maps and the program, for bpftool(8).
const NAME: [u8; 16] = *b"nprof_record\0\0\0\0";

/// The program calls helpers that the kernel lends to programs under the GPL only. It is ours,
/// and may be had under the MIT licence as well.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";

/// The kinds of maps, from include/uapi/linux/bpf.h. Keys are numbers from 0 up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// An array of values; whether it is to be mapped into our memory, too.
    Array { mapped: bool },
    /// An array of perf events that programs can write to.
    PerfEvents,
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
struct MapUpdate {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The part for [`PROG_LOAD`], up to the name.
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
}

/// bpf(2), with a structure that begins like `union bpf_attr` for the command.
///
/// # Safety
///
/// What the structure refers to must be live and as the command takes it.
unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: pointer and length are those of a live structure; the rest is the caller's word.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size_of::<T>()) };
    check(result as libc::c_int)
}

/// The address of what the kernel is to read.
fn address<T>(of: *const T) -> u64 {
    of.expose_provenance() as u64
}

/// Makes a map of `entries` values, each of `size` bytes; closed on exec.
///
/// # Errors
///
/// What bpf(2) says: EPERM without CAP_BPF or where locked memory is used up (before Linux 5.11),
/// ENOSYS, EINVAL on kernels too old, ENOMEM.
pub(crate) fn bpf_map(kind: MapKind, size: u32, entries: u32) -> io::Result<File> {
    let (map_type, map_flags) = match kind {
        MapKind::Array { mapped } => (2, if mapped { F_MMAPABLE } else { 0 }),
        MapKind::PerfEvents => (4, 0),
    };
    let mut attr = MapCreate {
        map_type,
        key_size: 4,
        value_size: size,
        max_entries: entries,
        map_flags,
        map_name: NAME,
        ..MapCreate::default()
    };
    // SAFETY: the structure holds numbers only.
    let fd = unsafe { bpf(MAP_CREATE, &mut attr) }?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Puts an event, open on a CPU, into a map of perf events, at the number of that CPU.
///
/// # Errors
///
/// What bpf(2) says: E2BIG when the map has no such number.
pub(crate) fn bpf_map_event(map: &File, cpu: u32, event: &File) -> io::Result<()> {
    let value = event.as_raw_fd();
    let (key, value) = (address(&raw const cpu), address(&raw const value));
    let mut attr = MapUpdate { map_fd: map.as_raw_fd() as u32, padding: 0, key, value, flags: 0 };
    // SAFETY: key and value are live numbers of four bytes each, as the map takes them.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
}

/// Loads a program that perf events can run; closed on exec.
///
/// # Errors
///
/// What bpf(2) says: EPERM without CAP_BPF and CAP_PERFMON, EINVAL and EACCES when the verifier
/// refuses it, ENOSYS.
pub(crate) fn bpf_program(instructions: &[u64]) -> io::Result<File> {
    let mut attr = ProgLoad {
        prog_type: PERF_EVENT_PROGRAM,
        insn_cnt: instructions.len() as u32,
        insns: address(instructions.as_ptr()),
        license: address(LICENCE.as_ptr()),
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: NAME,
    };
    // SAFETY: the instructions are live, of 8 bytes each, and as many as said; the licence is a
    // live string with a NUL at its end. The kernel only reads them.
    let fd = unsafe { bpf(PROG_LOAD, &mut attr) }?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Makes an event, and those inherited from it, run a program at each overflow, before the sample
/// is written. The program stays with the event.
///
/// # Errors
///
/// What ioctl(2) says: EINVAL for events that take other programs, EEXIST when there is one.
pub(crate) fn run_program(event: &File, program: &File) -> io::Result<()> {
    let program = program.as_raw_fd() as u32;
    // SAFETY: both descriptors are live, and the request takes a number.
    check(unsafe { perf::ioctls::SET_BPF(event.as_raw_fd(), program) }).map(drop)
}

/// An array of 64-bit words in a map, shared with the programs that use it.
#[derive(Debug)]
pub(crate) struct SharedWords {
    base: *mut libc::c_void,
    /// Bytes mapped.
    length: usize,
    /// Words.
    count: usize,
}

impl SharedWords {
    /// Maps the first `count` words of an array that was made to be mapped.
    ///
    /// # Errors
    ///
    /// What mmap(2) says.
    pub(crate) fn map(array: &File, count: usize) -> io::Result<Self> {
        let length = (count * size_of::<u64>()).next_multiple_of(page_size());
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let fd = array.as_raw_fd();
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no memory of
        // ours; the descriptor is live.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base, length, count })
    }

    fn word(&self, index: usize) -> Option<&AtomicU64> {
        if index >= self.count {
            return None;
        }
        // SAFETY: the mapping has `count` aligned words, lives as long as `self`, and all who
        // use it, the programs included, access whole words.
        Some(unsafe { AtomicU64::from_ptr(self.base.cast::<u64>().add(index)) })
    }

    /// A word; 0 where there is none.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.word(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Sets a word; where there is none, nothing.
    pub(crate) fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Adds to a word that only we write to.
    pub(crate) fn add(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(word.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
        }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base, self.length) };
    }
}
