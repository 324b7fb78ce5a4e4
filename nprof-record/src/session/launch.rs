//! Starts the command in two steps: it is forked, then the events are opened for it, then it
//! executes. So its first instruction is sampled.

use std::cell::Cell;
use std::ffi::{CString, OsString};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

use anyhow::Context;

use crate::os::open_error;
use crate::sys::{self, Exit, Signals, Usage};

/// The command, forked and waiting to execute.
#[derive(Debug)]
pub(crate) struct ForkedCommand {
    pub(crate) pid: i32,
    gate: PipeWriter,
    report: PipeReader,
}

impl ForkedCommand {
    /// Forks the command, with this environment or that of the recorder. With `output_to_error` its standard output goes to standard error.
    ///
    /// # Errors
    ///
    /// If no pipe or process can be created, or a word contains a NUL.
    pub(crate) fn fork(
        words: &[OsString],
        environment: Option<&[CString]>,
        output_to_error: bool,
        signals: &Signals,
        descriptors: Option<libc::rlimit>,
    ) -> anyhow::Result<Self> {
        let words: Vec<CString> = words
            .iter()
            .map(|word| CString::new(word.clone().into_vec()))
            .collect::<Result<_, _>>()?;
        let pipe =
            || io::pipe().map_err(|error| open_error::explained("cannot make a pipe", &error));
        // The child waits for a byte from the gate, and reports the errno of a failed execve(2).
        let (gate, opener) = pipe()?;
        let (report, reporter) = pipe()?;
        let start = sys::CommandStart {
            words: &words,
            environment,
            output_to_error,
            gate: gate.as_fd(),
            gate_opener: opener.as_fd(),
            report: reporter.as_fd(),
            signals,
            descriptors,
        };
        let pid = sys::fork_at_gate(&start).context("cannot start a process")?;
        Ok(Self { pid, gate: opener, report })
    }

    /// Makes it execute, and waits for that.
    ///
    /// # Errors
    ///
    /// Those of execve(2).
    pub(crate) fn execute(mut self) -> io::Result<Child> {
        self.gate.write_all(&[1])?;
        let mut errno = [0; 4];
        match self.report.read_exact(&mut errno) {
            Ok(()) => {
                let _ = sys::reap(self.pid, true);
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
            }
            // execve(2) closed the pipe without a report: it has succeeded.
            Err(_) => Ok(Child { pid: self.pid, ended: Cell::default() }),
        }
    }

    /// Ends it without executing.
    pub(crate) fn cancel(self) {
        let Self { pid, gate, report } = self;
        drop((gate, report));
        let _ = sys::reap(pid, true);
    }
}

/// The command, running or exited.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: i32,
    ended: Cell<Option<(Exit, Usage)>>,
}

impl Child {
    /// Returns its exit status and resource usage, with the children it waited for. None while it
    /// runs.
    pub(crate) fn ended(&self) -> Option<(Exit, Usage)> {
        self.ended.get()
    }

    /// Reaps it if it has exited.
    pub(crate) fn notice_end(&self) {
        if self.ended().is_none()
            && let Ok(ended @ Some(_)) = sys::reap(self.pid, false)
        {
            self.ended.set(ended);
        }
    }
}
