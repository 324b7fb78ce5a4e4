//! Signals to `nprof run`: the first one ends the recording, a later one the report.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::iterator::{Handle, SignalsInfo};

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// The same signal within this time is the same request: timeout(1) sends its signal to its child, then to
/// the process group of its child. So is the first signal within this time after the end of the recording:
/// the terminal and timeout(1) send it to the recorder, too, which may end before this process notices
/// the signal.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Keeps this process alive, and passes requests to end on to its children, until it is dropped.
pub(super) struct Requests {
    state: Arc<Mutex<State>>,
    handle: Handle,
    /// True if this process was started with SIGINT ignored, as background jobs of scripts are.
    is_interrupt_ignored: bool,
}

/// A child of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// nprof-record.
    Recorder,
    /// nprof-symbolize, then nprof-flat.
    Reporter,
}

#[derive(Default)]
struct State {
    stage: Stage,
    /// The child that names functions or reports. Its descriptor, since its number may belong to
    /// another process after its end.
    reporter: Option<OwnedFd>,
    /// True if a request came after the recording.
    is_cancelled: bool,
    last_request: Option<Request>,
}

/// A request to end.
#[derive(Clone, Copy)]
struct Request {
    /// None if the recording ended without a known signal.
    signal: Option<Signal>,
    at: Instant,
}

#[derive(Default)]
enum Stage {
    #[default]
    Starting,
    /// A request came before the recorder was started.
    Requested(Signal),
    Recording(OwnedFd),
    Recorded,
}

impl Requests {
    /// Begins to catch signals, except those that this process was started to ignore, as by nohup(1).
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub(super) fn catch() -> io::Result<Self> {
        let ignored = ignored_signals();
        let is_ignored = |signal: i32| ignored >> (signal - 1) & 1 != 0;
        // Children start with ignored signals ignored, and with caught signals as usual.
        let caught = SIGNALS.into_iter().filter(|&signal| !is_ignored(signal));
        let mut signals = SignalsInfo::<WithRawSiginfo>::new(caught)?;
        let requests = Self {
            state: Arc::default(),
            handle: signals.handle(),
            is_interrupt_ignored: is_ignored(SIGINT),
        };
        let state = Arc::clone(&requests.state);
        thread::spawn(move || {
            for info in &mut signals {
                // SI_KERNEL, from the terminal, is positive; SI_USER and others of kill(2) are not.
                let is_sent = info.si_code <= 0;
                if let Some(signal) = Signal::from_named_raw(info.si_signo) {
                    locked(&state).request(signal, is_sent);
                }
            }
        });
        Ok(requests)
    }

    /// Waits for a child, to which requests are passed on until then.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub(super) fn wait(&self, role: Role, child: &mut Child) -> io::Result<ExitStatus> {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        if role == Role::Recorder && self.is_interrupt_ignored {
            // Scripts end a recording in the background by SIGINT, too. Only now: the recorder is to
            // see that the signal is ignored.
            self.handle.add_signal(SIGINT)?;
        }
        locked(&self.state).begin(role, process);
        let status = child.wait();
        locked(&self.state).end(role);
        status
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.handle.close();
    }
}

impl State {
    fn begin(&mut self, role: Role, process: OwnedFd) {
        match (role, &self.stage) {
            (Role::Recorder, Stage::Requested(signal)) => {
                pass_on(&process, *signal);
                self.stage = Stage::Recording(process);
            }
            (Role::Recorder, _) => self.stage = Stage::Recording(process),
            (Role::Reporter, _) => {
                if self.is_cancelled {
                    pass_on(&process, Signal::TERM);
                }
                self.reporter = Some(process);
            }
        }
    }

    fn end(&mut self, role: Role) {
        match role {
            Role::Recorder => {
                self.stage = Stage::Recorded;
                let signal = self.last_request.and_then(|last| last.signal);
                self.last_request = Some(Request { signal, at: Instant::now() });
            }
            Role::Reporter => self.reporter = None,
        }
    }

    /// Handles a signal to this process.
    fn request(&mut self, signal: Signal, is_sent: bool) {
        let at = Instant::now();
        let is_repeated = self.last_request.is_some_and(|last| last.is_repeated_by(signal, at));
        if is_repeated {
            return;
        }
        self.last_request = Some(Request { signal: Some(signal), at });
        match &self.stage {
            Stage::Starting | Stage::Requested(_) => self.stage = Stage::Requested(signal),
            // The terminal sends its signals to the recorder, too.
            Stage::Recording(recorder) if is_sent => pass_on(recorder, signal),
            Stage::Recording(_) => {}
            Stage::Recorded => {
                self.is_cancelled = true;
                if let Some(reporter) = &self.reporter {
                    // nprof-symbolize does not end by the first SIGINT.
                    pass_on(reporter, Signal::TERM);
                }
            }
        }
    }
}

impl Request {
    /// True if a signal is this request once more, and no other.
    fn is_repeated_by(self, signal: Signal, at: Instant) -> bool {
        let is_same = self.signal.is_none_or(|last| last == signal);
        is_same && at.duration_since(self.at) < SAME_REQUEST
    }
}

fn pass_on(process: &OwnedFd, signal: Signal) {
    // It may have ended.
    let _ = pidfd_send_signal(process, signal);
}

/// Returns the state, also after a panic of the other thread: each change of it is complete.
fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the signals that this process ignores, bit 0 for signal 1. None are without /proc.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Returns a program that waits for a signal, and its descriptor.
    fn waiting() -> (Child, OwnedFd) {
        let child = Command::new("sleep").arg("600").spawn().expect("sleep(1) can be started");
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        (child, process.expect("a child has a descriptor"))
    }

    #[test]
    fn other_signal_is_another_request() {
        let at = Instant::now();
        let interrupt = Request { signal: Some(Signal::INT), at };
        assert!(interrupt.is_repeated_by(Signal::INT, at));
        assert!(!interrupt.is_repeated_by(Signal::TERM, at));
        assert!(!interrupt.is_repeated_by(Signal::INT, at + SAME_REQUEST));
        // The recorder may have ended by a signal that this process has not noticed yet.
        let ended = Request { signal: None, at };
        assert!(ended.is_repeated_by(Signal::TERM, at));
    }

    #[test]
    fn other_signal_after_that_of_the_recording_ends_the_report() {
        let (mut recorder, process) = waiting();
        let mut state = State::default();
        state.begin(Role::Recorder, process);
        // Not SIGINT or SIGHUP, which are ignored if a script runs the tests in the background or by nohup(1).
        state.request(Signal::USR1, true);
        let status = recorder.wait().expect("it ends");
        assert_eq!(status.signal(), Some(Signal::USR1.as_raw()));
        state.end(Role::Recorder);
        let (mut reporter, process) = waiting();
        state.begin(Role::Reporter, process);
        state.request(Signal::TERM, true);
        let status = reporter.wait().expect("it ends");
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    }

    #[test]
    fn other_signal_reaches_a_recorder_that_runs_on() {
        let (mut recorder, process) = waiting();
        let mut state = State::default();
        state.begin(Role::Recorder, process);
        // Of the terminal: the recorder has it.
        state.request(Signal::INT, false);
        state.request(Signal::TERM, true);
        let status = recorder.wait().expect("it ends");
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    }
}
