//! The distance of samples, adapted to the rate at which a process allocates or calls. Pure.

/// The smallest distances in bytes and in calls to which it is adapted.
pub(super) const HEAP_PERIOD_MIN: u64 = 4 << 10;
pub(super) const CALL_PERIOD_MIN: u64 = 1;

/// The largest distance to which it is adapted.
const PERIOD_MAX: u64 = 1 << 40;

/// The time over which the rate of samples is measured, and the shortest one if there are too many.
const RATE_WINDOW_NS: u64 = 100_000_000;
const RATE_WINDOW_MIN_NS: u64 = 5_000_000;

/// The largest factor by which the distance of samples grows at a time.
const GROWTH_MAX: u64 = 16;

/// The rate of the samples of a process, of memory or of calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    since_ns: u64,
    samples: u64,
    /// Consecutive windows with few samples.
    quiet: u32,
    /// The smallest distance.
    least: u64,
}

impl Rate {
    /// Creates the rate of a process that starts at a time, with a smallest distance.
    pub(super) fn since(now_ns: u64, least: u64) -> Self {
        Self { since_ns: now_ns, least, ..Self::default() }
    }

    /// Adds samples.
    pub(super) fn add(&mut self, samples: u64) {
        self.samples += samples;
    }

    /// Returns the distance of samples after `now_ns`, given the one before. None if it stays.
    pub(super) fn adapted(
        &mut self,
        now_ns: u64,
        period: u64,
        samples_per_second: u64,
    ) -> Option<u64> {
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        let wanted_in = |time_ns: u64| {
            let wanted = u128::from(samples_per_second) * u128::from(time_ns) / 1_000_000_000;
            u64::try_from(wanted).unwrap_or(u64::MAX).max(1)
        };
        let samples = self.samples;
        // More than a window allows: threads that allocate gigabytes per second would wait for room in their ring
        // until its end.
        let is_burst = samples > 2 * wanted_in(RATE_WINDOW_NS);
        if elapsed_ns < RATE_WINDOW_NS && !is_burst {
            return None;
        }
        // The first drain of a process may come after microseconds, which say nothing of a second.
        let wanted = wanted_in(elapsed_ns.max(RATE_WINDOW_MIN_NS));
        (self.samples, self.since_ns) = (0, now_ns);
        if samples > wanted {
            self.quiet = 0;
            let factor = samples.div_ceil(wanted).next_power_of_two().min(GROWTH_MAX);
            return Some(period.saturating_mul(factor).min(PERIOD_MAX));
        }
        self.quiet = if samples < wanted / 4 { self.quiet + 1 } else { 0 };
        // A short pause does not mean that the next phase allocates less.
        if self.quiet < 10 || period <= self.least {
            return None;
        }
        self.quiet = 0;
        Some((period / 2).max(self.least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_grows_at_once_and_shrinks_after_a_second() {
        let least = HEAP_PERIOD_MIN;
        let mut rate = Rate { samples: 200, least, ..Rate::default() };
        assert_eq!(rate.adapted(RATE_WINDOW_NS / 2, 4096, 1000), None, "the window is not over");
        rate.samples = 900;
        let growth = rate.adapted(RATE_WINDOW_NS / 2, 4096, 1000);
        assert_eq!(growth, Some(4096 * 16), "18 times too many, and more than in a window");
        rate = Rate { samples: 900, least, ..Rate::default() };
        assert_eq!(rate.adapted(RATE_WINDOW_NS, 4096, 1000), Some(4096 * 16), "9 times too many");
        assert_eq!(rate.adapted(RATE_WINDOW_NS, 4096, 1000), None, "it begins again");
        rate.samples = 101;
        assert_eq!(rate.adapted(2 * RATE_WINDOW_NS, 4096, 1000), Some(8192), "one too many");
        for window in 3..12 {
            assert_eq!(rate.adapted(window * RATE_WINDOW_NS, 65536, 1000), None, "{window}");
        }
        assert_eq!(rate.adapted(12 * RATE_WINDOW_NS, 65536, 1000), Some(32768));
        for window in 13..40 {
            assert_eq!(rate.adapted(window * RATE_WINDOW_NS, least, 1000), None, "{window}");
        }
    }
}
