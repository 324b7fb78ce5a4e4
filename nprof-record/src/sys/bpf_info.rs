//! bpf(2): facts about programs and links.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::sys::bpf::bpf;

/// BPF_OBJ_GET_INFO_BY_FD, from include/uapi/linux/bpf.h.
const OBJECT_INFO: libc::c_int = 15;

/// The offset of `recursion_misses` in `struct bpf_prog_info`.
const PROGRAM_MISSES: usize = 208;

/// The offset of `kprobe_multi.missed` in `struct bpf_link_info`; 0 before Linux 6.7.
const LINK_MISSES: usize = 32;

/// The part of `union bpf_attr` for [`OBJECT_INFO`].
#[repr(C)]
struct ObjectInfo {
    fd: u32,
    length: u32,
    info: u64,
}

/// Returns how often a program was not run because another one ran on the same CPU.
///
/// # Errors
///
/// bpf(2).
pub(crate) fn program_misses(program: &File) -> io::Result<u64> {
    word_of_info::<{ PROGRAM_MISSES + 8 }>(program, PROGRAM_MISSES)
}

/// Returns how often a link to functions of the kernel was not followed because the kernel traced another
/// function on the same CPU.
///
/// # Errors
///
/// bpf(2).
pub(crate) fn link_misses(link: &File) -> io::Result<u64> {
    word_of_info::<{ LINK_MISSES + 8 }>(link, LINK_MISSES)
}

/// Returns the word at an offset of the first `LENGTH` bytes of information on an object.
fn word_of_info<const LENGTH: usize>(object: &File, at: usize) -> io::Result<u64> {
    // Zeros ask for no lists.
    let mut info = [0_u8; LENGTH];
    let mut attr = ObjectInfo {
        fd: object.as_raw_fd() as u32,
        length: LENGTH as u32,
        info: info.as_mut_ptr().expose_provenance() as u64,
    };
    // SAFETY: the information is a live, writable array of `length` bytes without pointers; all bytes are
    // valid values of it.
    unsafe { bpf(OBJECT_INFO, &mut attr) }?;
    let word = info[at..].first_chunk().copied().unwrap_or_default();
    Ok(u64::from_ne_bytes(word))
}
