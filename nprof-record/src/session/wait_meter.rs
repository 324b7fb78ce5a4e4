//! The measurement of waiting: by BPF programs, or by records of context switches.

use std::fmt::Debug;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use crate::perf::backlog::Backlog;
use crate::perf::handler::RecordHandler;
use crate::perf::switches::tracer::SharedTracer;
use crate::perf::waits::tracer::WaitTracer;
use crate::session::event_source::EventSource;
use crate::session::existing_threads::{ExistingThreads, PASSES_MAX, follow_all};
use crate::session::wait_windows::SharedWindows;
use crate::sys;

/// The way in which waiting is measured.
#[derive(Clone, Debug)]
pub(crate) enum WaitMeter {
    /// BPF programs choose the waits, and write full samples into the rings of perf events.
    Bpf(Rc<WaitTracer>),
    /// The same, in windows of time.
    Windows(SharedWindows),
    /// Records of context switches; the stacks are read while the threads wait.
    Switches(SharedTracer),
}

impl WaitMeter {
    /// Starts to measure, with the existing threads and those that `others` returns. The events of switches
    /// are enabled by then, or at the exec of the command.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn start(
        &self,
        existing: &ExistingThreads,
        mut others: impl FnMut() -> Vec<u32>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Bpf(tracer) => {
                tracer.start()?;
                follow(tracer, existing, others)
            }
            Self::Windows(windows) => {
                let tracer = windows.borrow().tracer.clone();
                tracer.start()?;
                follow(&tracer, existing, others)?;
                windows.borrow_mut().begin();
                Ok(())
            }
            Self::Switches(tracer) => {
                tracer.borrow_mut().begin();
                let threads = [others(), existing.list()].concat();
                tracer.borrow_mut().add_existing_threads(threads);
                Ok(())
            }
        }
    }

    /// Ends the measurement. BPF programs do so at once, and stay attached until the states of threads are read.
    pub(crate) fn end(&self) {
        match self {
            // Otherwise, the times go on until the programs are detached.
            Self::Bpf(tracer) => drop(tracer.end(sys::monotonic_ns())),
            Self::Windows(windows) => {
                windows.borrow_mut().stop();
                windows.borrow().tracer.stop();
            }
            Self::Switches(tracer) => tracer.borrow_mut().stop(),
        }
    }

    /// Returns the number of threads that were not measured, because there are too many.
    pub(crate) fn missed(&self) -> u64 {
        match self {
            Self::Bpf(tracer) => tracer.missed(),
            Self::Windows(windows) => windows.borrow().tracer.missed(),
            Self::Switches(_) => 0,
        }
    }

    /// True if the exact times of all threads are known.
    pub(crate) fn measures_all_threads(&self) -> bool {
        matches!(self, Self::Bpf(_)) && self.missed() == 0
    }

    /// Returns the mean time in ns between two looks at waiting threads, if it is much longer than requested.
    pub(crate) fn rare_looks_ns(&self) -> Option<u64> {
        match self {
            Self::Bpf(_) | Self::Windows(_) => None,
            Self::Switches(tracer) => tracer.borrow().rare_looks_ns(),
        }
    }

    /// Returns the number of threads of which the stacks may not be read.
    pub(crate) fn refused(&self) -> usize {
        match self {
            Self::Bpf(_) | Self::Windows(_) => 0,
            Self::Switches(tracer) => tracer.borrow().refused.len(),
        }
    }
}

/// Follows existing threads and those that `others` returns, and those that these create before they are
/// followed themselves.
fn follow(
    tracer: &WaitTracer,
    existing: &ExistingThreads,
    mut others: impl FnMut() -> Vec<u32>,
) -> anyhow::Result<()> {
    for _ in 0..PASSES_MAX {
        let Some(processes) = existing.processes() else {
            let list = || [others(), existing.list()].concat();
            return follow_all(list, |threads| tracer.follow(&threads));
        };
        // The kernel knows their threads: to list them takes 2 us for each.
        if tracer.follow_processes(&[others(), processes].concat())? == 0 {
            break;
        }
    }
    Ok(())
}

/// The records of context switches as a source.
#[derive(Debug)]
pub(crate) struct SwitchSource(pub(crate) SharedTracer);

impl EventSource for SwitchSource {
    fn enable(&self) -> io::Result<()> {
        self.0.borrow().enable()
    }

    fn disable(&self) {}

    fn add_poll_fds(&self, _fds: &mut Vec<libc::pollfd>) {}

    fn handle_poll(&mut self, _polled: &[libc::pollfd]) -> bool {
        false
    }

    fn poll_interval(&self) -> Duration {
        self.0.borrow().until_tick()
    }

    fn is_due(&mut self, now_ns: u64) -> bool {
        self.0.borrow_mut().tick_if_due(now_ns);
        false
    }

    fn max_sleep(&self) -> Duration {
        Duration::MAX
    }

    fn begin_drain(&mut self, now_ns: u64, _handler: &mut dyn RecordHandler) {
        self.0.borrow_mut().begin_drain(now_ns);
    }

    fn settled_ns(&self) -> u64 {
        self.0.borrow().settled_ns()
    }

    fn next_timestamp(&self) -> Option<u64> {
        self.0.borrow().next_timestamp()
    }

    fn drain(&mut self, until_ns: u64, handler: &mut dyn RecordHandler) {
        self.0.borrow_mut().drain(until_ns, handler);
    }

    fn end_drain(&mut self, handler: &mut dyn RecordHandler) -> Backlog {
        self.0.borrow_mut().end_drain(handler)
    }

    fn report_remaining_lost(&mut self, _handler: &mut dyn RecordHandler) {}

    fn lost_records(&self) -> u64 {
        self.0.borrow().lost_records()
    }
}
