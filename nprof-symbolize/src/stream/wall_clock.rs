//! What time of day it was where the stream is being read. Pure.

use nprof_stream::{Head, Record};

/// The clock of the segment at hand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallClock {
    /// A reading of the segment's clock and the time of day at it, ns; `None` if not told.
    start: Option<(u64, u64)>,
    /// The latest time of a record, on the segment's clock.
    now: u64,
}

impl WallClock {
    /// Takes note of a record.
    pub(crate) fn note(&mut self, record: &Record<'_>) {
        let time = match record {
            Record::Head(head) => return *self = Self::of(head),
            Record::Task(task) => task.time,
            Record::Change(change) => change.time,
            Record::Lost(lost) => lost.time,
            Record::Sample(sample) => sample.time,
            _ => return,
        };
        self.advance(time);
    }

    /// Takes note of a record's time.
    pub(crate) fn advance(&mut self, time: u64) {
        self.now = self.now.max(time);
    }

    fn of(head: &Head) -> Self {
        let start = head.time.zip(head.utc);
        Self { start, now: head.time.unwrap_or(0) }
    }

    /// The time of day, ns since 1970; `None` if the stream does not tell.
    pub(crate) fn utc(&self) -> Option<u64> {
        let (time, utc) = self.start?;
        Some(utc.saturating_add(self.now.saturating_sub(time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_stream::{Cause, EventId, Extras, Lost, TaskId};

    #[test]
    fn the_time_of_day_goes_on_with_the_records() {
        let lost = |time| {
            let (event, task, extras) = (EventId::NONE, TaskId::NONE, Extras::NONE);
            Record::Lost(Lost { time, event, cpu: 0, task, count: 1, cause: Cause::Ring, extras })
        };
        let mut clock = WallClock::default();
        clock.note(&lost(5));
        assert_eq!(clock.utc(), None);
        let head = Head { time: Some(100), utc: Some(5000), ..Head::default() };
        clock.note(&Record::Head(Box::new(head)));
        assert_eq!(clock.utc(), Some(5000));
        for time in [150, 120, 90] {
            clock.note(&lost(time));
            assert_eq!(clock.utc(), Some(5050));
        }
        clock.note(&Record::Head(Box::default()));
        assert_eq!(clock.utc(), None);
    }
}
