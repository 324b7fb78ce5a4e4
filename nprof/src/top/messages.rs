//! Keeps the messages of programs while a screen is drawn, to print them after it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};

use anyhow::Context;
use nprof_cli::stage;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{read, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::programs::NPROF;

/// The bytes that are kept; of more, the last.
const KEPT: usize = 64 << 10;

/// The output of programs.
pub(super) struct Messages {
    /// The end that the programs write to.
    write: OwnedFd,
    /// Closed when the last program has ended. A process that one of them started may still hold the pipe.
    stop: OwnedFd,
    reader: JoinHandle<Output>,
}

/// The last bytes of an output.
#[derive(Default)]
struct Output {
    bytes: VecDeque<u8>,
    is_cut: bool,
}

impl Messages {
    /// Begins to keep messages.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub(super) fn new() -> anyhow::Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).context("cannot create a pipe");
        let ((messages, write), (stopped, stop)) = (pipe()?, pipe()?);
        let reader = thread::spawn(move || collect(&messages, &stopped));
        Ok(Self { write, stop, reader })
    }

    /// Returns a descriptor for the output of a program.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub(super) fn output(&self) -> io::Result<OwnedFd> {
        self.write.try_clone()
    }

    /// Prints the messages, when all programs have ended.
    pub(super) fn print(self) {
        let Self { write, stop, reader } = self;
        drop((write, stop));
        let Ok(output) = reader.join() else { return };
        if output.is_cut {
            stage::warn(NPROF, "these are the last lines of output:");
        }
        let (first, second) = output.bytes.as_slices();
        // Nothing can be reported about a closed standard error.
        let _ = io::stderr().write_all(first).and_then(|()| io::stderr().write_all(second));
    }
}

/// Reads until all writers have ended, or nothing is left after the stop.
fn collect(messages: &OwnedFd, stopped: &OwnedFd) -> Output {
    let mut output = Output::default();
    let mut buffer = [0; 4096];
    // A process that writes without end must not keep this one alive.
    let mut left = KEPT;
    while left > 0 {
        let mut files = [PollFd::new(messages, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        let polled = retry_on_intr(|| poll(&mut files, None));
        if polled.is_err() || files[0].revents().is_empty() {
            break;
        }
        let is_stopped = !files[1].revents().is_empty();
        match retry_on_intr(|| read(messages, &mut buffer)) {
            Ok(count @ 1..) => {
                output.add(&buffer[..count]);
                if is_stopped {
                    left = left.saturating_sub(count);
                }
            }
            _ => break,
        }
    }
    output
}

impl Output {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let excess = self.bytes.len().saturating_sub(KEPT);
        self.bytes.drain(..excess);
        self.is_cut |= excess > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn collected(bytes: &[u8]) -> Output {
        let (messages, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let reader = thread::spawn(move || collect(&messages, &stopped));
        let mut write = File::from(write);
        write.write_all(bytes).expect("the pipe is read");
        drop(stop);
        // The pipe is still open, as by a daemon.
        let output = reader.join().expect("it ends");
        drop(write);
        output
    }

    #[test]
    fn last_messages_are_kept_while_the_pipe_is_open() {
        let output = collected(b"one\ntwo\n");
        assert!(output.bytes == *b"one\ntwo\n" && !output.is_cut);
        let output = collected(&[&[b'a'; KEPT][..], b"end"].concat());
        assert!(output.is_cut && output.bytes.len() == KEPT);
        assert!(output.bytes.iter().rev().take(3).eq(b"dne"));
    }
}
