//! A program as a stage of a pipe: operands, standard output, messages, exit status.

use std::error::Error as StdError;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nprof_stream::escape::escaped;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{Winsize, tcgetwinsize};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

/// The result of a stage, and its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done: status 0.
    Done,
    /// The answer is no: status 1.
    No,
    /// Done, but the input was truncated or damaged: status 3.
    Incomplete,
    /// Not enough data to decide: status 4.
    Undecided,
}

/// The exit status of a stage that could not do its work.
pub const FAILURE: u8 = 2;

/// The exit status of an interrupted stage: 128 + SIGINT, as shells report it.
const INTERRUPTED: i32 = 130;

/// The reason why a stage cannot open its input or output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operand cannot be opened.
    #[error("{name}")]
    Open {
        /// The operand.
        name: String,
        /// The error of open(2).
        source: io::Error,
    },
    /// The output is also an input: opening it would truncate the input.
    #[error("{name} is also an input; write to another file")]
    OutputIsInput {
        /// The output.
        name: String,
    },
    /// The stream would be read from a terminal.
    #[error(
        "standard input is a terminal; name a file or pipe a stream in (nprof-record -o - -- CMD | ...)"
    )]
    InputIsTerminal,
    /// A binary stream would be written to a terminal.
    #[error("refusing to write a binary stream to a terminal; use -o FILE or a pipe")]
    OutputIsTerminal,
}

/// Runs a stage and returns its exit status; prints an error as `tool: cause`. A closed pipe is a
/// success.
pub fn run<E: Into<Box<dyn StdError>>>(
    tool: &str,
    body: impl FnOnce() -> Result<Outcome, E>,
) -> ExitCode {
    let error = match body() {
        Ok(Outcome::Done) => return ExitCode::SUCCESS,
        Ok(Outcome::No) => return ExitCode::from(1),
        Ok(Outcome::Incomplete) => return ExitCode::from(3),
        Ok(Outcome::Undecided) => return ExitCode::from(4),
        Err(error) => error.into(),
    };
    // `nprof-flat x | head` must not fail: the reader has all it wanted.
    if is_broken_pipe(&*error) {
        return ExitCode::SUCCESS;
    }
    warn(tool, &chain(&*error));
    ExitCode::from(FAILURE)
}

/// Prints a message on standard error as `tool: message`, safe for a terminal.
pub fn warn(tool: &str, message: &str) {
    warn_escaped(tool, &escaped(message.as_bytes()));
}

/// Prints a message like [`warn`]. The caller has already escaped untrusted bytes.
pub fn warn_escaped(tool: &str, message: &str) {
    // Nothing can be reported about a closed standard error.
    let _ = writeln!(io::stderr(), "{tool}: {message}");
}

/// Returns an error and its causes in one line, separated by colons.
pub fn chain(error: &dyn StdError) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        source = cause.source();
    }
    line
}

/// True if an error was caused by a pipe whose reader closed it.
pub fn is_broken_pipe(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let io_error = error.downcast_ref::<io::Error>();
        if io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return true;
        }
        next = error.source();
    }
    false
}

/// An operand that is open for reading.
#[derive(Debug)]
pub struct Input {
    name: String,
    file: File,
}

impl Input {
    /// Returns the operand as the user gave it, `standard input` for `-` or none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the length in bytes. None if the input is not a regular file.
    pub fn length(&self) -> Option<u64> {
        self.file.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
    }

    /// Returns a check for pending input. None if the process is out of file descriptors.
    pub fn ready(&self) -> Option<Ready> {
        self.file.try_clone().ok().map(Ready)
    }

    /// Returns a second reader from the current position, which leaves this one unchanged. None if
    /// the input is not a regular file.
    pub fn ahead(&self) -> Option<impl Read> {
        let is_file = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        // pread(2) leaves the shared position of the descriptor alone, but pipes do not support it.
        let file = self.file.try_clone().ok().filter(|_| is_file)?;
        let at = (&file).stream_position().ok()?;
        Some(Ahead { file, at })
    }
}

/// A check whether reading an input would block.
#[derive(Debug)]
pub struct Ready(File);

impl Ready {
    /// True if reading would not block: data, the end of input, or an error of poll(2) is pending.
    pub fn is_ready(&self) -> bool {
        let mut files = [PollFd::new(&self.0, PollFlags::IN)];
        // A timeout of 0 makes poll(2) return at once.
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut files, Some(&now)), Ok(0))
    }
}

/// A reader of a file with a position of its own.
struct Ahead {
    file: File,
    at: u64,
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

/// Opens an operand; `-` or none is standard input. A stage that reads from a pipe survives the
/// first interrupt.
///
/// # Errors
///
/// [`Error::Open`], or [`Error::InputIsTerminal`].
pub fn open(operand: Option<&Path>) -> Result<Input, Error> {
    match operand.filter(|path| path.as_os_str() != "-") {
        None => {
            let stdin = io::stdin();
            if stdin.is_terminal() {
                return Err(Error::InputIsTerminal);
            }
            let name = "standard input".to_owned();
            let file = duplicate(stdin.as_fd(), &name)?;
            // Only in a pipe is there a producer that reacts to Ctrl-C and ends the input.
            if file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
                outlive_interrupt();
            }
            Ok(Input { name, file })
        }
        Some(path) => {
            let name = path.display().to_string();
            let file = File::open(path)
                .and_then(refuse_directory)
                .map_err(|source| Error::Open { name: name.clone(), source })?;
            Ok(Input { name, file })
        }
    }
}

/// Returns the file unless it is a directory: open(2) succeeds on one, and the first read(2) would
/// fail later with a less helpful error.
fn refuse_directory(file: File) -> io::Result<File> {
    if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
}

/// Ignores the first interrupt. Ctrl-C reaches every stage of a pipe: the recorder at its head
/// ends its stream then, and the later stages must still process it. The second interrupt kills.
fn outlive_interrupt() {
    let interrupted = Arc::new(AtomicBool::new(false));
    // Handlers run in the order of registration: the flag is set after the first interrupt was
    // checked against it. If registration fails, the default action of SIGINT remains.
    let _ = flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(&interrupted));
    let _ = flag::register(SIGINT, interrupted);
}

/// The output of a stage. Unbuffered: the writer of a stream and the reports have their own buffers.
#[derive(Debug)]
pub struct Output {
    file: File,
}

impl Output {
    /// True if it is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.file.is_terminal()
    }

    /// Returns the columns of a terminal: from COLUMNS, else from the terminal, else 80 (a serial
    /// line reports 0). None if the output is not a terminal.
    pub fn width(&self) -> Option<usize> {
        self.extent("COLUMNS", |size| size.ws_col, 80)
    }

    /// Returns the lines of a terminal in the same way, with LINES and 24.
    pub fn height(&self) -> Option<usize> {
        self.extent("LINES", |size| size.ws_row, 24)
    }

    fn extent(&self, variable: &str, of: fn(Winsize) -> u16, usual: usize) -> Option<usize> {
        if !self.is_terminal() {
            return None;
        }
        let is_known = |&extent: &usize| extent > 0;
        let configured = std::env::var(variable).ok().and_then(|number| number.parse().ok());
        let extent = match configured.filter(is_known) {
            Some(extent) => Some(extent),
            None => tcgetwinsize(&self.file).ok().map(|size| usize::from(of(size))),
        };
        Some(extent.filter(is_known).unwrap_or(usual))
    }

    /// Refuses a terminal, for a binary stream.
    ///
    /// # Errors
    ///
    /// [`Error::OutputIsTerminal`].
    pub fn refuse_terminal(&self) -> Result<(), Error> {
        if self.is_terminal() { Err(Error::OutputIsTerminal) } else { Ok(()) }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens the output of a stage: a file, created or truncated, or standard output for `-` or none.
///
/// # Errors
///
/// [`Error::Open`].
pub fn output(path: Option<&Path>) -> Result<Output, Error> {
    match path.filter(|path| path.as_os_str() != "-") {
        None => Ok(Output { file: duplicate(io::stdout().as_fd(), "standard output")? }),
        Some(path) => {
            let name = path.display().to_string();
            let file = File::create(path).map_err(|source| Error::Open { name, source })?;
            Ok(Output { file })
        }
    }
}

/// Refuses an output that is one of the inputs, before [`output`] empties it.
///
/// # Errors
///
/// [`Error::OutputIsInput`].
pub fn refuse_same_file<'a>(
    inputs: impl IntoIterator<Item = Option<&'a Path>>,
    output: Option<&Path>,
) -> Result<(), Error> {
    // A new output file cannot be an input yet.
    let Some((path, written)) = output.and_then(|path| Some((path, identity(path)?))) else {
        return Ok(());
    };
    if inputs.into_iter().flatten().any(|input| identity(input) == Some(written)) {
        return Err(Error::OutputIsInput { name: path.display().to_string() });
    }
    Ok(())
}

/// Returns device and inode of a regular file. None for others: two names of /dev/null are no conflict.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some((file.dev(), file.ino()))
}

/// Duplicates a descriptor of a standard stream, to bypass the line buffer of `std::io::stdout`.
fn duplicate(fd: BorrowedFd<'_>, name: &str) -> Result<File, Error> {
    let owned = fd.try_clone_to_owned();
    owned.map(File::from).map_err(|source| Error::Open { name: name.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("writing the report")]
    struct Outer(#[source] io::Error);

    #[test]
    fn broken_pipe_is_found_below_other_errors() {
        assert!(is_broken_pipe(&Outer(io::ErrorKind::BrokenPipe.into())));
        assert!(!is_broken_pipe(&Outer(io::ErrorKind::StorageFull.into())));
    }

    #[test]
    fn message_has_every_cause() {
        let error = Outer(io::Error::other("no space"));
        assert_eq!(chain(&error), "writing the report: no space");
    }
}
