//! Where the stream goes. Trouble with it never is the command's: the first error ends the
//! recording, not the command.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context;
use nprof_stream::escape::escaped;
use nprof_stream::writer::Totals;
use nprof_stream::{Record, Spelling, Writer};

use crate::convert::dictionary::Sink;
use crate::session::workload::Workload;
use crate::sys::{self, Signals};

/// What can be written to a pipe at once without waiting, once it has any room (PIPE_BUF).
const PIPE_ROOM: usize = 4096;

/// Where the stream is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Stdout,
    File(PathBuf),
    /// A file named after the command's process.
    ByPid,
}

impl Destination {
    /// Decides by the option `-o`.
    ///
    /// # Errors
    ///
    /// When binary would go to a terminal.
    pub(crate) fn choose(
        option: Option<&Path>,
        stdout_is_terminal: bool,
    ) -> Result<Self, &'static str> {
        match option {
            Some(path) if path != Path::new("-") => Ok(Self::File(path.to_owned())),
            Some(_) if stdout_is_terminal => Err(
                "-o -: the stream is binary and standard output is a terminal; pipe it, or give a file",
            ),
            None if stdout_is_terminal => Ok(Self::ByPid),
            _ => Ok(Self::Stdout),
        }
    }

    /// Decides by the option `-o` and what standard output is.
    ///
    /// # Errors
    ///
    /// As [`Destination::choose`].
    pub(crate) fn for_option(option: Option<&Path>) -> Result<Self, &'static str> {
        let destination = Self::choose(option, io::stdout().is_terminal())?;
        if destination == Self::Stdout && sys::was_closed(1) {
            return Err("standard output is closed; give a file with -o");
        }
        Ok(destination)
    }

    /// The file's name, where it was not the user who chose it.
    pub(crate) fn chosen_name(&self, pid: u32) -> Option<String> {
        (*self == Self::ByPid).then(|| shown(&by_pid(pid)))
    }

    /// Opens it if it is a pipe in the file system, which waits until it is read.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub(crate) fn open_early(&self) -> anyhow::Result<Option<OpenOutput>> {
        let Self::File(path) = self else { return Ok(None) };
        let is_pipe = path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
        is_pipe.then(|| self.open(0)).transpose()
    }

    /// Opens it, without touching yet what is in a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be written, or is a terminal.
    pub(crate) fn open(&self, pid: u32) -> anyhow::Result<OpenOutput> {
        let path = match self {
            Self::Stdout => {
                let file = sys::standard_output().context("standard output")?;
                return Ok(OpenOutput { file, ours: false, created: None });
            }
            Self::File(path) => path.clone(),
            Self::ByPid => by_pid(pid),
        };
        let is_new = !path.exists();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = opened.with_context(|| format!("cannot write {}", shown(&path)))?;
        anyhow::ensure!(!file.is_terminal(), "{}: a terminal; the stream is binary", shown(&path));
        Ok(OpenOutput { file, ours: true, created: is_new.then_some(path) })
    }
}

fn by_pid(pid: u32) -> PathBuf {
    PathBuf::from(format!("{pid}.nprof"))
}

/// A path as it may stand on a terminal.
fn shown(path: &Path) -> String {
    escaped(path.as_os_str().as_encoded_bytes())
}

/// An output that nothing has been written to.
#[derive(Debug)]
pub(crate) struct OpenOutput {
    file: File,
    /// Whether we opened it: what was in it goes.
    ours: bool,
    /// The path, if there was no such file before.
    created: Option<PathBuf>,
}

impl OpenOutput {
    /// Leaves things as they were.
    pub(crate) fn abandon(self) {
        if let Some(path) = self.created {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Begins to write over what was there.
    ///
    /// # Errors
    ///
    /// When the file cannot be emptied.
    pub(crate) fn begin(self, workload: Rc<Workload>, signals: Rc<Signals>) -> io::Result<Stream> {
        let kind = self.file.metadata()?.file_type();
        if self.ours && kind.is_file() {
            self.file.set_len(0)?;
        }
        let may_block = kind.is_fifo() || kind.is_socket() || kind.is_char_device();
        let output = Output { file: self.file, may_block, workload, signals };
        Ok(Stream { writer: Writer::new(output, Spelling::Binary), error: None })
    }
}

/// The output, which attends to signals while it has to wait.
#[derive(Debug)]
struct Output {
    file: File,
    may_block: bool,
    workload: Rc<Workload>,
    signals: Rc<Signals>,
}

impl Output {
    fn wait_for_room(&self) -> io::Result<()> {
        loop {
            let mut polled = [
                libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLOUT, revents: 0 },
                libc::pollfd { fd: self.signals.fd(), events: libc::POLLIN, revents: 0 },
            ];
            sys::poll(&mut polled, -1)?;
            if polled[0].revents != 0 {
                return Ok(());
            }
            self.workload.handle_signals(&self.signals);
            if self.workload.is_aborted() {
                return Err(io::Error::other("nobody reads the stream"));
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.may_block {
            return self.file.write(bytes);
        }
        self.wait_for_room()?;
        self.file.write(&bytes[..bytes.len().min(PIPE_ROOM)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The stream being written. Once a write has failed, no more are tried.
#[derive(Debug)]
pub(crate) struct Stream {
    writer: Writer<Output>,
    error: Option<io::Error>,
}

impl Stream {
    /// Makes what was written so far visible.
    pub(crate) fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.writer.flush().err();
        }
    }

    /// Whether a write failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// What the segment holds so far.
    pub(crate) fn totals(&self) -> Totals {
        self.writer.totals()
    }

    /// Flushes; the first error there was, if there was one.
    ///
    /// # Errors
    ///
    /// Why the stream is incomplete.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self.error {
            Some(error) => Err(error),
            None => self.writer.finish().map(drop),
        }
    }
}

impl Sink for Stream {
    fn take(&mut self, record: &Record<'_>) {
        if self.error.is_none() {
            self.error = self.writer.write(record).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_is_refused_on_a_terminal() {
        let file = Path::new("x");
        let dash = Path::new("-");
        assert_eq!(Destination::choose(Some(file), true), Ok(Destination::File("x".into())));
        assert_eq!(Destination::choose(Some(dash), false), Ok(Destination::Stdout));
        assert!(Destination::choose(Some(dash), true).is_err());
        assert_eq!(Destination::choose(None, true), Ok(Destination::ByPid));
        assert_eq!(Destination::choose(None, false), Ok(Destination::Stdout));
    }
}
