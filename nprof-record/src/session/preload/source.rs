//! The rings of the processes that have loaded the library.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nprof_preload::Listener;
use nprof_stream::{Cause, EventId};

use crate::event::{PreloadPlan, PreloadedEvent};
use crate::perf::backlog::Backlog;
use crate::perf::handler::RecordHandler;
use crate::perf::lost::LostSamples;
use crate::perf::record::SampleId;
use crate::perf::time_merge::TimeMerge;
use crate::session::event_source::EventSource;
use crate::session::preload::process::Process;
use crate::sys;

/// Longest time from the time stamp of a record to its end in the ring, unless the thread loses its CPU: the library
/// copies the stack in between.
const SETTLING: Duration = Duration::from_millis(2);

/// Shortest and longest time between two drains.
const SLEEP: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// The distance of heap samples with which a process starts if it is adapted.
pub(crate) const FIRST_PERIOD: u64 = 64 << 10;

/// The same for calls: small, so that a program with a few thousand calls has samples.
pub(crate) const FIRST_CALL_PERIOD: u64 = 16;

/// The most connections that one drain accepts.
const ACCEPTED_MAX: usize = 4096;

/// The most malformed connections that one drain refuses.
const REFUSED_MAX: usize = 16;

/// The sources of records that the library writes: a socket for new processes, and their rings.
#[derive(Debug)]
pub(crate) struct PreloadSource {
    listener: Listener,
    plan: PreloadPlan,
    /// The time from which on records are handed over: the start of sampling.
    begin_ns: Cell<u64>,
    processes: Vec<Process>,
    merge: TimeMerge,
    drain_ns: u64,
    /// The earliest time of a record that an incomplete one delays; the highest number if there is none.
    held_ns: u64,
    /// Bytes of records that the fullest ring had in the last drain.
    fullest: u64,
    /// The time until the next drain that follows from it.
    sleep: Duration,
    lost: u64,
}

impl PreloadSource {
    /// Creates the source of the processes that connect to a socket. With `is_delayed`, their records count
    /// once it is enabled.
    pub(crate) fn new(listener: Listener, plan: PreloadPlan, is_delayed: bool) -> Self {
        Self {
            listener,
            plan,
            begin_ns: Cell::new(if is_delayed { u64::MAX } else { 0 }),
            processes: Vec::new(),
            merge: TimeMerge::default(),
            drain_ns: 0,
            held_ns: u64::MAX,
            fullest: 0,
            sleep: SLEEP.0,
            lost: 0,
        }
    }

    /// Queues the next record of a process, or notes that an incomplete one delays others.
    fn queue(&mut self, number: usize) {
        let process = &mut self.processes[number];
        if let Some(time_ns) = process.next_ns() {
            self.merge.push(time_ns, number);
        } else if let Some(held_ns) = process.held_ns(self.drain_ns) {
            self.held_ns = self.held_ns.min(held_ns);
        }
    }

    /// Takes the processes that have connected.
    fn accept(&mut self) {
        // The listener goes on after an error, which is that of one process. Too many descriptors
        // are an error for all: they wait for the next drain.
        let mut errors = 0;
        let ring_bytes = u64::from(self.plan.ring_bytes());
        for _ in 0..ACCEPTED_MAX {
            match self.listener.accept() {
                // The library makes rings of this size: others would take more memory.
                Ok(Some(connection)) if connection.ring.data_bytes() != ring_bytes => {}
                Ok(Some(connection)) => {
                    let process = Process::new(connection, self.drain_ns);
                    // An image that was executed ends the one before.
                    if process.has_executed() {
                        let same = self.processes.iter_mut().filter(|it| it.pid() == process.pid());
                        same.for_each(Process::end);
                    }
                    self.processes.push(process);
                }
                Ok(None) => return,
                Err(_) if errors == REFUSED_MAX => return,
                Err(_) => errors += 1,
            }
        }
    }

    fn report_lost(&mut self, handler: &mut dyn RecordHandler) {
        let id = SampleId::at(self.drain_ns, None);
        for process in &mut self.processes {
            process.report_missed(handler);
            let (now, before) = process.losses();
            let events = [
                (PreloadedEvent::HeapAlloc, now.allocations, before.allocations),
                (PreloadedEvent::HeapFree, now.frees, before.frees),
                (PreloadedEvent::Calls, now.calls, before.calls),
                (PreloadedEvent::FdOpen, now.others, before.others),
            ];
            for (event, now, before) in events {
                // The program may have written any number: the sums must not overflow.
                let lost = now.saturating_sub(before).min(u64::from(u32::MAX));
                if lost > 0 {
                    let event = self.plan.id_of_losses(event).unwrap_or(EventId::NONE);
                    self.lost += lost;
                    handler.on_lost(id, LostSamples::own(lost), event, Cause::Ring);
                }
            }
        }
    }

    /// Sets the time until the next drain: half of that in which the fullest ring fills.
    fn set_sleep(&mut self, elapsed: Duration) {
        let room = u64::from(self.plan.ring_bytes()) / 2;
        let drains = room / self.fullest.max(1);
        let (shortest, longest) = SLEEP;
        let factor = u32::try_from(drains).unwrap_or(u32::MAX);
        // New processes allocate most: the time grows by a factor of two at most.
        let most = (self.sleep * 2).min(longest);
        self.sleep = elapsed.saturating_mul(factor).clamp(shortest, most);
    }
}

impl EventSource for PreloadSource {
    fn enable(&self) -> io::Result<()> {
        self.begin_ns.set(sys::monotonic_ns());
        Ok(())
    }

    fn disable(&self) {}

    fn add_poll_fds(&self, fds: &mut Vec<libc::pollfd>) {
        let polled = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        fds.push(polled(self.listener.as_fd().as_raw_fd()));
        fds.extend(self.processes.iter().filter_map(Process::exit_fd).map(polled));
    }

    fn handle_poll(&mut self, polled: &[libc::pollfd]) -> bool {
        polled.iter().any(|polled| polled.revents != 0)
    }

    fn poll_interval(&self) -> Duration {
        SLEEP.1
    }

    fn is_due(&mut self, _now_ns: u64) -> bool {
        false
    }

    fn max_sleep(&self) -> Duration {
        self.sleep
    }

    fn begin_drain(&mut self, now_ns: u64, _handler: &mut dyn RecordHandler) {
        let elapsed_ns = now_ns.saturating_sub(self.drain_ns);
        self.drain_ns = now_ns;
        self.set_sleep(Duration::from_nanos(elapsed_ns));
        self.processes.iter_mut().for_each(Process::note_exit);
        self.accept();
        self.merge.restart();
        self.held_ns = u64::MAX;
        for number in 0..self.processes.len() {
            self.processes[number].begin_drain(now_ns);
            self.queue(number);
        }
    }

    fn settled_ns(&self) -> u64 {
        self.drain_ns.saturating_sub(sys::duration_ns(SETTLING)).min(self.held_ns)
    }

    fn next_timestamp(&self) -> Option<u64> {
        self.merge.next_timestamp()
    }

    fn drain(&mut self, until_ns: u64, handler: &mut dyn RecordHandler) {
        while let Some(number) = self.merge.pop(until_ns) {
            let Some(process) = self.processes.get_mut(number) else { continue };
            process.hand_over(handler, self.begin_ns.get());
            process.advance(self.drain_ns);
            self.queue(number);
        }
    }

    fn end_drain(&mut self, handler: &mut dyn RecordHandler) -> Backlog {
        self.report_lost(handler);
        self.fullest = self.processes.iter().map(Process::drained).max().unwrap_or(0);
        self.processes.retain(|process| !process.is_gone());
        let settled_ns = self.settled_ns();
        let PreloadPlan { heap_period, call_period, .. } = self.plan;
        for process in &mut self.processes {
            process.note_settled(settled_ns);
            process.end_drain(self.drain_ns, heap_period, call_period);
        }
        let is_waiting = self.processes.iter().any(|process| process.next_ns().is_some());
        if is_waiting { Backlog::Samples } else { Backlog::Nothing }
    }

    fn report_remaining_lost(&mut self, handler: &mut dyn RecordHandler) {
        self.report_lost(handler);
    }

    fn lost_records(&self) -> u64 {
        self.lost
    }
}
