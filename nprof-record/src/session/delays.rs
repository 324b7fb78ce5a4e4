//! The time between two drains by its use, to find the cause of full rings. Pure.

use std::collections::BTreeMap;

/// A cause why the rings were not read in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DelayCause {
    /// The reader of the output did not read.
    Output,
    /// A signal had stopped the recorder.
    Stopped,
    /// The recorder waited for a CPU.
    #[default]
    NoCpu,
    /// The recorder worked on records.
    Work,
}

/// The longest delay by a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delay {
    pub(crate) cause: DelayCause,
    pub(crate) longest_ns: u64,
}

/// The time from one drain to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) total_ns: u64,
    /// The part in which the recorder waited as long as it meant to.
    pub(crate) asleep_ns: u64,
    /// The part in which writes of the output waited for its reader.
    pub(crate) output_ns: u64,
    /// The CPU time of the thread that reads the rings. Other threads, which copy images, do not
    /// keep it from reading.
    pub(crate) cpu_ns: u64,
    /// True if the recorder was continued after a stop.
    pub(crate) was_stopped: bool,
}

impl Interval {
    /// Returns the time in which the recorder was not ready to read.
    fn delay_ns(self) -> u64 {
        self.total_ns.saturating_sub(self.asleep_ns)
    }

    /// Returns the cause of most of the delay.
    fn delay(self) -> Delay {
        // The time of a write goes on during a stop.
        let output_ns = if self.was_stopped { 0 } else { self.output_ns };
        let used_ns = output_ns.saturating_add(self.cpu_ns);
        let rest_ns = self.delay_ns().saturating_sub(used_ns);
        let rest = if self.was_stopped { DelayCause::Stopped } else { DelayCause::NoCpu };
        let parts =
            [(output_ns, DelayCause::Output), (self.cpu_ns, DelayCause::Work), (rest_ns, rest)];
        let (longest_ns, cause) = parts.into_iter().max().unwrap_or_default();
        Delay { cause, longest_ns }
    }
}

/// The longest time from a delay to the report of its losses. Events that count their losses are read
/// at the end of the delay; before Linux 6.0 the kernel reports them only with the first record that
/// it writes once the ring has room, which comes after those of a full ring.
const REPORTED_WITHIN_NS: u64 = 500_000_000;

/// The longest delay of late, and the causes of the losses so far.
#[derive(Debug, Default)]
pub(crate) struct DelayHistory {
    longest: Interval,
    /// The time since this interval.
    age_ns: u64,
    /// Lost records seen so far.
    lost: u64,
    /// By cause: lost records, and the longest delay.
    causes: BTreeMap<DelayCause, (u64, u64)>,
}

impl DelayHistory {
    /// Notes an interval, and the number of lost records since the beginning.
    pub(crate) fn note(&mut self, interval: Interval, lost: u64) {
        self.age_ns = self.age_ns.saturating_add(interval.total_ns);
        if self.age_ns > REPORTED_WITHIN_NS || interval.delay_ns() >= self.longest.delay_ns() {
            (self.longest, self.age_ns) = (interval, 0);
        }
        let new = lost.saturating_sub(self.lost);
        if new == 0 {
            return;
        }
        self.lost = lost;
        let Delay { cause, longest_ns } = self.longest.delay();
        let (count, longest) = self.causes.entry(cause).or_default();
        (*count, *longest) = (*count + new, longest_ns.max(*longest));
    }

    /// Returns the cause of most losses. None if there were none.
    pub(crate) fn main_cause(&self) -> Option<Delay> {
        let most = self.causes.iter().max_by_key(|(_, (lost, _))| *lost);
        most.map(|(&cause, &(_, longest_ns))| Delay { cause, longest_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn interval(total: u64, asleep: u64) -> Interval {
        Interval { total_ns: total * MS, asleep_ns: asleep * MS, ..Interval::default() }
    }

    #[test]
    fn most_of_the_delay_names_the_cause() {
        let slow = interval(500, 100);
        let cause = |interval: Interval| interval.delay().cause;
        assert_eq!(slow.delay(), Delay { cause: DelayCause::NoCpu, longest_ns: 400 * MS });
        assert_eq!(cause(Interval { was_stopped: true, ..slow }), DelayCause::Stopped);
        assert_eq!(cause(Interval { output_ns: 300 * MS, ..slow }), DelayCause::Output);
        let stopped = Interval { output_ns: 300 * MS, was_stopped: true, ..slow };
        assert_eq!(cause(stopped), DelayCause::Stopped, "while it wrote");
        let working = Interval { cpu_ns: 250 * MS, was_stopped: true, ..slow };
        assert_eq!(working.delay(), Delay { cause: DelayCause::Work, longest_ns: 250 * MS });
    }

    #[test]
    fn losses_are_due_to_the_longest_delay_shortly_before() {
        let mut history = DelayHistory::default();
        assert_eq!(history.main_cause(), None);
        history.note(Interval { was_stopped: true, ..interval(900, 0) }, 0);
        for _ in 0..6 {
            history.note(interval(100, 99), 0);
        }
        assert_eq!(history.main_cause(), None, "no loss");
        history.note(Interval { output_ns: 80 * MS, ..interval(90, 0) }, 0);
        history.note(interval(100, 99), 30);
        assert_eq!(
            history.main_cause(),
            Some(Delay { cause: DelayCause::Output, longest_ns: 80 * MS }),
            "the stop is long past"
        );
        for _ in 0..6 {
            history.note(interval(100, 99), 30);
        }
        history.note(Interval { cpu_ns: 50 * MS, ..interval(60, 1) }, 100);
        assert_eq!(history.main_cause().map(|delay| delay.cause), Some(DelayCause::Work));
    }
}
