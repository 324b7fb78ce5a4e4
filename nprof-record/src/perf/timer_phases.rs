//! The phases of the timers that take samples. Pure.
//!
//! The timers of two CPUs keep their distance for ever. The interrupt of one delays a thread, and that of the
//! other, shortly after it, then sees the same part of a program again and again: of two threads that wake
//! each other on two CPUs, the second had 4 to 100 % of its samples, by the distance. So the timers of the
//! CPUs start one after the other, and those of one CPU start again from time to time, of one CPU at a time:
//! two that start together have no distance. Each such time a part of a period has no sample, half of one
//! on average.

use std::time::Duration;

/// The longest time over which the first starts are spread: the command waits for it.
const SPREAD_MAX: Duration = Duration::from_millis(1);

/// The shortest time after which the timers of a CPU start again.
const RESTART_MIN: Duration = Duration::from_millis(250);

/// The same in periods: then 0.2 % of the time has no sample.
const RESTART_PERIODS: u32 = 256;

/// The starts of the timers of a number of CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimerPhases {
    /// The time from the start of one CPU's timers to that of the next.
    pub(crate) stagger: Duration,
    /// The time from one restart to the next, of the next CPU. 0 if none starts again.
    interval_ns: u64,
    /// The time of the last restart; 0 before the first look.
    restarted_ns: u64,
    /// The number of restarts.
    restarts: usize,
}

impl TimerPhases {
    /// Returns the starts of timers with this period; of none if it is zero.
    pub(crate) fn new(period: Duration, cpus: usize) -> Self {
        let cpus = u32::try_from(cpus.max(1)).unwrap_or(u32::MAX);
        let is_one = cpus == 1 || period.is_zero();
        let interval = RESTART_MIN.max(period.saturating_mul(RESTART_PERIODS)) / cpus;
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        Self {
            stagger: period.min(SPREAD_MAX) / cpus,
            interval_ns: if is_one { 0 } else { interval_ns },
            ..Self::default()
        }
    }

    /// Returns the number of the CPU whose timers are to start again at `now_ns`. None if it is too early.
    pub(crate) fn due(&mut self, now_ns: u64) -> Option<usize> {
        if self.restarted_ns == 0 {
            self.restarted_ns = now_ns;
        }
        if self.interval_ns == 0 || now_ns.saturating_sub(self.restarted_ns) < self.interval_ns {
            return None;
        }
        self.restarted_ns = now_ns;
        self.restarts += 1;
        Some(self.restarts - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn first_starts_are_spread_over_a_period_or_a_millisecond() {
        let stagger = |period, cpus| TimerPhases::new(Duration::from_micros(period), cpus).stagger;
        assert_eq!(stagger(250, 2), Duration::from_micros(125));
        assert_eq!(stagger(100_000, 4), SPREAD_MAX / 4, "the command does not wait for long");
        assert_eq!(stagger(0, 4), Duration::ZERO);
        assert_eq!(stagger(250, 0), Duration::from_micros(250));
    }

    #[test]
    fn cpus_start_again_in_turn() {
        let mut phases = TimerPhases::new(Duration::from_millis(1), 2);
        let times = [1000, 1100, 1128, 1130, 1256, 2000, 2001];
        let due = times.map(|ms| phases.due(ms * MS));
        assert_eq!(due, [None, None, Some(0), None, Some(1), Some(2), None]);
    }

    #[test]
    fn timers_of_one_cpu_or_of_none_do_not_start_again() {
        for (period, cpus) in [(1, 1), (0, 2)] {
            let mut phases = TimerPhases::new(Duration::from_millis(period), cpus);
            assert_eq!([1, 100_000].map(|ms| phases.due(ms * MS)), [None; 2]);
        }
        let mut slow = TimerPhases::new(Duration::from_millis(100), 2);
        assert_eq!([1, 10_000, 13_000].map(|ms| slow.due(ms * MS)), [None, None, Some(0)]);
    }
}
