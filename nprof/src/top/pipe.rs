//! nprof-record, nprof-symbolize and nprof-top as one pipe.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, bail};
use nprof_cli::stage;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::programs::{NPROF, tool};
use crate::run::{KeptFile, has_stream, print_next, recorder, start, status};
use crate::top::messages::Messages;
use crate::top::request::{TopArgs, TopRequest};
use crate::top::tee;

/// Runs `nprof top`, and returns its exit status.
pub(crate) fn main(args: &TopArgs) -> ExitCode {
    match TopRequest::of(args).and_then(|request| run(&request)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            stage::warn(NPROF, &stage::chain(&*error));
            ExitCode::from(stage::FAILURE)
        }
    }
}

/// The program that a signal to this process ends: the screen, before it the recorder.
type Front = Arc<Mutex<Option<OwnedFd>>>;

fn run(request: &TopRequest) -> anyhow::Result<u8> {
    if !io::stdout().is_terminal() {
        bail!("standard output is not a terminal; nprof run prints a report");
    }
    let recording = &request.recording;
    let kept = recording.output.as_ref().map(|_| KeptFile::create(recording)).transpose()?;
    let messages = Messages::new()?;
    let shown = record_and_show(request, kept.as_ref(), &messages);
    messages.print();
    let is_empty = kept.as_ref().is_none_or(KeptFile::remove_if_empty);
    let status = shown?;
    if let Some(kept) = kept.filter(|_| !is_empty) {
        print_next(&kept.path);
    }
    Ok(status)
}

/// Records and shows until the user leaves, and returns the exit status.
fn record_and_show(
    request: &TopRequest,
    kept: Option<&KeptFile>,
    messages: &Messages,
) -> anyhow::Result<u8> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).context("cannot create a pipe")?;
    let mut record = recorder(&request.recording, &write);
    // The screen has the terminal and its keys.
    record.stdout(messages.output()?).stderr(messages.output()?);
    if io::stdin().is_terminal() {
        record.stdin(Stdio::null());
    }
    let front = Front::default();
    pass_on_signals(&front).context("cannot handle signals")?;
    let mut child = start(record, "nprof-record")?;
    let process = descriptor(&child)?;
    *locked(&front) = Some(process.try_clone()?);
    thread::scope(|scope| {
        let recording = scope.spawn(move || {
            let status = child.wait();
            // The end of the stream for nprof-symbolize.
            drop(write);
            status
        });
        let shown = show(request, read, kept, messages, &front, &process);
        // It may have ended.
        let _ = pidfd_send_signal(&process, Signal::TERM);
        let recorded = recording.join().unwrap_or(Err(io::ErrorKind::Other.into()));
        let recorded = status(recorded.context("nprof-record")?);
        Ok(match shown? {
            Some(status) => status,
            // nprof-record has reported why nothing was recorded.
            None if recorded == 0 => stage::FAILURE,
            None => recorded,
        })
    })
}

/// Shows a stream until the user leaves, then ends the recorder. Returns the exit status; None if there is no
/// stream.
fn show(
    request: &TopRequest,
    stream: OwnedFd,
    kept: Option<&KeptFile>,
    messages: &Messages,
    front: &Front,
    recorder: &OwnedFd,
) -> anyhow::Result<Option<u8>> {
    if !has_stream(&stream)? {
        return Ok(None);
    }
    let mut symbolize = tool("nprof-symbolize");
    symbolize.stdin(stream).stdout(Stdio::piped()).stderr(messages.output()?);
    let mut symbolizer = start(symbolize, "nprof-symbolize")?;
    let stream = symbolizer.stdout.take().context("nprof-symbolize has no output")?;
    let mut top = tool("nprof-top");
    top.args(&request.options);
    let shown = match kept {
        None => watch(start_with(top, stream), front),
        Some(kept) => {
            let file = kept.begin()?;
            let mut screen = start_with(top, Stdio::piped())?;
            let input: Option<ChildStdin> = screen.stdin.take();
            let input = input.context("nprof-top has no input")?;
            thread::scope(|scope| {
                let copying = scope.spawn(move || tee::copy(stream, file, input));
                let shown = watch(Ok(screen), front);
                let _ = pidfd_send_signal(recorder, Signal::TERM);
                let copied = copying.join().unwrap_or(Err(io::ErrorKind::Other.into()));
                copied.with_context(|| kept.path.display().to_string())?;
                shown
            })
        }
    };
    let _ = pidfd_send_signal(recorder, Signal::TERM);
    symbolizer.wait().context("nprof-symbolize")?;
    shown.map(Some)
}

fn start_with(mut top: std::process::Command, input: impl Into<Stdio>) -> anyhow::Result<Child> {
    top.stdin(input);
    start(top, "nprof-top")
}

/// Waits until the user leaves, and returns the exit status of nprof-top.
fn watch(screen: anyhow::Result<Child>, front: &Front) -> anyhow::Result<u8> {
    let mut screen = screen?;
    let process = descriptor(&screen)?;
    *locked(front) = Some(process);
    let ended = screen.wait().context("nprof-top")?;
    *locked(front) = None;
    Ok(status(ended))
}

/// Ends the program in front by any signal that ends programs: the rest of the pipe follows.
fn pass_on_signals(front: &Front) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let front = Arc::clone(front);
    thread::spawn(move || {
        for _ in &mut signals {
            if let Some(process) = &*locked(&front) {
                // It may have ended.
                let _ = pidfd_send_signal(process, Signal::TERM);
            }
        }
    });
    Ok(())
}

fn descriptor(child: &Child) -> anyhow::Result<OwnedFd> {
    pidfd_open(Pid::from_child(child), PidfdFlags::empty()).context("cannot watch a process")
}

fn locked(front: &Front) -> MutexGuard<'_, Option<OwnedFd>> {
    front.lock().unwrap_or_else(PoisonError::into_inner)
}
