//! The output of the stream. Its errors do not affect the command: the first one ends the recording
//! only.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context;
use nprof_stream::escape::escaped;
use nprof_stream::writer::Totals;
use nprof_stream::{Encoding, Record, Writer};

use crate::convert::dictionary::Sink;
use crate::session::workload::Workload;
use crate::sys::{self, Signals};

/// The bytes that a pipe takes without blocking once poll(2) reports it writable (PIPE_BUF).
const PIPE_ROOM: usize = 4096;

/// The destination of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Stdout,
    File(PathBuf),
    /// A file named after the process id of the command.
    ByPid,
}

impl Destination {
    /// Chooses the destination by the option `-o`.
    ///
    /// # Errors
    ///
    /// If binary would go to a terminal.
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

    /// Chooses the destination by the option `-o` and the kind of standard output.
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

    /// Returns the name of the file. None if the user chose it.
    pub(crate) fn chosen_name(&self, pid: u32) -> Option<String> {
        (*self == Self::ByPid).then(|| shown(&by_pid(pid)))
    }

    /// Opens it if it is a named pipe, which waits for a reader. None for another kind.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn open_early(&self) -> anyhow::Result<Option<OpenOutput>> {
        let Self::File(path) = self else { return Ok(None) };
        let is_pipe = path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
        // The process id only names files that we choose ourselves.
        is_pipe.then(|| self.open(0)).transpose()
    }

    /// Opens it without truncating a file: the command may still fail to start.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, or is a terminal.
    pub(crate) fn open(&self, pid: u32) -> anyhow::Result<OpenOutput> {
        let path = match self {
            Self::Stdout => {
                let file = sys::standard_output().context("standard output")?;
                return Ok(OpenOutput { file, ours: false, created: None });
            }
            Self::File(path) => path.clone(),
            Self::ByPid => by_pid(pid),
        };
        // A file that we create is removed again if the command cannot be executed.
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

/// Returns a path with control characters escaped, for a terminal.
fn shown(path: &Path) -> String {
    escaped(path.as_os_str().as_encoded_bytes())
}

/// An open output before the first write.
#[derive(Debug)]
pub(crate) struct OpenOutput {
    file: File,
    /// True if we opened it, and so truncate it.
    ours: bool,
    /// The path, if the file did not exist before.
    created: Option<PathBuf>,
}

impl OpenOutput {
    /// Removes the file if it did not exist before.
    pub(crate) fn abandon(self) {
        if let Some(path) = self.created {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Truncates the file and begins the stream.
    ///
    /// # Errors
    ///
    /// If the file cannot be truncated.
    pub(crate) fn begin(self, workload: Rc<Workload>, signals: Rc<Signals>) -> io::Result<Stream> {
        let kind = self.file.metadata()?.file_type();
        // Standard output may be a file that the shell appends to.
        if self.ours && kind.is_file() {
            self.file.set_len(0)?;
        }
        let may_block = kind.is_fifo() || kind.is_socket() || kind.is_char_device();
        let written_ns = Rc::new(Cell::new(0));
        let output = Output {
            file: self.file,
            may_block,
            workload,
            signals,
            written_ns: written_ns.clone(),
        };
        let writer = Writer::new(output, Encoding::Binary);
        let order = SampleOrder::default();
        Ok(Stream { writer, has_reader: may_block, error: None, written_ns, order })
    }
}

/// The output, which handles signals while it waits for a reader.
#[derive(Debug)]
struct Output {
    file: File,
    may_block: bool,
    workload: Rc<Workload>,
    signals: Rc<Signals>,
    /// The time that writes took.
    written_ns: Rc<Cell<u64>>,
}

impl Output {
    fn wait_for_room(&self) -> io::Result<()> {
        loop {
            let mut polled = [
                libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLOUT, revents: 0 },
                libc::pollfd { fd: self.signals.fd(), events: libc::POLLIN, revents: 0 },
            ];
            sys::poll(&mut polled, None)?;
            if polled[0].revents != 0 {
                return Ok(());
            }
            self.workload.handle_signals(&self.signals);
            if self.workload.is_aborted() {
                return Err(io::Error::other("the reader does not read"));
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let begin_ns = sys::monotonic_ns();
        let written = self.write_once(bytes);
        let taken_ns = sys::monotonic_ns().saturating_sub(begin_ns);
        self.written_ns.set(self.written_ns.get().saturating_add(taken_ns));
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output {
    /// Writes the beginning of `bytes`, and returns its length.
    fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Only a file that a reader may stall needs the wait; a write to others always completes.
        if !self.may_block {
            return self.file.write(bytes);
        }
        self.wait_for_room()?;
        // A longer write could block although poll(2) reported the pipe writable.
        self.file.write(&bytes[..bytes.len().min(PIPE_ROOM)])
    }
}

/// The order of samples by time.
#[derive(Debug, Default)]
struct SampleOrder {
    newest_ns: u64,
    late: u64,
}

impl SampleOrder {
    fn take(&mut self, record: &Record<'_>) {
        if let Record::Sample(sample) = record {
            self.late += u64::from(sample.time < self.newest_ns);
            self.newest_ns = self.newest_ns.max(sample.time);
        }
    }
}

/// The stream. After a failed write it drops all records.
#[derive(Debug)]
pub(crate) struct Stream {
    writer: Writer<Output>,
    /// True if another program reads it, which may be slow.
    pub(crate) has_reader: bool,
    error: Option<io::Error>,
    written_ns: Rc<Cell<u64>>,
    order: SampleOrder,
}

impl Stream {
    /// Returns the time that writes have taken so far, in ns.
    pub(crate) fn written_ns(&self) -> u64 {
        self.written_ns.get()
    }

    /// Writes out buffered records.
    pub(crate) fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.writer.flush().err();
        }
    }

    /// True if a write has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Returns the counts of the segment so far.
    pub(crate) fn totals(&self) -> Totals {
        self.writer.totals()
    }

    /// Returns the number of samples older than one before them.
    pub(crate) fn late(&self) -> u64 {
        self.order.late
    }

    /// Ends the stream.
    ///
    /// # Errors
    ///
    /// The first error of a write, after which the stream is incomplete.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self.error {
            Some(error) => Err(error),
            None => self.writer.finish().map(drop),
        }
    }
}

impl Sink for Stream {
    fn take(&mut self, record: &Record<'_>) {
        self.order.take(record);
        if self.error.is_none() {
            self.error = self.writer.write(record).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_stream::{EventId, Extras, NodeId, Sample, TaskId};

    #[test]
    fn each_sample_of_a_late_record_is_late() {
        let mut order = SampleOrder::default();
        for time in [5, 7, 6, 6, 7, 8] {
            let (event, task, node) = (EventId::NONE, TaskId::NONE, NodeId::NONE);
            let (cpu, weight, count, extras) = (0, 1, 1, Extras::default());
            let sample = Sample { time, event, task, cpu, node, weight, count, extras };
            order.take(&Record::Sample(sample));
        }
        assert_eq!(order.late, 2);
    }

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
