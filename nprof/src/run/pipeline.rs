//! nprof-record and nprof-symbolize as one pipe into a kept file, and the report of that.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;

use anyhow::Context;
use nprof_cli::{shell, stage};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{LocalModes, tcgetattr};

use crate::programs::NPROF;
use crate::programs::{not_started, tool};
use crate::run::kept_file::KeptFile;
use crate::run::request::{Request, RunArgs};
use crate::run::signals::{Requests, Role};

/// The exit status if nprof itself fails, as that of nprof-record.
pub(crate) const FAILURE: u8 = 125;

/// The number of functions in the report.
const ROWS: &str = "15";

/// Runs `nprof run`, and returns the exit status of the recorded command.
pub(crate) fn main(args: &RunArgs) -> ExitCode {
    match Request::of(args).and_then(|request| record_and_report(&request)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            stage::warn(NPROF, &stage::chain(&*error));
            ExitCode::from(FAILURE)
        }
    }
}

/// Records, reports, and returns the exit status of the recorded command.
///
/// # Errors
///
/// If there is no recording.
pub(crate) fn record_and_report(request: &Request) -> anyhow::Result<u8> {
    let requests = Requests::catch().context("cannot handle signals")?;
    let kept = KeptFile::create(request)?;
    let recorded = record(request, &kept, &requests);
    let (is_empty, is_regular) = (kept.remove_if_empty(), kept.is_regular());
    let (recorded, path) = (recorded?, kept.path);
    if is_empty || recorded.symbolized == Symbolized::Nothing {
        // nprof-record or nprof-symbolize failed, and reported why.
        return Ok(recorded.status_with(false));
    }
    if !is_regular {
        // A pipe or a device: nothing is left to read.
        return Ok(recorded.status_with(recorded.symbolized == Symbolized::All));
    }
    let is_reported = recorded.symbolized == Symbolized::All && report(&path, &requests)?;
    print_next(&path);
    Ok(recorded.status_with(is_reported))
}

/// The results of a recording.
struct Recorded {
    /// The exit status of nprof-record: that of the command.
    status: u8,
    symbolized: Symbolized,
}

/// The result of nprof-symbolize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symbolized {
    /// There was no stream: nothing was recorded.
    Nothing,
    /// It failed.
    Failed,
    /// The whole stream.
    All,
}

impl Recorded {
    /// Returns the exit status of the command. A report that failed does not hide it.
    fn status_with(&self, is_reported: bool) -> u8 {
        if self.status == 0 && !is_reported { FAILURE } else { self.status }
    }
}

/// Records into a file, symbolized while the program runs.
fn record(request: &Request, kept: &KeptFile, requests: &Requests) -> anyhow::Result<Recorded> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).context("cannot create a pipe")?;
    let record = recorder(request, &write);
    thread::scope(|scope| {
        let symbolizing = scope.spawn(move || symbolize(read, kept, requests));
        let recorded = start(record, "nprof-record").and_then(|mut child| {
            requests.wait(Role::Recorder, &mut child).context("nprof-record")
        });
        // The end of the stream for nprof-symbolize, which must be waited for in any case.
        drop(write);
        let symbolized = symbolizing.join().unwrap_or(Ok(Symbolized::Failed));
        Ok(Recorded { status: status(recorded?), symbolized: symbolized? })
    })
}

/// Returns the command that records into the pipe of which this is the end for writing.
pub(crate) fn recorder(request: &Request, write: &OwnedFd) -> Command {
    let mut record = tool("nprof-record");
    if !request.options.iter().any(|option| option == "-q" || option == "--quiet") {
        // The report has the facts of the summary.
        record.arg("-q");
    }
    // Standard output belongs to the command. nprof-record opens the pipe of this process by its
    // path: a descriptor that it inherits would also be inherited by the command.
    record.arg("-o").arg(format!("/proc/{}/fd/{}", std::process::id(), write.as_raw_fd()));
    record.args(&request.options).envs(request.variables.iter().map(|(name, value)| (name, value)));
    if let Some(directory) = &request.directory {
        // Of the paths of the recorder, only a relative one of an event depends on it.
        record.current_dir(directory);
    }
    if !request.command.is_empty() {
        record.arg("--").args(&request.command);
    }
    record
}

/// Symbolizes a stream into a file.
fn symbolize(stream: OwnedFd, kept: &KeptFile, requests: &Requests) -> anyhow::Result<Symbolized> {
    if !has_stream(&stream)? {
        return Ok(Symbolized::Nothing);
    }
    let mut symbolize = tool("nprof-symbolize");
    symbolize.stdin(stream).stdout(kept.begin()?);
    set_apart(&mut symbolize);
    let mut child = start(symbolize, "nprof-symbolize")?;
    let status = requests.wait(Role::Reporter, &mut child).context("nprof-symbolize")?;
    Ok(if status.success() { Symbolized::All } else { Symbolized::Failed })
}

/// Waits for the first bytes of a recording. False if it ends without any: the recorder has failed and
/// reported why, and nprof-symbolize has nothing to add about an empty stream.
///
/// # Errors
///
/// If the kernel refuses.
pub(crate) fn has_stream(stream: &OwnedFd) -> anyhow::Result<bool> {
    let mut first = [PollFd::new(stream, PollFlags::IN)];
    retry_on_intr(|| poll(&mut first, None)).context("cannot wait for nprof-record")?;
    Ok(first[0].revents().contains(PollFlags::IN))
}

/// Gives a program a process group of its own: a signal that the terminal or timeout(1) sends to the
/// group of nprof ends the recording, and not the report. Not where the terminal stops programs of other
/// groups that write to it (`stty tostop`).
fn set_apart(command: &mut Command) {
    let modes = tcgetattr(io::stderr()).map(|terminal| terminal.local_modes);
    if !modes.is_ok_and(|modes| modes.contains(LocalModes::TOSTOP)) {
        command.process_group(0);
    }
}

/// Starts a tool.
///
/// # Errors
///
/// If it cannot be started.
pub(crate) fn start(mut command: Command, name: &str) -> anyhow::Result<Child> {
    command.spawn().with_context(|| not_started(name))
}

/// Returns an exit status as shells do: 128+N for signal N.
pub(crate) fn status(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILURE)
}

/// Prints the functions with the most time on standard error. True if that succeeded.
fn report(path: &Path, requests: &Requests) -> anyhow::Result<bool> {
    let stderr = io::stderr().as_fd().try_clone_to_owned().context("standard error")?;
    let mut flat = tool("nprof-flat");
    flat.args(["-n", ROWS]).arg(absolute(path)).stdout(stderr);
    set_apart(&mut flat);
    let mut child = start(flat, "nprof-flat")?;
    Ok(requests.wait(Role::Reporter, &mut child).context("nprof-flat")?.success())
}

/// Returns a path that no option and no `-` can be confused with.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Prints the place of the recording and the commands that go on from there.
pub(crate) fn print_next(path: &Path) {
    let file = String::from_utf8_lossy(&shell::quoted([path])).into_owned();
    stage::warn(NPROF, &format!("recorded in {file}; more reports:"));
    for (command, about) in [
        (format!("nprof paths {file}"), "call paths with the most time"),
        (format!("nprof flat --by line {file}"), "source lines"),
        (
            format!("nprof paths --format html -o nprof.html {file}"),
            "a page for browsers: flame graph, functions, timeline",
        ),
    ] {
        // Nothing can be reported about a closed standard error.
        let _ = writeln!(io::stderr(), "    {command}  # {about}");
    }
}
