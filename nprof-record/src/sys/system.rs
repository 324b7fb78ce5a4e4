//! ppoll(2), clocks, page size, random bits, standard output.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

/// Converts the result of a call that returns -1 on errors.
pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Waits until a descriptor is ready, or for `timeout`, if there is one. Returns the number of ready
/// descriptors.
///
/// # Errors
///
/// ppoll(2); an interrupted call returns 0.
pub(crate) fn poll(polled: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let count = polled.len() as libc::nfds_t;
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: pointer and length are those of a live slice of pollfd; the timeout lives until the end, and the
    // signal mask may be null.
    match check(unsafe { libc::ppoll(polled.as_mut_ptr(), count, timeout, std::ptr::null()) }) {
        Ok(ready) => Ok(ready as usize),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

/// Returns the monotonic clock of the kernel in ns: that of samples, in every time namespace.
pub(crate) fn monotonic_ns() -> u64 {
    static OFFSET_NS: OnceLock<i64> = OnceLock::new();
    let offset_ns = *OFFSET_NS.get_or_init(|| monotonic_offset_ns_of(std::process::id()));
    clock_ns(libc::CLOCK_MONOTONIC).saturating_add_signed(offset_ns.saturating_neg())
}

/// Returns the offset of the monotonic clock in the time namespace of a process
/// (time_namespaces(7)); 0 if it cannot be read.
pub(crate) fn monotonic_offset_ns_of(pid: u32) -> i64 {
    // The offsets are those of the namespace for children. If that is another one, the process has
    // just created it, and its own has no offset, unless namespaces are nested.
    let namespace = |name: &str| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
    if namespace("time") != namespace("time_for_children") {
        return 0;
    }
    let offsets = std::fs::read_to_string(format!("/proc/{pid}/timens_offsets"));
    monotonic_offset_ns(&offsets.unwrap_or_default()).unwrap_or(0)
}

/// Parses the offset of the monotonic clock in /proc/PID/timens_offsets. The nanoseconds are positive
/// if the seconds are negative, too.
fn monotonic_offset_ns(offsets: &str) -> Option<i64> {
    let line = offsets.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let mut numbers = line.split_ascii_whitespace().map(str::parse::<i64>);
    let (seconds, nanoseconds) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// Returns the time since boot in ns, with the time the system was suspended.
pub(crate) fn boot_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// Returns the CPU time of the calling thread in ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Cannot fail: these clocks exist on all kernels with perf events.
    // SAFETY: the kernel writes one timespec to a live variable.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Converts a duration to ns, for sums with times of the clocks.
pub(crate) fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the type of the file system of a file, a number of statfs(2).
///
/// # Errors
///
/// statfs(2).
pub(crate) fn file_system_of(path: &CStr) -> io::Result<i64> {
    // SAFETY: the structure consists of integers, for which zero bits are valid.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads a string that ends with 0, and writes to a live structure.
    check(unsafe { libc::statfs(path.as_ptr(), &raw mut found) })?;
    Ok(found.f_type as i64)
}

/// Returns the bytes of a page of memory.
pub(crate) fn page_size() -> usize {
    // SAFETY: takes and returns numbers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Returns 64 random bits.
///
/// # Errors
///
/// getrandom(2).
pub(crate) fn random() -> io::Result<u64> {
    let mut bits = [0u8; 8];
    // SAFETY: pointer and length are those of a live buffer, to which the kernel writes.
    let got = unsafe { libc::getrandom(bits.as_mut_ptr().cast(), bits.len(), 0) };
    if got == bits.len() as isize {
        Ok(u64::from_ne_bytes(bits))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns a duplicate of standard output that the command does not inherit.
///
/// # Errors
///
/// fcntl(2).
pub(crate) fn standard_output() -> io::Result<File> {
    // SAFETY: this process never closes descriptor 1, so it is open as long as it is borrowed.
    let stdout = unsafe { BorrowedFd::borrow_raw(1) };
    stdout.try_clone_to_owned().map(|fd: OwnedFd| File::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_thread_excludes_other_threads() {
        let before = (thread_cpu_ns(), crate::sys::own_usage());
        let used_ns = 20_000_000;
        let busy = std::thread::spawn(move || while thread_cpu_ns() < used_ns {});
        busy.join().expect("it ends");
        let process = crate::sys::own_usage();
        let of_process =
            process.user_ns + process.kernel_ns - before.1.user_ns - before.1.kernel_ns;
        assert!(of_process >= used_ns / 2, "{of_process}");
        assert!(thread_cpu_ns() - before.0 < used_ns / 2, "it only waited");
    }

    #[test]
    fn offset_of_time_namespace_is_parsed() {
        let offsets = |first: &str| format!("{first}\nboottime           7         0\n");
        let parsed = |first: &str| monotonic_offset_ns(&offsets(first));
        assert_eq!(parsed("monotonic       86400         5"), Some(86_400_000_000_005));
        assert_eq!(parsed("monotonic       -1000         0"), Some(-1_000_000_000_000));
        assert_eq!(parsed("monotonic          -1 500000000"), Some(-500_000_000));
        assert_eq!(monotonic_offset_ns(""), None, "before Linux 5.6");
    }
}
