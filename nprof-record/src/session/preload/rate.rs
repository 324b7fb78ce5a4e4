//! The distance of samples, adapted to the rate at which a process allocates or calls. Pure.

/// The distances to which it is adapted, in bytes.
///
/// Of a process that allocates 10 GB in a second, 250 samples are 40 MB apart: what it keeps, and a peak of 20 MB, would
/// be missed. It has up to 5000 of them for a distance of 2 MiB, which takes some per cent of a CPU.
pub(super) const HEAP_PERIODS: Periods =
    Periods { least: 4 << 10, usual_most: 2 << 20, factor: 20 };

/// The same in calls.
pub(super) const CALL_PERIODS: Periods = Periods { least: 1, usual_most: PERIOD_MAX, factor: 1 };

/// The largest distance to which it is adapted.
const PERIOD_MAX: u64 = 1 << 40;

/// The time in seconds in which the allocations or calls of a process lose their weight, by a factor of e. A burst of
/// some ms then has more samples than the same time later, and its rate alone does not decide on the samples that
/// follow: a burst of 0.9 GB in 10 ms takes 2000, and ends with a distance of 2 MiB, a second later 0.5 MiB.
const MEMORY_S: f64 = 0.5;

/// The most periods for which a sample counts. A block of many periods takes one sample, however large it is: a reserve
/// of a TiB must not raise the distance.
const PERIODS_MAX: u64 = 16;

/// The distances to which a distance is adapted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Periods {
    least: u64,
    /// The largest at which the number of samples per second is no more than this factor of the wanted one.
    usual_most: u64,
    factor: u64,
}

/// The rate of a process, of memory or of calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// The time up to which `amount` was reduced.
    reduced_ns: u64,
    /// The bytes or calls that its samples represent, reduced by their age.
    amount: f64,
    periods: Periods,
}

impl Rate {
    /// Creates the rate of a process that starts at a time.
    pub(super) fn since(now_ns: u64, periods: Periods) -> Self {
        Self { reduced_ns: now_ns, amount: 0.0, periods }
    }

    /// Adds a sample that represents `weight` and was chosen with a distance.
    pub(super) fn add(&mut self, weight: u64, period: u64) {
        self.amount += weight.min(period.saturating_mul(PERIODS_MAX)) as f64;
    }

    /// Returns the distance of samples after `now_ns`, given the one before. None if it stays.
    pub(super) fn adapted(
        &mut self,
        now_ns: u64,
        period: u64,
        samples_per_second: u64,
    ) -> Option<u64> {
        let elapsed_s = now_ns.saturating_sub(self.reduced_ns) as f64 * 1e-9;
        self.reduced_ns = now_ns;
        // At a steady rate it is that of `MEMORY_S`.
        self.amount *= (-elapsed_s / MEMORY_S).exp();
        let Periods { least, usual_most, factor } = self.periods;
        let wanted = (self.amount / (samples_per_second as f64 * MEMORY_S)) as u64;
        let wanted = wanted.min(usual_most.max(wanted / factor)).clamp(least, PERIOD_MAX);
        // Threads take a change over at the end of a period or of a part: small ones are left out.
        let is_near = wanted > period / 4 * 3 && wanted / 5 * 4 < period;
        (!is_near).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const MIB: u64 = 1 << 20;

    /// Allocates `bytes_per_ms` in small blocks up to a time, sampled by the distance; returns it and the number of
    /// samples.
    fn run(
        rate: &mut Rate,
        mut period: u64,
        ms: std::ops::Range<u64>,
        bytes_per_ms: u64,
    ) -> (u64, u64) {
        let (mut rest, mut samples) = (0, 0);
        for at in ms {
            rest += bytes_per_ms;
            // The recorder reads the ring whenever it is half full.
            while rest >= period {
                for _ in 0..(rest / period).min(64) {
                    rate.add(period, period);
                    rest -= period;
                    samples += 1;
                }
                period = rate.adapted(at * MS, period, 500).unwrap_or(period);
            }
            period = rate.adapted(at * MS, period, 500).unwrap_or(period);
        }
        (period, samples)
    }

    #[test]
    fn steady_rate_has_the_requested_samples() {
        // 3 GiB a second are 1500 times 2 MiB, 1 TiB has twenty times the samples.
        let rates = [(100 << 10, 5000), (MIB, 5000), (3 * MIB, 15_000), (1 << 30, 100_000)];
        for (bytes_per_ms, expected) in rates {
            let mut rate = Rate::since(0, HEAP_PERIODS);
            let (period, first) = run(&mut rate, 64 << 10, 0..3000, bytes_per_ms);
            let (_, samples) = run(&mut rate, period, 3000..13_000, bytes_per_ms);
            let range = expected / 5 * 4..expected / 5 * 7;
            assert!(range.contains(&samples), "{samples} in 10 s of {bytes_per_ms}");
            assert!(first < expected / 5 * 9, "{first}");
        }
    }

    #[test]
    fn distance_recovers_after_a_burst() {
        let mut rate = Rate::since(0, HEAP_PERIODS);
        let (period, samples) = run(&mut rate, 64 << 10, 0..10, 90 * MIB);
        assert!((MIB..=2 * MIB).contains(&period), "{period}");
        assert!(samples < 2500, "{samples}");
        let (period, _) = run(&mut rate, period, 10..1010, 0);
        assert!(period < MIB, "{period}");
        assert!(run(&mut rate, period, 1010..5000, 0).0 < 5000);
    }

    #[test]
    fn distance_follows_the_size_of_blocks_that_are_recorded_exactly() {
        let (mut rate, mut period) = (Rate::since(0, HEAP_PERIODS), HEAP_PERIODS.least);
        let mut samples = 0;
        for at in 0..2000 {
            // 300 blocks of a MiB in each ms.
            let number = if period <= MIB { 300 } else { 300 * MIB / period };
            (0..number).for_each(|_| rate.add(period.max(MIB), period));
            samples += number;
            period = rate.adapted(at * MS, period, 500).unwrap_or(period);
        }
        assert!(period > 8 * MIB && samples < 80_000, "{period} {samples}");
    }

    #[test]
    fn block_of_a_tebibyte_leaves_the_distance() {
        let mut rate = Rate::since(0, HEAP_PERIODS);
        rate.add(1 << 40, HEAP_PERIODS.least);
        assert_eq!(rate.adapted(MS, HEAP_PERIODS.least, 500), None);
    }
}
