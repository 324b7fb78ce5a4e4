//! Reads signals from a descriptor.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use crate::sys::startup::{FOR_COMMAND, was_ignored};
use crate::sys::system::check;

/// Sends a signal.
pub(crate) fn kill(pid: i32, signal: i32) {
    // ESRCH is ignored: the process has already exited.
    // SAFETY: takes numbers only.
    unsafe { libc::kill(pid, signal) };
}

/// True if a thread exists, perhaps as a zombie. Takes a fifth of the time of a look into /proc.
pub(crate) fn exists(tid: u32) -> bool {
    let Ok(tid) = i32::try_from(tid) else { return false };
    // SAFETY: takes numbers only; signal 0 is not sent.
    match check(unsafe { libc::kill(tid, 0) }) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() != Some(libc::ESRCH),
    }
}

/// The signals that the recorder handles: a descriptor that is readable when one is pending.
#[derive(Debug)]
pub(crate) struct Signals {
    file: File,
    /// The signal mask at start-up, for the command.
    pub(super) before: libc::sigset_t,
}

/// A received signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signal {
    pub(crate) number: i32,
    /// True if a process sent it, false if the terminal sent it to the foreground group.
    pub(crate) sent: bool,
}

impl Signals {
    /// Blocks SIGCHLD, SIGCONT, SIGUSR1, those that end a recording and those that only a command takes, and
    /// opens the descriptor to read them. Ignores SIGXFSZ.
    ///
    /// # Errors
    ///
    /// sigprocmask(2), signalfd(2).
    pub(crate) fn block() -> io::Result<Self> {
        // SAFETY: sigset_t consists of integers, for which zero bits are valid; all pointers are to
        // live sets. No signal handler of this process exists that could run. The new descriptor of
        // signalfd has no other owner.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            // A blocked SIGCONT continues a stopped process all the same (signal(7)).
            for signal in [
                libc::SIGCHLD,
                libc::SIGCONT,
                libc::SIGINT,
                libc::SIGQUIT,
                libc::SIGTERM,
                libc::SIGHUP,
                libc::SIGUSR1,
            ]
            .into_iter()
            .chain(FOR_COMMAND)
            {
                libc::sigaddset(&raw mut set, signal);
            }
            // If it were ignored, children would be reaped without their status (wait(2)).
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            // A write beyond the limit of file sizes then fails (EFBIG) instead of ending us, and the
            // command runs on as with a full disk.
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut before))?;
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let fd = check(libc::signalfd(-1, &raw const set, flags))?;
            Ok(Self { file: File::from_raw_fd(fd), before })
        }
    }

    /// Returns the descriptor, to poll for reading.
    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Returns the next pending signal. None if there is none.
    ///
    /// Signals ignored at start-up are skipped, as nohup(1) expects, except SIGINT and SIGQUIT sent
    /// by a process: shells start background jobs with both ignored, and scripts send one to end
    /// the recording.
    pub(crate) fn next(&self) -> Option<Signal> {
        loop {
            let signal = self.read()?;
            let is_handled = match signal.number {
                libc::SIGCHLD | libc::SIGUSR1 => true,
                libc::SIGINT | libc::SIGQUIT => signal.sent || !was_ignored(signal.number),
                number => !was_ignored(number),
            };
            if is_handled {
                return Some(signal);
            }
        }
    }

    fn read(&self) -> Option<Signal> {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut bytes = [0u8; SIZE];
        let got = io::Read::read(&mut &self.file, &mut bytes).ok()?;
        if got != SIZE {
            return None;
        }
        // SAFETY: the buffer has the size of the structure, which consists of integers, so all bits
        // are valid; the read does not require alignment.
        let info = unsafe { bytes.as_ptr().cast::<libc::signalfd_siginfo>().read_unaligned() };
        // SI_KERNEL, from the terminal, is positive; SI_USER and others of kill(2) are not.
        Some(Signal { number: info.ssi_signo as i32, sent: info.ssi_code <= 0 })
    }
}
