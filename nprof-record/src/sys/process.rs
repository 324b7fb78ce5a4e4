//! Starts and reaps processes, reads and sets their limits, measures their CPU time.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys::Signals;
use crate::sys::priority::with_ordinary_priority;
use crate::sys::startup;
use crate::sys::system::check;

/// Raises the limit of open descriptors to the hard limit. Returns the previous limit, which the
/// command gets. None if it cannot be changed.
pub(crate) fn raise_descriptor_limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit to a live variable.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }).ok()?;
    let before = limit;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the kernel reads one rlimit from a live variable.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).ok()?;
    Some(before)
}

/// Returns the limit of open descriptors.
pub(crate) fn descriptor_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit to a live variable.
    match check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }) {
        Ok(_) => limit.rlim_cur,
        Err(_) => 0,
    }
}

/// The resources a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// CPU time in user mode.
    pub(crate) user_ns: u64,
    /// CPU time in the kernel.
    pub(crate) kernel_ns: u64,
    /// Peak resident memory.
    pub(crate) peak_bytes: u64,
}

impl From<libc::rusage> for Usage {
    fn from(usage: libc::rusage) -> Self {
        Self {
            user_ns: timeval_ns(usage.ru_utime),
            kernel_ns: timeval_ns(usage.ru_stime),
            // In KiB on Linux, getrusage(2).
            peak_bytes: usage.ru_maxrss as u64 * 1024,
        }
    }
}

fn timeval_ns(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000
}

/// Returns an rusage for a syscall to fill.
fn empty_usage() -> libc::rusage {
    // SAFETY: rusage consists of integers, for which zero bits are valid.
    unsafe { std::mem::zeroed() }
}

/// Returns the resources this process has used, all of its threads together.
pub(crate) fn own_usage() -> Usage {
    let mut usage = empty_usage();
    // SAFETY: the kernel writes one rusage to a live variable.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage.into()
}

/// Returns the CPU time in ns of all threads of a process, with those that have exited. None if the
/// process has exited.
pub(crate) fn cpu_time_ns(pid: u32) -> Option<u64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library writes one clockid_t to a live variable.
    if unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) } != 0 {
        return None;
    }
    // SAFETY: the kernel writes one timespec to a live variable.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) }).ok()?;
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the length in ns of a clock tick, the unit of times in /proc.
pub(crate) fn clock_tick_ns() -> u64 {
    // SAFETY: takes and returns numbers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000_000 / u64::try_from(ticks).unwrap_or(100).max(1)
}

/// The end of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It exited with this status.
    Status(u8),
    /// This signal ended it.
    Signal(u8),
}

impl Exit {
    /// Returns the status as a shell reports it: 128+N for signal N.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Status(status) => status,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

/// Reaps a child. Returns its end and the resources that it and its reaped children have used. None
/// if it still runs; never if `wait` is true.
///
/// # Errors
///
/// wait4(2).
pub(crate) fn reap(pid: i32, wait: bool) -> io::Result<Option<(Exit, Usage)>> {
    let mut status = 0;
    let mut usage = empty_usage();
    let flags = if wait { 0 } else { libc::WNOHANG };
    loop {
        // The kernel drops the entries of the process in /proc, and waits in a loop for a thread that still uses
        // one (d_invalidate in fs/dcache.c, Linux 6.18): for 0.95 s, until the limit of real-time programs, if
        // that thread was preempted by this one.
        // SAFETY: the kernel writes an int and an rusage to live variables.
        let ended = with_ordinary_priority(|| unsafe {
            libc::wait4(pid, &raw mut status, flags, &raw mut usage)
        });
        match check(ended) {
            Ok(0) => return Ok(None),
            Ok(_) if libc::WIFSIGNALED(status) => {
                let signal = libc::WTERMSIG(status) as u8;
                return Ok(Some((Exit::Signal(signal), usage.into())));
            }
            Ok(_) => {
                return Ok(Some((Exit::Status(libc::WEXITSTATUS(status) as u8), usage.into())));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The parameters of the start of a command.
#[derive(Debug)]
pub(crate) struct CommandStart<'a> {
    /// The program, searched in PATH, and its arguments; not empty.
    pub(crate) words: &'a [CString],
    /// Its environment; `None` for that of the recorder.
    pub(crate) environment: Option<&'a [CString]>,
    /// True if its standard output is redirected to its standard error.
    pub(crate) output_to_error: bool,
    /// The read end of a pipe: the child waits for a byte before it executes.
    pub(crate) gate: BorrowedFd<'a>,
    /// The write end of this pipe.
    pub(crate) gate_opener: BorrowedFd<'a>,
    /// A pipe for the child's errno if it cannot execute; must be closed on exec.
    pub(crate) report: BorrowedFd<'a>,
    /// The signals of the recorder, with the mask to restore.
    pub(crate) signals: &'a Signals,
    /// The limit of descriptors to restore.
    pub(crate) descriptors: Option<libc::rlimit>,
}

/// Forks a child that waits at the gate and then executes the command. Returns its pid.
///
/// # Errors
///
/// fork(2).
pub(crate) fn fork_at_gate(start: &CommandStart<'_>) -> io::Result<i32> {
    let mut words: Vec<*const libc::c_char> =
        start.words.iter().map(|word| word.as_ptr()).collect();
    words.push(std::ptr::null());
    let environment = start.environment.map(|variables| {
        let mut pointers: Vec<*const libc::c_char> =
            variables.iter().map(|variable| variable.as_ptr()).collect();
        pointers.push(std::ptr::null());
        pointers
    });
    // SAFETY: this process has one thread, so no lock can be held by another thread at the fork,
    // and the child only makes syscalls in any case. `words` and `environment` are null-terminated arrays
    // of C strings that exist in the child's copy of the memory. All other pointers are to live
    // variables of the types that the calls access.
    unsafe {
        let pid = check(libc::fork())?;
        if pid != 0 {
            return Ok(pid);
        }
        startup::restore(start.output_to_error);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const start.signals.before, std::ptr::null_mut());
        if let Some(limit) = &start.descriptors {
            libc::setrlimit(libc::RLIMIT_NOFILE, limit);
        }
        // Without this copy of the write end, the read returns 0 if the recorder exits.
        libc::close(start.gate_opener.as_raw_fd());
        let mut byte = 0u8;
        let gate = start.gate.as_raw_fd();
        loop {
            match libc::read(gate, (&raw mut byte).cast(), 1) {
                1 => break,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(125),
            }
        }
        match &environment {
            Some(environment) => libc::execvpe(words[0], words.as_ptr(), environment.as_ptr()),
            None => libc::execvp(words[0], words.as_ptr()),
        };
        let errno = *libc::__errno_location();
        let report = start.report.as_raw_fd();
        libc::write(report, (&raw const errno).cast(), size_of::<libc::c_int>());
        libc::_exit(127)
    }
}
