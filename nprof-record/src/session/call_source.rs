//! The exact counts of calls as a source: read at the end of each slice, and watched for functions
//! that are called too often.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use nprof_stream::{EventId, NO_CPU};

use crate::perf::backlog::Backlog;
use crate::perf::calls::data::SLICE_NS;
use crate::perf::calls::tracer::CallTracer;
use crate::perf::handler::RecordHandler;
use crate::perf::record::{KernelRecord, SampleId};
use crate::session::event_source::EventSource;

/// The time from the end of a slice until its counts are read: a program may still run for a call
/// before the end.
const SETTLING_NS: u64 = 2_000_000;

/// A record of the source.
#[derive(Debug)]
struct Queued {
    id: SampleId,
    record: KernelRecord<'static>,
}

/// The counts of calls.
#[derive(Debug)]
pub(crate) struct CallSource {
    tracer: Rc<CallTracer>,
    event: EventId,
    /// The most calls per second of a function.
    limit: u64,
    /// The number of slices that were read.
    read: u64,
    /// True if the last counts were read.
    has_ended: bool,
    settled_ns: u64,
    queue: VecDeque<Queued>,
}

impl CallSource {
    /// Creates the source of an event.
    pub(crate) fn new(tracer: Rc<CallTracer>, event: EventId, limit: u64) -> Self {
        let (read, has_ended, settled_ns) = (0, false, 0);
        Self { tracer, event, limit, read, has_ended, settled_ns, queue: VecDeque::new() }
    }

    /// Reads the counts of the slices that have ended, or all after the programs were detached.
    fn read_slices(&mut self, now_ns: u64) {
        self.settled_ns = now_ns;
        let begin_ns = self.tracer.begin_ns().unwrap_or(now_ns);
        let slice = now_ns.saturating_sub(begin_ns) / SLICE_NS;
        let has_ended = self.tracer.is_stopped();
        if slice > self.read {
            let end_ns = begin_ns + slice * SLICE_NS;
            if !has_ended && now_ns < end_ns + SETTLING_NS {
                self.settled_ns = end_ns - 1;
                return;
            }
            self.read = slice;
            self.queue_rests(slice - 1, slice - 1, end_ns - 1);
            self.tracer.adapt();
        }
        if has_ended && !std::mem::replace(&mut self.has_ended, true) {
            self.queue_rests(u64::MAX, slice, now_ns);
            let missed = self.tracer.missed_calls();
            if missed > 0 {
                let (id, record) = (SampleId::at(now_ns, None), KernelRecord::MissedCalls(missed));
                self.queue.push_back(Queued { id, record });
            }
        }
    }

    fn queue_rests(&mut self, up_to: u64, slice: u64, time: u64) {
        let rests = match self.tracer.take_rests(up_to) {
            Ok(rests) => rests,
            Err(error) => return self.tracer.note_failure(&error.into()),
        };
        for (tid, pid, mut rest) in rests {
            rest.slice = slice;
            let id = SampleId { pid, tid, time, cpu: NO_CPU };
            self.queue.push_back(Queued { id, record: KernelRecord::CallRest(rest) });
        }
        let counts = match self.tracer.take_counts(up_to) {
            Ok(counts) => counts,
            Err(error) => return self.tracer.note_failure(&error.into()),
        };
        for (tid, pid, count) in counts {
            let id = SampleId { pid, tid, time, cpu: NO_CPU };
            self.queue.push_back(Queued { id, record: KernelRecord::RoutineCount(count) });
        }
    }

    /// Stops counting functions that are called too often.
    fn watch(&mut self, now_ns: u64) {
        let found = match self.tracer.take_off(now_ns, self.limit) {
            Ok(found) => found,
            Err(error) => return self.tracer.note_failure(&error),
        };
        for taken_off in found {
            let id = SampleId::at(now_ns, None);
            self.queue.push_back(Queued { id, record: KernelRecord::TakenOff(taken_off) });
        }
    }
}

impl EventSource for CallSource {
    fn enable(&self) -> io::Result<()> {
        Ok(())
    }

    fn disable(&self) {}

    fn add_poll_fds(&self, _fds: &mut Vec<libc::pollfd>) {}

    fn handle_poll(&mut self, _polled: &[libc::pollfd]) -> bool {
        false
    }

    fn poll_interval(&self) -> Duration {
        Duration::MAX
    }

    fn is_due(&mut self, _now_ns: u64) -> bool {
        false
    }

    fn max_sleep(&self) -> Duration {
        Duration::MAX
    }

    fn begin_drain(&mut self, now_ns: u64, _handler: &mut dyn RecordHandler) {
        self.read_slices(now_ns);
        if !self.has_ended {
            self.watch(now_ns);
        }
    }

    fn settled_ns(&self) -> u64 {
        self.settled_ns
    }

    fn next_timestamp(&self) -> Option<u64> {
        self.queue.front().map(|queued| queued.id.time)
    }

    fn drain(&mut self, until_ns: u64, handler: &mut dyn RecordHandler) {
        while let Some(queued) = self.queue.pop_front_if(|queued| queued.id.time <= until_ns) {
            handler.handle_record(queued.id, &queued.record, self.event);
        }
    }

    fn end_drain(&mut self, _handler: &mut dyn RecordHandler) -> Backlog {
        Backlog::Nothing
    }

    fn report_remaining_lost(&mut self, _handler: &mut dyn RecordHandler) {}

    fn lost_records(&self) -> u64 {
        0
    }
}
