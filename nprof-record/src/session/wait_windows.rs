//! The measurement of waiting in windows of time: between them, no program runs at the switches of
//! threads.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use nprof_stream::{Cause, EventId};

use crate::perf::backlog::Backlog;
use crate::perf::handler::RecordHandler;
use crate::perf::lost::LostSamples;
use crate::perf::record::{KernelRecord, SampleId};
use crate::perf::waits::data::WaitingThread;
use crate::perf::waits::tracer::WaitTracer;
use crate::perf::waits::windows::Windows;
use crate::session::event_source::EventSource;
use crate::sys;

/// The windows, which the session stops and the source of their records opens and closes.
pub(crate) type SharedWindows = Rc<RefCell<WaitWindows>>;

/// The start of a window with its times, or its end with the threads that wait.
#[derive(Debug)]
enum Edge {
    Opened(Range<u64>),
    Closed(u64, Vec<WaitingThread>),
}

impl Edge {
    fn time_ns(&self) -> u64 {
        match self {
            Self::Opened(window) => window.start,
            Self::Closed(time_ns, _) => *time_ns,
        }
    }
}

/// The windows of a recording. Times are those of the monotonic clock.
#[derive(Debug)]
pub(crate) struct WaitWindows {
    pub(crate) tracer: Rc<WaitTracer>,
    windows: Windows,
    /// An event of waiting, which lost windows are counted for.
    event: EventId,
    /// The start of the interval of the next window.
    interval_ns: u64,
    /// The time at which a window opens or closes next; `u64::MAX` if none does.
    next_ns: u64,
    open: Option<Range<u64>>,
    edges: VecDeque<Edge>,
    settled_ns: u64,
    /// Windows in which the programs could not run or that came too late, and those of them that were reported.
    failed: u64,
    failed_reported: u64,
}

impl WaitWindows {
    /// Creates the windows before the first interval.
    pub(crate) fn new(tracer: Rc<WaitTracer>, windows: Windows, event: EventId) -> Self {
        Self {
            tracer,
            windows,
            event,
            interval_ns: 0,
            next_ns: u64::MAX,
            open: None,
            edges: VecDeque::new(),
            settled_ns: 0,
            failed: 0,
            failed_reported: 0,
        }
    }

    /// Begins the first interval.
    pub(crate) fn begin(&mut self) {
        self.interval_ns = sys::monotonic_ns();
        self.choose();
    }

    /// Closes an open window, and opens no more.
    pub(crate) fn stop(&mut self) {
        if let Some(window) = self.open.take() {
            self.close(window.start..window.end.min(sys::monotonic_ns()));
            self.interval_ns = self.interval_ns.saturating_add(self.windows.interval_ns());
        }
        if self.next_ns != u64::MAX {
            self.skip_intervals_before(sys::monotonic_ns());
        }
        self.next_ns = u64::MAX;
    }

    /// Sets the time of the window of the interval.
    fn choose(&mut self) {
        // Without random bits it is the first place.
        let offset_ns = self.windows.offset_ns(sys::random().unwrap_or(0));
        self.next_ns = self.interval_ns.saturating_add(offset_ns);
    }

    fn begin_next_interval(&mut self) {
        self.interval_ns = self.interval_ns.saturating_add(self.windows.interval_ns());
        self.skip_intervals_before(sys::monotonic_ns());
        self.choose();
    }

    /// Counts the windows of intervals that are over as failed: those to come stand for their own
    /// intervals only, and the recorder that cannot keep up would never make up for them.
    fn skip_intervals_before(&mut self, now_ns: u64) {
        let over = self.windows.intervals_within(now_ns.saturating_sub(self.interval_ns));
        self.failed += over;
        let skipped_ns = over.saturating_mul(self.windows.interval_ns());
        self.interval_ns = self.interval_ns.saturating_add(skipped_ns);
    }

    /// Opens or closes a window, if the time has come.
    fn turn_if_due(&mut self, now_ns: u64) {
        if now_ns < self.next_ns {
            return;
        }
        if let Some(window) = self.open.take() {
            self.close(window);
            self.begin_next_interval();
            return;
        }
        if self.tracer.open_window().is_err() {
            self.failed += 1;
            self.begin_next_interval();
            return;
        }
        // Its whole length, however late it is: each interval has the same time in its window.
        let start_ns = sys::monotonic_ns();
        let window = start_ns..start_ns.saturating_add(self.windows.length_ns);
        self.next_ns = window.end;
        self.edges.push_back(Edge::Opened(window.clone()));
        self.open = Some(window);
    }

    fn close(&mut self, window: Range<u64>) {
        let threads = self.tracer.close_window();
        self.failed += u64::from(threads.is_err());
        // Now: they run again before this is written.
        let threads = self.tracer.with_stacks(threads.unwrap_or_default());
        self.edges.push_back(Edge::Closed(window.end, threads));
    }
}

/// The windows as a source.
#[derive(Debug)]
pub(crate) struct WindowSource(pub(crate) SharedWindows);

impl EventSource for WindowSource {
    fn enable(&self) -> io::Result<()> {
        Ok(())
    }

    fn disable(&self) {}

    fn add_poll_fds(&self, _fds: &mut Vec<libc::pollfd>) {}

    fn handle_poll(&mut self, _polled: &[libc::pollfd]) -> bool {
        false
    }

    fn poll_interval(&self) -> Duration {
        let next_ns = self.0.borrow().next_ns;
        Duration::from_nanos(next_ns.saturating_sub(sys::monotonic_ns()).max(1))
    }

    fn is_due(&mut self, now_ns: u64) -> bool {
        self.0.borrow_mut().turn_if_due(now_ns);
        false
    }

    fn max_sleep(&self) -> Duration {
        Duration::MAX
    }

    fn begin_drain(&mut self, now_ns: u64, _handler: &mut dyn RecordHandler) {
        let mut windows = self.0.borrow_mut();
        windows.turn_if_due(now_ns);
        // The end of an open window is written later, with its own time.
        let end_ns = windows.open.as_ref().map_or(u64::MAX, |window| window.end - 1);
        windows.settled_ns = now_ns.min(end_ns);
    }

    fn settled_ns(&self) -> u64 {
        self.0.borrow().settled_ns
    }

    fn next_timestamp(&self) -> Option<u64> {
        self.0.borrow().edges.front().map(Edge::time_ns)
    }

    fn drain(&mut self, until_ns: u64, handler: &mut dyn RecordHandler) {
        let mut windows = self.0.borrow_mut();
        let event = windows.event;
        while let Some(edge) = windows.edges.pop_front_if(|edge| edge.time_ns() <= until_ns) {
            let id = SampleId::at(edge.time_ns(), None);
            match edge {
                Edge::Opened(window) => {
                    handler.handle_record(id, &KernelRecord::WindowOpened(window), event);
                }
                Edge::Closed(_, threads) => {
                    handler.handle_record(id, &KernelRecord::WindowClosed(&threads), event);
                }
            }
        }
    }

    fn end_drain(&mut self, handler: &mut dyn RecordHandler) -> Backlog {
        let mut windows = self.0.borrow_mut();
        let lost = windows.failed - windows.failed_reported;
        if lost > 0 {
            windows.failed_reported = windows.failed;
            let id = SampleId::at(sys::monotonic_ns(), None);
            handler.on_lost(id, LostSamples::default(), windows.event, Cause::Recorder);
        }
        if windows.edges.is_empty() { Backlog::Nothing } else { Backlog::Samples }
    }

    fn report_remaining_lost(&mut self, _handler: &mut dyn RecordHandler) {}

    fn lost_records(&self) -> u64 {
        0
    }
}
