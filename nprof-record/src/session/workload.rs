//! Who is recorded: whether there is anything left to record, and what becomes of the signals we
//! get meanwhile.

use std::cell::Cell;
use std::io;

use crate::os::procfs::Stat;
use crate::session::launch::Child;
use crate::sys::{self, Exit, Signals};

/// Who is recorded.
#[derive(Debug)]
enum WorkloadKind {
    Command(Child),
    /// Processes that were there before, each with when it began.
    Processes(Vec<(u32, u64)>),
    Everyone,
}

/// Who is recorded, and how often we were told to stop.
#[derive(Debug)]
pub(crate) struct Workload {
    kind: WorkloadKind,
    /// How often, and by which signal last.
    stops: Cell<(u32, i32)>,
}

impl Workload {
    /// A command that runs.
    pub(crate) fn command(child: Child) -> Self {
        Self::new(WorkloadKind::Command(child))
    }

    /// Processes that were there before. Those that are gone by now are over.
    pub(crate) fn processes(pids: &[u32]) -> Self {
        let known = |&pid| Stat::of(pid).map(|stat| (pid, stat.start_ticks));
        Self::new(WorkloadKind::Processes(pids.iter().filter_map(known).collect()))
    }

    /// Whoever there is.
    pub(crate) fn everyone() -> Self {
        Self::new(WorkloadKind::Everyone)
    }

    fn new(kind: WorkloadKind) -> Self {
        Self { kind, stops: Cell::default() }
    }

    /// The command, if it is one.
    pub(crate) fn child(&self) -> Option<&Child> {
        match &self.kind {
            WorkloadKind::Command(child) => Some(child),
            _ => None,
        }
    }

    /// Whether it has to be asked whether there is anything left to record.
    pub(crate) fn needs_polling(&self) -> bool {
        matches!(self.kind, WorkloadKind::Processes(_))
    }

    /// Whether there is nothing left to record.
    pub(crate) fn has_exited(&self) -> bool {
        match &self.kind {
            WorkloadKind::Command(child) => child.ended().is_some(),
            WorkloadKind::Processes(processes) => {
                let lives = |&(pid, began): &(u32, u64)| {
                    Stat::of(pid).is_some_and(|stat| stat.start_ticks == began && !stat.is_zombie)
                };
                !processes.iter().any(lives)
            }
            WorkloadKind::Everyone => false,
        }
    }

    /// Whether we were told to end the recording. A command is told itself, and its end ends it.
    pub(crate) fn stop_requested(&self) -> bool {
        self.stops.get().0 > u32::from(self.child().is_some())
    }

    /// Whether we were told once more than it takes to end the recording: give up.
    pub(crate) fn is_aborted(&self) -> bool {
        self.stops.get().0 > 1
    }

    /// The status to exit with: the command's, or that of the signal that made us leave it.
    pub(crate) fn status(&self) -> u8 {
        match self.child().map(Child::ended) {
            Some(Some((exit, _))) => exit.code(),
            Some(None) => Exit::Signal(self.stops.get().1 as u8).code(),
            None => 0,
        }
    }

    /// Treats the signals that came: notices the command's end, and passes on to it what was
    /// sent to us. (What the terminal sends it has got itself.)
    pub(crate) fn handle_signals(&self, signals: &Signals) {
        while let Some(signal) = signals.next() {
            if signal.number == libc::SIGCHLD {
                self.child().into_iter().for_each(Child::notice_end);
                continue;
            }
            self.stops.set((self.stops.get().0 + 1, signal.number));
            if let Some(child) = self.child().filter(|child| child.ended().is_none())
                && signal.sent
            {
                sys::kill(child.pid, signal.number);
            }
        }
    }

    /// Waits for the command's end, or until we were told twice to stop.
    ///
    /// # Errors
    ///
    /// What poll(2) says.
    pub(crate) fn wait(&self, signals: &Signals) -> io::Result<()> {
        while self.child().is_some() && !self.has_exited() && !self.is_aborted() {
            let mut polled = [libc::pollfd { fd: signals.fd(), events: libc::POLLIN, revents: 0 }];
            sys::poll(&mut polled, -1)?;
            self.handle_signals(signals);
        }
        Ok(())
    }
}
