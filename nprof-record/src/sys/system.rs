//! Waiting, clocks, memory pages, random bits: calls that belong to no other file.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// The last error as a result, for calls that say -1.
pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Waits until one of the descriptors can be read (or, for those in `out`, written), or
/// `timeout` milliseconds (-1: for ever) have passed.
///
/// # Errors
///
/// What poll(2) says; being interrupted is no error.
pub(crate) fn poll(polled: &mut [libc::pollfd], timeout: i32) -> io::Result<usize> {
    let count = polled.len() as libc::nfds_t;
    // SAFETY: pointer and length are those of a live slice of the structure poll(2) takes.
    match check(unsafe { libc::poll(polled.as_mut_ptr(), count, timeout) }) {
        Ok(ready) => Ok(ready as usize),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

/// The monotonic clock, ns.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// How long ago the system began, ns: the monotonic clock and the time it slept.
pub(crate) fn boot_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec to write to. Both clocks exist on every Linux with perf.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Converts a duration to ns, for sums with times of the clocks.
pub(crate) fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The size of a page of memory, bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: takes and gives a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// 64 random bits.
///
/// # Errors
///
/// What getrandom(2) says.
pub(crate) fn random() -> io::Result<u64> {
    let mut bits = [0u8; 8];
    // SAFETY: pointer and length are those of a live buffer.
    let got = unsafe { libc::getrandom(bits.as_mut_ptr().cast(), bits.len(), 0) };
    if got == bits.len() as isize {
        Ok(u64::from_ne_bytes(bits))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A second descriptor of standard output that a command does not inherit.
///
/// # Errors
///
/// What fcntl(2) says.
pub(crate) fn standard_output() -> io::Result<File> {
    // SAFETY: descriptor 1 stays open throughout the process; borrowing it reads no memory.
    let stdout = unsafe { BorrowedFd::borrow_raw(1) };
    stdout.try_clone_to_owned().map(|fd: OwnedFd| File::from(fd))
}
