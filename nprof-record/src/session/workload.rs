//! The recorded workload: detects its exit, and handles signals to the recorder.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::RawFd;

use crate::os::procfs::{self, Stat};
use crate::session::launch::Child;
use crate::sys::{self, Exit, FOR_COMMAND, ProcessFd, Signal, Signals};

/// The kind of a workload.
#[derive(Debug)]
enum WorkloadKind {
    Command(Child),
    /// Processes that existed before.
    Processes(RefCell<AttachedProcesses>),
    Everyone,
}

/// Processes that existed before, without those that were found to have exited.
#[derive(Debug, Default)]
struct AttachedProcesses {
    watched: Vec<(Attached, ProcessFd)>,
    /// The others. They are watched as soon as watched ones have exited.
    others: Vec<Attached>,
    /// The watched ones that have exited since the last [`Workload::take_exited`].
    exited: Vec<u32>,
}

/// The most processes that are watched by a descriptor: there may be more processes than a recorder may
/// have descriptors, and each wait looks at all of them.
const WATCHED_MAX: usize = 64;

/// A process that existed before.
#[derive(Clone, Copy, Debug)]
struct Attached {
    pid: u32,
    /// Its start time, which tells it from a later process with the same id.
    start_ticks: u64,
}

impl Attached {
    /// Returns a process. None if it has exited by now.
    fn new(pid: u32) -> Option<Self> {
        Stat::of(pid).map(|stat| Self { pid, start_ticks: stat.start_ticks })
    }

    fn lives(self) -> bool {
        // A process outlives its first thread.
        Stat::of(self.pid).is_some_and(|stat| stat.start_ticks == self.start_ticks)
            && procfs::living_thread(self.pid).is_some()
    }
}

impl AttachedProcesses {
    /// True if any of them lives.
    fn live(&mut self) -> bool {
        let exited = self.watched.extract_if(.., |(_, process)| process.has_exited());
        self.exited.extend(exited.map(|(process, _)| process.pid));
        while self.watched.len() < WATCHED_MAX {
            let Some(process) = self.others.pop() else { break };
            // Opened first: it is that of the process that /proc then shows.
            let descriptor = ProcessFd::open(process.pid);
            match descriptor {
                _ if !process.lives() => {}
                Ok(descriptor) => self.watched.push((process, descriptor)),
                // Linux before 5.3, or no descriptor is left.
                Err(_) => {
                    self.others.push(process);
                    break;
                }
            }
        }
        !self.watched.is_empty() || !self.others.is_empty()
    }
}

/// The requests to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stops {
    /// One that the command ignores counts twice: its end would not come.
    count: u32,
    /// The last of them.
    signal: i32,
    at_ns: u64,
}

/// A signal sent again within this time is the same request: timeout(1) sends its signal to its child,
/// then to the process group of its child, and so to the recorder, its command, and a program that
/// passes the signal on to the recorder.
const SAME_REQUEST_NS: u64 = 1_000_000_000;

impl Stops {
    /// True if a signal is one of these requests, sent again.
    fn has(self, signal: Signal, now_ns: u64) -> bool {
        let since_ns = now_ns.saturating_sub(self.at_ns);
        signal.sent && self.count > 0 && self.signal == signal.number && since_ns < SAME_REQUEST_NS
    }
}

/// The recorded command, processes or system, and the requests to stop.
#[derive(Debug)]
pub(crate) struct Workload {
    kind: WorkloadKind,
    stops: Cell<Stops>,
    /// True if SIGUSR1 requests a snapshot of the memory.
    accepts_snapshot_requests: Cell<bool>,
    /// True if it came since the last [`Self::take_snapshot_request`].
    snapshot_requested: Cell<bool>,
    /// True if SIGCONT came since the last [`Self::take_continued`].
    continued: Cell<bool>,
}

impl Workload {
    /// Creates the workload of a running command.
    pub(crate) fn command(child: Child) -> Self {
        Self::new(WorkloadKind::Command(child))
    }

    /// Creates the workload of existing processes. Those that have exited by now are left out.
    pub(crate) fn processes(pids: &[u32]) -> Self {
        let processes = pids.iter().filter_map(|&pid| Attached::new(pid)).collect();
        let attached = AttachedProcesses { others: processes, ..Default::default() };
        Self::new(WorkloadKind::Processes(RefCell::new(attached)))
    }

    /// Creates the workload of the whole system.
    pub(crate) fn everyone() -> Self {
        Self::new(WorkloadKind::Everyone)
    }

    fn new(kind: WorkloadKind) -> Self {
        Self {
            kind,
            stops: Cell::default(),
            accepts_snapshot_requests: Cell::default(),
            snapshot_requested: Cell::default(),
            continued: Cell::default(),
        }
    }

    /// Returns the command. None for another kind.
    pub(crate) fn child(&self) -> Option<&Child> {
        match &self.kind {
            WorkloadKind::Command(child) => Some(child),
            _ => None,
        }
    }

    /// Returns its name in messages. None for the whole system and for control groups.
    pub(crate) fn subject(&self) -> Option<&'static str> {
        match &self.kind {
            WorkloadKind::Command(_) => Some("the command"),
            WorkloadKind::Processes(_) => Some("the processes"),
            WorkloadKind::Everyone => None,
        }
    }

    /// True if its CPU time, or its exit, is only found by polling.
    pub(crate) fn needs_polling(&self) -> bool {
        matches!(self.kind, WorkloadKind::Processes(_))
    }

    /// Returns the descriptors of processes that are watched, each readable once its process has exited.
    /// Empty if an exit is found by polling, or by a signal.
    pub(crate) fn process_fds(&self) -> Vec<RawFd> {
        match &self.kind {
            WorkloadKind::Processes(processes) => {
                let processes = processes.borrow();
                processes.watched.iter().map(|(_, process)| process.as_raw_fd()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// True if nothing is left to record.
    pub(crate) fn has_exited(&self) -> bool {
        match &self.kind {
            WorkloadKind::Command(child) => child.ended().is_some(),
            WorkloadKind::Processes(processes) => !processes.borrow_mut().live(),
            WorkloadKind::Everyone => false,
        }
    }

    /// Returns the attached processes that [`Self::has_exited`] has found to have exited.
    pub(crate) fn take_exited(&self) -> Vec<u32> {
        match &self.kind {
            WorkloadKind::Processes(processes) => {
                std::mem::take(&mut processes.borrow_mut().exited)
            }
            _ => Vec::new(),
        }
    }

    /// True if a signal requests the end of the recording. A command gets the first signal itself,
    /// and its exit ends the recording.
    pub(crate) fn stop_requested(&self) -> bool {
        self.stops.get().count > u32::from(self.child().is_some())
    }

    /// Returns true if the recorder was stopped and continued since the last call.
    pub(crate) fn take_continued(&self) -> bool {
        self.continued.take()
    }

    /// Lets SIGUSR1 request snapshots of the memory. It is else a signal for the command.
    pub(crate) fn accept_snapshot_requests(&self) {
        self.accepts_snapshot_requests.set(true);
    }

    /// Returns true if a snapshot of live blocks was requested since the last call.
    pub(crate) fn take_snapshot_request(&self) -> bool {
        self.snapshot_requested.take()
    }

    /// True if no signal requested the end, and the command has not exited.
    pub(crate) fn goes_on(&self) -> bool {
        self.child().is_some_and(|child| child.ended().is_none()) && self.stops.get().count == 0
    }

    /// True if a second signal came: stop without waiting for the command or for the output.
    pub(crate) fn is_aborted(&self) -> bool {
        self.stops.get().count > 1
    }

    /// Returns the status to exit with: that of the command, or of the signal after which it still
    /// runs.
    pub(crate) fn status(&self) -> u8 {
        match self.child().map(Child::ended) {
            Some(Some((exit, _))) => exit.code(),
            // It still runs: a second signal has stopped us.
            Some(None) => Exit::Signal(self.stops.get().signal as u8).code(),
            None => 0,
        }
    }

    /// Handles pending signals: reaps the command, and forwards signals to it. Signals from the
    /// terminal are not forwarded, since the command is in the same process group.
    pub(crate) fn handle_signals(&self, signals: &Signals) {
        while let Some(signal) = signals.next() {
            if signal.number == libc::SIGCHLD {
                self.child().into_iter().for_each(Child::notice_end);
                continue;
            }
            if signal.number == libc::SIGUSR1 && self.accepts_snapshot_requests.get() {
                self.snapshot_requested.set(true);
                continue;
            }
            if signal.number == libc::SIGUSR1 || FOR_COMMAND.contains(&signal.number) {
                match self.child() {
                    Some(child) if child.ended().is_none() => sys::kill(child.pid, signal.number),
                    Some(_) => {}
                    None if signal.number == libc::SIGUSR1 => {}
                    None => self.note_stop(signal, 1),
                }
                continue;
            }
            // It continues the recorder alone, after a stop.
            if signal.number == libc::SIGCONT {
                self.continued.set(true);
                continue;
            }
            if self.stops.get().has(signal, sys::monotonic_ns()) {
                continue;
            }
            let mut weight = 1;
            if let Some(child) = self.child().filter(|child| child.ended().is_none())
                && signal.sent
            {
                if procfs::ignores_signal(child.pid as u32, signal.number) {
                    weight = 2;
                }
                sys::kill(child.pid, signal.number);
            }
            self.note_stop(signal, weight);
        }
    }

    /// Notes requests to stop: one, or two at once.
    fn note_stop(&self, signal: Signal, weight: u32) {
        let count = self.stops.get().count + weight;
        self.stops.set(Stops { count, signal: signal.number, at_ns: sys::monotonic_ns() });
    }

    /// Waits for the exit of the command, or for a second signal.
    ///
    /// # Errors
    ///
    /// Those of ppoll(2).
    pub(crate) fn wait(&self, signals: &Signals) -> io::Result<()> {
        while self.child().is_some() && !self.has_exited() && !self.is_aborted() {
            let mut polled = [libc::pollfd { fd: signals.fd(), events: libc::POLLIN, revents: 0 }];
            sys::poll(&mut polled, None)?;
            self.handle_signals(signals);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::process::{Child, Command, Stdio};

    #[test]
    fn signal_sent_again_within_a_second_is_the_same_request() {
        let stops = Stops { count: 1, signal: libc::SIGTERM, at_ns: 5 };
        let has = |number, sent, now_ns| stops.has(Signal { number, sent }, now_ns);
        assert!(has(libc::SIGTERM, true, 5) && has(libc::SIGTERM, true, SAME_REQUEST_NS));
        assert!(!has(libc::SIGTERM, true, 5 + SAME_REQUEST_NS));
        assert!(!has(libc::SIGINT, true, 6), "another signal is another request");
        assert!(!has(libc::SIGTERM, false, 6), "a terminal sends each signal once");
        assert!(!Stops::default().has(Signal { number: 0, sent: true }, 0), "the first request");
    }

    #[test]
    fn attached_processes_live_until_the_last_exits_and_need_few_descriptors() {
        let start = || Command::new("cat").stdin(Stdio::piped()).spawn().expect("it runs");
        let mut children: Vec<Child> = (0..WATCHED_MAX + 8).map(|_| start()).collect();
        let pids: Vec<u32> = children.iter().map(Child::id).collect();
        let workload = Workload::processes(&pids);
        let mut end = |number: usize| {
            drop(children[number].stdin.take());
            children[number].wait().expect("it ends");
        };
        assert!(!workload.has_exited());
        assert_eq!(workload.process_fds().len(), WATCHED_MAX);
        end(7);
        end(0);
        assert!(!workload.has_exited());
        (1..7).chain(8..pids.len()).for_each(&mut end);
        assert!(workload.has_exited());
        assert!(workload.process_fds().is_empty());
    }

    #[test]
    fn exit_of_each_attached_process_is_noticed() {
        let start = || Command::new("cat").stdin(Stdio::piped()).spawn().expect("it runs");
        let mut children = [start(), start()];
        let workload = Workload::processes(&[children[0].id(), children[1].id()]);
        assert!(!workload.has_exited());
        for child in &mut children {
            drop(child.stdin.take());
            child.wait().expect("it ends");
            let of_fd = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut fds: Vec<_> = workload.process_fds().into_iter().map(of_fd).collect();
            assert_eq!(
                sys::poll(&mut fds, Some(std::time::Duration::ZERO)).expect("descriptors"),
                1
            );
            workload.has_exited();
            assert_eq!(workload.take_exited(), [child.id()]);
        }
        assert!(workload.has_exited());
    }
}
