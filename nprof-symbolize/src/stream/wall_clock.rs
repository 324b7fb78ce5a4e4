//! The time of day at the current position of the stream. Pure.

use nprof_stream::{Head, Record};

/// The clock of the current segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallClock {
    /// The time of day when the segment started. None if the stream does not state it.
    start: Option<ClockReading>,
    /// The latest time of a record, on the segment's clock.
    now_ns: u64,
}

/// Readings of two clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    segment_ns: u64,
    utc_ns: u64,
}

impl WallClock {
    /// Notes the time of a record.
    pub(crate) fn note(&mut self, record: &Record<'_>) {
        if let Record::Head(head) = record {
            *self = Self::start_of(head);
        } else if let Some(time_ns) = record.time() {
            self.advance(time_ns);
        }
    }

    /// Notes a time. An earlier one is ignored: records of different rings may be out of order.
    pub(crate) fn advance(&mut self, time_ns: u64) {
        self.now_ns = self.now_ns.max(time_ns);
    }

    fn start_of(head: &Head) -> Self {
        let start = head.time.zip(head.utc);
        Self {
            start: start.map(|(segment_ns, utc_ns)| ClockReading { segment_ns, utc_ns }),
            now_ns: head.time.unwrap_or(0),
        }
    }

    /// Returns the time of day in ns since 1970. None if the stream does not state it.
    pub(crate) fn utc_ns(&self) -> Option<u64> {
        let start = self.start?;
        // Both clocks run at the same rate within a segment.
        Some(start.utc_ns.saturating_add(self.now_ns.saturating_sub(start.segment_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_stream::{Cause, EventId, Extras, Lost, TaskId};

    #[test]
    fn time_of_day_follows_the_latest_record() {
        let lost = |time| {
            let (event, task, extras) = (EventId::NONE, TaskId::NONE, Extras::NONE);
            Record::Lost(Lost { time, event, cpu: 0, task, count: 1, cause: Cause::Ring, extras })
        };
        let mut clock = WallClock::default();
        clock.note(&lost(5));
        assert_eq!(clock.utc_ns(), None);
        let head = Head { time: Some(100), utc: Some(5000), ..Head::default() };
        clock.note(&Record::Head(Box::new(head)));
        assert_eq!(clock.utc_ns(), Some(5000));
        for time in [150, 120, 90] {
            clock.note(&lost(time));
            assert_eq!(clock.utc_ns(), Some(5050));
        }
        clock.note(&Record::Head(Box::default()));
        assert_eq!(clock.utc_ns(), None);
    }
}
