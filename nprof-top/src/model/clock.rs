//! The time of a live stream between its samples.

/// The time after which samples that are still missing are taken for absent: nprof-record flushes its stream
/// each second, and nprof-symbolize may keep it for half of one.
const LAG_NS: u64 = 2_000_000_000;

/// The time of the recorded programs, from the beginning of the segment.
///
/// It is the time of the latest sample. Programs that wait have no samples, and their time goes on
/// nevertheless: then it follows the clock of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    now_ns: u64,
    /// The largest difference so far between the time of a sample and that of its arrival.
    lead_ns: Option<i128>,
}

impl Clock {
    /// Notes a sample that arrived at `at_ns` by the clock of this process.
    pub(super) fn note(&mut self, time_ns: u64, at_ns: u64) {
        self.now_ns = self.now_ns.max(time_ns);
        // Two unrelated clocks: the difference may be negative.
        let lead_ns = i128::from(time_ns) - i128::from(at_ns);
        self.lead_ns = Some(self.lead_ns.map_or(lead_ns, |lead| lead.max(lead_ns)));
    }

    /// Moves on to the time `at_ns` of the clock of this process.
    pub(super) fn advance(&mut self, at_ns: u64) {
        let Some(lead_ns) = self.lead_ns else { return };
        let now_ns = i128::from(at_ns) + lead_ns - i128::from(LAG_NS);
        self.now_ns = self.now_ns.max(u64::try_from(now_ns).unwrap_or(0));
    }

    /// Returns the time.
    pub(super) fn now_ns(self) -> u64 {
        self.now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn time_is_that_of_the_latest_sample() {
        let mut clock = Clock::default();
        clock.advance(9 * SECOND);
        assert_eq!(clock.now_ns(), 0);
        clock.note(5 * SECOND, 10 * SECOND);
        clock.note(4 * SECOND, 10 * SECOND);
        clock.advance(11 * SECOND);
        assert_eq!(clock.now_ns(), 5 * SECOND);
    }

    #[test]
    fn time_goes_on_without_samples_and_never_back() {
        let mut clock = Clock::default();
        clock.note(5 * SECOND, 10 * SECOND);
        clock.advance(20 * SECOND);
        assert_eq!(clock.now_ns(), 13 * SECOND);
        // It arrived late.
        clock.note(6 * SECOND, 20 * SECOND);
        clock.advance(15 * SECOND);
        assert_eq!(clock.now_ns(), 13 * SECOND);
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        let mut clock = Clock::default();
        clock.note(u64::MAX, 0);
        clock.advance(u64::MAX);
        clock.note(0, u64::MAX);
        assert_eq!(clock.now_ns(), u64::MAX);
    }
}
