//! How a program behaves as a stage of a pipe: operands, standard output, messages, exit status.

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

/// How a stage ended, and so its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done: 0.
    Done,
    /// The answer is no: 1.
    No,
    /// Done, but the input was incomplete: 3.
    Incomplete,
    /// Not enough data to decide: 4.
    Undecided,
}

/// The exit status of a stage that could not do its work.
pub const TROUBLE: u8 = 2;

/// The exit status of a stage that was interrupted, as a shell has it.
const INTERRUPTED: i32 = 130;

/// Why a stage cannot have its input or output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operand cannot be opened.
    #[error("{name}")]
    Open {
        /// The operand.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file would be written over while it is read.
    #[error("{name}: is an input as well: write to another file")]
    OutputIsInput {
        /// The output.
        name: String,
    },
    /// A stream would be read from a terminal.
    #[error(
        "standard input is a terminal: give a file, or pipe a stream in (nprof-record -o - -- CMD | ...)"
    )]
    InputIsTerminal,
    /// A binary stream would be written to a terminal.
    #[error("a binary stream is not for a terminal: use -o FILE or a pipe")]
    OutputIsTerminal,
}

/// Runs a stage and says how it ended: prints the error, if there is one, as
/// `tool: what: why`. A closed pipe is a success.
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
    if is_broken_pipe(&*error) {
        return ExitCode::SUCCESS;
    }
    warn(tool, &chain(&*error));
    ExitCode::from(TROUBLE)
}

/// Prints a message on standard error as `tool: message`, safe for a terminal.
pub fn warn(tool: &str, message: &str) {
    warn_escaped(tool, &escaped(message.as_bytes()));
}

/// Prints a message as [`warn`] does, of which all that comes from outside is escaped already: by
/// whom had it as bytes.
pub fn warn_escaped(tool: &str, message: &str) {
    // Where standard error is gone there is nobody left to tell.
    let _ = writeln!(io::stderr(), "{tool}: {message}");
}

/// An error and what caused it, in one line.
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

/// Whether an error was caused by a reader that went away.
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

/// An operand, opened for reading.
#[derive(Debug)]
pub struct Input {
    name: String,
    file: File,
}

impl Input {
    /// The operand as the user gave it, `standard input` for `-` or none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells whether there is more to read; `None` when the system has no descriptor for that.
    pub fn ready(&self) -> Option<Ready> {
        self.file.try_clone().ok().map(Ready)
    }

    /// What comes from here on, which reading it does not take away; `None` unless it is a file.
    pub fn ahead(&self) -> Option<impl Read> {
        let is_file = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let file = self.file.try_clone().ok().filter(|_| is_file)?;
        let at = (&file).stream_position().ok()?;
        Some(Ahead { file, at })
    }
}

/// Whether reading an input would wait.
#[derive(Debug)]
pub struct Ready(File);

impl Ready {
    /// Whether there is more to read, or the end; also where that cannot be told.
    pub fn is_ready(&self) -> bool {
        let mut files = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut files, Some(&now)), Ok(0))
    }
}

/// A file that is read from a position of its own.
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

/// Opens an operand; `-` or none is standard input. A stage that reads from a pipe outlives the
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
            if file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
                outlive_interrupt();
            }
            Ok(Input { name, file })
        }
        Some(path) => {
            let name = path.display().to_string();
            let file = File::open(path)
                .and_then(|file| match file.metadata()?.is_dir() {
                    true => Err(io::ErrorKind::IsADirectory.into()),
                    false => Ok(file),
                })
                .map_err(|source| Error::Open { name: name.clone(), source })?;
            Ok(Input { name, file })
        }
    }
}

/// Lets the first interrupt pass, since Ctrl-C reaches every stage of a pipe: the recorder at
/// its head ends its stream then, and what was recorded is wanted. The second one ends us.
fn outlive_interrupt() {
    let interrupted = Arc::new(AtomicBool::new(false));
    // Should it not be possible, an interrupt ends us as ever. In this order, the first one is
    // not yet seen as the second.
    let _ = flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(&interrupted));
    let _ = flag::register(SIGINT, interrupted);
}

/// Where a stage writes to. Not buffered: a stream's writer and a report gather what they write.
#[derive(Debug)]
pub struct Output {
    file: File,
}

impl Output {
    /// Whether it is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.file.is_terminal()
    }

    /// How many columns a terminal has: what COLUMNS says, or what the terminal itself says; 80
    /// where both say 0, as on a serial line. `None` for what is no terminal.
    pub fn width(&self) -> Option<usize> {
        self.extent("COLUMNS", |size| size.ws_col, 80)
    }

    /// How many lines a terminal has, likewise; 24 where nobody knows.
    pub fn height(&self) -> Option<usize> {
        self.extent("LINES", |size| size.ws_row, 24)
    }

    fn extent(&self, variable: &str, of: fn(Winsize) -> u16, usual: usize) -> Option<usize> {
        if !self.is_terminal() {
            return None;
        }
        let told = std::env::var(variable).ok().and_then(|number| number.parse().ok());
        let asked = || tcgetwinsize(&self.file).ok().map(|size| usize::from(of(size)));
        let known = |&extent: &usize| extent > 0;
        Some(told.filter(known).or_else(|| asked().filter(known)).unwrap_or(usual))
    }

    /// Refuses a terminal as the place for a binary stream.
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

/// Opens what a stage writes to: a file that is made anew, or standard output for `-` or none.
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
    let identity = |path: &Path| {
        let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((file.dev(), file.ino()))
    };
    let Some((path, written)) = output.and_then(|path| Some((path, identity(path)?))) else {
        return Ok(());
    };
    if inputs.into_iter().flatten().any(|input| identity(input) == Some(written)) {
        return Err(Error::OutputIsInput { name: path.display().to_string() });
    }
    Ok(())
}

/// A descriptor of our own for one of the standard streams, past the line buffer std puts
/// before them.
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
    fn a_closed_pipe_is_found_under_other_errors() {
        assert!(is_broken_pipe(&Outer(io::ErrorKind::BrokenPipe.into())));
        assert!(!is_broken_pipe(&Outer(io::ErrorKind::StorageFull.into())));
    }

    #[test]
    fn a_message_tells_every_cause() {
        let error = Outer(io::Error::other("no space"));
        assert_eq!(chain(&error), "writing the report: no space");
    }
}
