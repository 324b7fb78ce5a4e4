//! Signals as something to be read.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use crate::sys::startup::was_ignored;
use crate::sys::system::check;

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
    pub(super) before: libc::sigset_t,
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
    /// Blocks SIGCHLD, SIGINT, SIGQUIT, SIGTERM and SIGHUP, to be read from here instead.
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
            for signal in [libc::SIGCHLD, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP]
            {
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

    /// The next signal that came, if one did. Those that were ignored when we were started, as
    /// nohup(1) does it, go on being ignored. But shells start what is to run in the background
    /// with SIGINT and SIGQUIT ignored, and scripts end such a recording by sending one.
    pub(crate) fn next(&self) -> Option<Signal> {
        loop {
            let signal = self.read()?;
            let is_meant = match signal.number {
                libc::SIGCHLD => true,
                libc::SIGINT | libc::SIGQUIT => signal.sent || !was_ignored(signal.number),
                number => !was_ignored(number),
            };
            if is_meant {
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
        // SAFETY: the buffer is as large as the structure, which is made of integers; it is
        // read without regard to alignment.
        let info = unsafe { bytes.as_ptr().cast::<libc::signalfd_siginfo>().read_unaligned() };
        Some(Signal { number: info.ssi_signo as i32, sent: info.ssi_code <= 0 })
    }
}
