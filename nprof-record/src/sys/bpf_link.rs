//! bpf(2): programs at tracepoints, at places in files and in iterators. They are detached when the
//! descriptor of their link is closed, also by the end of this process.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::sys::bpf::{ITERATOR, KPROBE_MULTI, UPROBE_MULTI, address, open};

/// Commands of bpf(2), from include/uapi/linux/bpf.h.
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const LINK_CREATE: libc::c_int = 28;
const ITER_CREATE: libc::c_int = 33;

/// The part of `union bpf_attr` for [`RAW_TRACEPOINT_OPEN`].
#[repr(C)]
struct RawTracepoint {
    name: u64,
    prog_fd: u32,
    padding: u32,
}

/// The part for [`LINK_CREATE`]; `P` has the places at which the program runs.
#[repr(C)]
struct LinkCreate<P> {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    places: P,
}

/// Places in a file.
#[repr(C)]
#[derive(Default)]
struct Uprobes {
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    count: u32,
    multi_flags: u32,
    pid: u32,
    padding: u32,
}

/// Functions of the kernel.
#[repr(C)]
#[derive(Default)]
struct Kprobes {
    multi_flags: u32,
    count: u32,
    symbols: u64,
    addresses: u64,
    cookies: u64,
}

/// The part for [`ITER_CREATE`].
#[repr(C)]
struct IterCreate {
    link_fd: u32,
    flags: u32,
}

/// Runs a program at a tracepoint of the kernel.
///
/// # Errors
///
/// bpf(2): ENOENT if there is none of this name.
pub(crate) fn attach_raw_tracepoint(program: &File, name: &CStr) -> io::Result<File> {
    let prog_fd = program.as_raw_fd() as u32;
    let mut attr = RawTracepoint { name: address(name.as_ptr()), prog_fd, padding: 0 };
    // SAFETY: the name is a live string with a terminating NUL, which the kernel only reads; the command
    // returns a descriptor.
    unsafe { open(RAW_TRACEPOINT_OPEN, &mut attr) }
}

/// Runs a program whenever a task executes one of the instructions at these offsets in a file. The
/// program can read the cookie of the place.
///
/// # Errors
///
/// bpf(2): EINVAL before Linux 6.6 or if an offset is in no instruction, ENOENT.
pub(crate) fn attach_uprobes(
    program: &File,
    path: &CStr,
    offsets: &[u64],
    cookies: &[u64],
) -> io::Result<File> {
    let places = Uprobes {
        path: address(path.as_ptr()),
        offsets: address(offsets.as_ptr()),
        cookies: address(cookies.as_ptr()),
        count: count(offsets, cookies)?,
        ..Uprobes::default()
    };
    // SAFETY: the path is a live string with a terminating NUL; offsets and cookies are live slices
    // of `count` words.
    unsafe { link(program, UPROBE_MULTI, places) }
}

/// Runs a program whenever one of the kernel's functions at these addresses is called. The program can read
/// the cookie of the function.
///
/// # Errors
///
/// bpf(2): EINVAL before Linux 5.18 or if the kernel cannot trace a function, EOPNOTSUPP without
/// CONFIG_FPROBE.
pub(crate) fn attach_kprobes(
    program: &File,
    addresses: &[u64],
    cookies: &[u64],
) -> io::Result<File> {
    let places = Kprobes {
        count: count(addresses, cookies)?,
        addresses: address(addresses.as_ptr()),
        cookies: address(cookies.as_ptr()),
        ..Kprobes::default()
    };
    // SAFETY: addresses and cookies are live slices of `count` words.
    unsafe { link(program, KPROBE_MULTI, places) }
}

/// Returns the number of places.
///
/// # Errors
///
/// `InvalidInput` if it is not the number of cookies.
fn count(places: &[u64], cookies: &[u64]) -> io::Result<u32> {
    if places.len() == cookies.len() {
        Ok(places.len() as u32)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

/// Runs a program at places.
///
/// # Errors
///
/// bpf(2).
///
/// # Safety
///
/// The pointers of `places` lead to live objects of the sizes that bpf(2) demands.
unsafe fn link<P>(program: &File, attach_type: u32, places: P) -> io::Result<File> {
    let prog_fd = program.as_raw_fd() as u32;
    let mut attr = LinkCreate { prog_fd, target_fd: 0, attach_type, flags: 0, places };
    // SAFETY: the caller vouches for the places, which the kernel only reads; the command returns a
    // descriptor.
    unsafe { open(LINK_CREATE, &mut attr) }
}

/// Returns a file with the output of a program for all objects of its iterator.
///
/// # Errors
///
/// bpf(2).
pub(crate) fn iterate(program: &File) -> io::Result<File> {
    // SAFETY: there are no places.
    let link = unsafe { link(program, ITERATOR, ()) }?;
    let mut attr = IterCreate { link_fd: link.as_raw_fd() as u32, flags: 0 };
    // SAFETY: the structure has no pointers; the command returns a descriptor. The file keeps the link.
    unsafe { open(ITER_CREATE, &mut attr) }
}
