//! Descriptors of processes (pidfd_open(2)).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::Duration;

use crate::sys::system::{check, poll};

/// A process, by a descriptor that a later process with its id does not get.
#[derive(Debug)]
pub(crate) struct ProcessFd(File);

impl ProcessFd {
    /// Opens a process.
    ///
    /// # Errors
    ///
    /// pidfd_open(2): ESRCH if there is no such process, EINVAL for the id of a thread, ENOSYS before
    /// Linux 5.3, EMFILE.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: takes numbers; the new descriptor is closed on exec.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = check(fd as libc::c_int)?;
        // SAFETY: the kernel has just created this descriptor; nothing else owns it.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// Returns the descriptor, which is readable once the process has exited.
    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// True if all threads of the process have exited.
    pub(crate) fn has_exited(&self) -> bool {
        let fd = self.0.as_raw_fd();
        let mut polled = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        poll(&mut polled, Some(Duration::ZERO)).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_of_process_is_seen_before_it_is_reaped() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn();
        let child = child.as_mut().expect("it runs");
        let Ok(process) = ProcessFd::open(child.id()) else {
            return eprintln!("SKIPPED: no pidfd_open(2) here");
        };
        assert!(!process.has_exited());
        drop(child.stdin.take());
        while !process.has_exited() {
            std::thread::yield_now();
        }
        child.wait().expect("it ends");
        assert!(process.has_exited());
    }
}
