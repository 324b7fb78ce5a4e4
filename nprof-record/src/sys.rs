//! Every system call that needs `unsafe`: perf events and their rings, processes, signals.
//!
//! What leaves this module is safe to use in any order: owned descriptors, plain numbers, and a
//! ring that can only be read or advanced.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings::{self, perf_event_attr, perf_event_mmap_page};

/// The last error as a result, for calls that say -1.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Opens a perf event, perf_event_open(2); closed on exec.
///
/// # Errors
///
/// What the kernel says; see [`crate::session`] for what it means.
pub(crate) fn perf_event_open(attr: &perf_event_attr, pid: i32, cpu: i32) -> io::Result<File> {
    let mut attr = *attr;
    let flags = libc::c_ulong::from(bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a live, initialized structure whose `size` field is its own size (set by
    // the session), and the kernel writes to no more than that field.
    let fd = unsafe { perf::perf_event_open(&raw mut attr, pid, cpu, -1, flags) };
    let fd = check(fd)?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Begins counting.
///
/// # Errors
///
/// What ioctl(2) says.
pub(crate) fn enable(event: &File) -> io::Result<()> {
    // SAFETY: the descriptor is live, and the request takes no pointer.
    check(unsafe { perf::ioctls::ENABLE(event.as_raw_fd(), 0) }).map(drop)
}

/// Ends counting.
///
/// # Errors
///
/// What ioctl(2) says.
pub(crate) fn disable(event: &File) -> io::Result<()> {
    // SAFETY: the descriptor is live, and the request takes no pointer.
    check(unsafe { perf::ioctls::DISABLE(event.as_raw_fd(), 0) }).map(drop)
}

/// The ring an event writes its records to, mapped into our memory.
///
/// Positions count bytes since the ring was made and never wrap; what lies between [`Ring::tail`]
/// and [`Ring::head`] is ours until [`Ring::advance`].
#[derive(Debug)]
pub(crate) struct Ring {
    base: *mut libc::c_void,
    /// Bytes mapped, the control page included.
    length: usize,
    /// The control page's size, bytes.
    page: usize,
    /// What `advance` set last; the kernel never changes it.
    tail: u64,
}

impl Ring {
    /// Maps a ring of `size` bytes (a power of two of pages) onto an event.
    ///
    /// # Errors
    ///
    /// What mmap(2) says; EPERM when the budget of locked memory is used up.
    pub(crate) fn map(event: &File, size: usize) -> io::Result<Self> {
        let page = page_size();
        let length = page + size;
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no memory
        // of ours; the descriptor is live.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base, length, page, tail: 0 })
    }

    fn size(&self) -> usize {
        self.length - self.page
    }

    /// Where the kernel writes next.
    pub(crate) fn head(&self) -> u64 {
        // SAFETY: the mapping begins with this structure and lives as long as `self`; the field
        // is an aligned u64 that the kernel and we only access whole.
        let head = unsafe {
            let control = self.base.cast::<perf_event_mmap_page>();
            AtomicU64::from_ptr(&raw mut (*control).data_head)
        };
        // Acquire: the records before the head are read after it.
        head.load(Ordering::Acquire)
    }

    /// Where the oldest record that is still ours begins.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// The bytes from `tail` to at most `head`, in two parts where they wrap around the end.
    pub(crate) fn bytes(&self, head: u64) -> (&[u8], &[u8]) {
        let size = self.size();
        let length = usize::try_from(head.saturating_sub(self.tail)).unwrap_or(0).min(size);
        let start = (self.tail % size as u64) as usize;
        let first = length.min(size - start);
        // SAFETY: both parts lie inside of the mapping, since start < size and
        // first <= size - start and length - first <= start. The kernel does not write between
        // tail and head (the mapping is writable, so the ring is not in overwrite mode), and
        // the tail moves only through `advance`, which needs `self` exclusively.
        unsafe {
            let data = self.base.cast::<u8>().add(self.page);
            (
                std::slice::from_raw_parts(data.add(start), first),
                std::slice::from_raw_parts(data, length - first),
            )
        }
    }

    /// Gives the next `length` bytes back to the kernel.
    pub(crate) fn advance(&mut self, length: usize) {
        self.tail += length as u64;
        // SAFETY: as in `head`.
        let tail = unsafe {
            let control = self.base.cast::<perf_event_mmap_page>();
            AtomicU64::from_ptr(&raw mut (*control).data_tail)
        };
        // Release: our reads are over before the kernel may write there again.
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.base, self.length) };
    }
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
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec to write to. The clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
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

/// Sends a signal; a process that is gone is none of our business.
pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: takes numbers only.
    unsafe { libc::kill(pid, signal) };
}

/// The signals the recorder handles, as a descriptor that becomes readable when one came.
#[derive(Debug)]
pub(crate) struct Signals {
    file: File,
    /// The mask there was before, the command's.
    before: libc::sigset_t,
}

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signal {
    /// Its number.
    pub(crate) number: i32,
    /// Whether a process sent it to us, and not the terminal to all in the foreground.
    pub(crate) sent: bool,
}

impl Signals {
    /// Blocks SIGCHLD, SIGINT, SIGTERM and SIGHUP, to be read from here instead.
    ///
    /// # Errors
    ///
    /// What sigprocmask(2) and signalfd(2) say.
    pub(crate) fn block() -> io::Result<Self> {
        // SAFETY: sigset_t is made of integers, for which all zero bits are a value; all
        // pointers are to live sets. Resetting SIGCHLD runs no handler of ours, there is none.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            // Were it ignored, children would vanish without leaving their status.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut before))?;
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let fd = check(libc::signalfd(-1, &raw const set, flags))?;
            Ok(Self { file: File::from_raw_fd(fd), before })
        }
    }

    /// To be polled for reading.
    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The next signal that came, if one did.
    pub(crate) fn next(&self) -> Option<Signal> {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut bytes = [0u8; SIZE];
        let got = io::Read::read(&mut &self.file, &mut bytes).ok()?;
        if got != SIZE {
            return None;
        }
        // SAFETY: the buffer is as large as the structure, which is made of integers; it is
        // read without regard to alignment.
        let info = unsafe { bytes.as_ptr().cast::<libc::signalfd_siginfo>().read_unaligned() };
        Some(Signal { number: info.ssi_signo as i32, sent: info.ssi_code <= 0 })
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
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const start.signals.before, std::ptr::null_mut());
        if let Some(limit) = &start.descriptors {
            libc::setrlimit(libc::RLIMIT_NOFILE, limit);
        }
        if start.output_to_error {
            libc::dup2(2, 1);
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
