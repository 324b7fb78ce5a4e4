//! Processes: started, reaped, limited and measured.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys::Signals;
use crate::sys::startup;
use crate::sys::system::check;

/// Raises the number of descriptors this process may open to its hard limit, and tells the limit
/// there was before, to be given back to the command.
pub(crate) fn raise_descriptor_limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live rlimit to write to.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }).ok()?;
    let before = limit;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a live rlimit to read from.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).ok()?;
    Some(before)
}

/// The number of descriptors this process may open.
pub(crate) fn descriptor_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live rlimit to write to.
    match check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }) {
        Ok(_) => limit.rlim_cur,
        Err(_) => 0,
    }
}

/// What a process used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// CPU time in user mode, ns.
    pub(crate) user_ns: u64,
    /// CPU time in the kernel, ns.
    pub(crate) kernel_ns: u64,
    /// Peak resident memory, bytes.
    pub(crate) memory: u64,
}

impl From<libc::rusage> for Usage {
    fn from(usage: libc::rusage) -> Self {
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Self {
            user_ns: ns(usage.ru_utime),
            kernel_ns: ns(usage.ru_stime),
            memory: usage.ru_maxrss as u64 * 1024,
        }
    }
}

/// An rusage to write to.
fn no_usage() -> libc::rusage {
    // SAFETY: rusage is made of integers, for which all zero bits are a value.
    unsafe { std::mem::zeroed() }
}

/// What this process used so far.
pub(crate) fn own_usage() -> Usage {
    let mut usage = no_usage();
    // SAFETY: `usage` is a live rusage to write to.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage.into()
}

/// The CPU time all threads of a process used so far, the ended ones too, ns; `None` when it is
/// gone.
pub(crate) fn cpu_time_of(pid: u32) -> Option<u64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock` is a live variable to write to.
    if unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) } != 0 {
        return None;
    }
    // SAFETY: `time` is a live timespec to write to.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) }).ok()?;
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// How long a clock tick of /proc's times is, ns.
pub(crate) fn clock_tick_ns() -> u64 {
    // SAFETY: takes and gives a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000_000 / u64::try_from(ticks).unwrap_or(100).max(1)
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It returned this status.
    Status(u8),
    /// This signal ended it.
    Signal(u8),
}

impl Exit {
    /// The status a shell would show: 128+N for signal N.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Status(status) => status,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

/// Reaps a child: how it ended and what it and its reaped children used; `None` while it lives
/// and `wait` is false.
///
/// # Errors
///
/// What wait4(2) says.
pub(crate) fn reap(pid: i32, wait: bool) -> io::Result<Option<(Exit, Usage)>> {
    let mut status = 0;
    let mut usage = no_usage();
    let flags = if wait { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: both pointers are to live variables of the types wait4(2) writes.
        match check(unsafe { libc::wait4(pid, &raw mut status, flags, &raw mut usage) }) {
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

/// How a command is started.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    /// The program, looked up in PATH, and its arguments; not empty.
    pub(crate) words: &'a [CString],
    /// Whether its standard output goes where its standard error goes.
    pub(crate) output_to_error: bool,
    /// It waits for a byte from here before it executes.
    pub(crate) gate: BorrowedFd<'a>,
    /// The end of the gate where the byte is put in.
    pub(crate) gate_opener: BorrowedFd<'a>,
    /// It writes its errno here when it cannot execute; must be closed on exec.
    pub(crate) report: BorrowedFd<'a>,
    /// What it gives back of what the recorder changed.
    pub(crate) signals: &'a Signals,
    /// The limit of descriptors it gets back.
    pub(crate) descriptors: Option<libc::rlimit>,
}

/// Forks a child that waits at the gate and then executes the command. Gives its pid.
///
/// # Errors
///
/// What fork(2) says.
pub(crate) fn fork_waiting(start: &Start<'_>) -> io::Result<i32> {
    let mut words: Vec<*const libc::c_char> =
        start.words.iter().map(|word| word.as_ptr()).collect();
    words.push(std::ptr::null());
    // SAFETY: this process has one thread, so the child may do what the parent may; even so it
    // only makes system calls. `words` is a null-terminated array of C strings that live on in
    // the child's copy of the memory. All other pointers are to live variables.
    unsafe {
        let pid = check(libc::fork())?;
        if pid != 0 {
            return Ok(pid);
        }
        startup::give_back(start.output_to_error);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const start.signals.before, std::ptr::null_mut());
        if let Some(limit) = &start.descriptors {
            libc::setrlimit(libc::RLIMIT_NOFILE, limit);
        }
        // With our copy of the gate's other end closed, a recorder that is gone reads as its end.
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
        libc::execvp(words[0], words.as_ptr());
        let errno = *libc::__errno_location();
        let report = start.report.as_raw_fd();
        libc::write(report, (&raw const errno).cast(), size_of::<libc::c_int>());
        libc::_exit(127)
    }
}
