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

/// A signal within this time after another is the same request: timeout(1) sends its signal to its child,
/// then to the process group of its child. So is a signal within this time after the end of the recording:
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
    last_request: Option<Instant>,
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
                self.last_request = Some(Instant::now());
            }
            Role::Reporter => self.reporter = None,
        }
    }

    /// Handles a signal to this process.
    fn request(&mut self, signal: Signal, is_sent: bool) {
        let now = Instant::now();
        let is_repeated =
            self.last_request.is_some_and(|last| now.duration_since(last) < SAME_REQUEST);
        if is_repeated {
            return;
        }
        self.last_request = Some(now);
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
