//! Chooses the allocations to record, by bytes and without bias. Pure.
//!
//! The bytes of a thread's small allocations are divided into periods of R bytes. Each period has one point at a
//! random byte, and an allocation represents R bytes for each point in it: every byte is a point with probability
//! 1/R, so that the expected number of points is `size / R`, for sums of bytes and for counts. An allocation of at
//! least R bytes is always recorded, with its exact size, and takes no part in the division.

/// The least bytes of a part of a period, after which a thread looks whether the wanted period is shorter by now.
const PART_MIN: u64 = 64 << 10;

/// The most parts of a period, as a power of two: a large allocation steps through them.
const PARTS_BITS: u32 = 10;

/// The state of one thread's sampling.
///
/// The thread goes from stop to stop: the point of the period, the ends of its parts, which all but the first have the
/// same length, and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sampler {
    /// The bytes up to and including the next stop. The hooks subtract the size of each allocation; `take` must be
    /// called when the rest is not positive. At most R, so that an allocation of R bytes always leads to `take`; 0 if
    /// every allocation is recorded.
    pub(crate) remaining: i64,
    /// The bytes from the stop to the point; negative if the point is passed.
    pub(crate) to_point: i64,
    /// The bytes from the stop to the end of the period.
    pub(crate) to_end: u64,
    /// R; 0 before the first call of `take`.
    pub(crate) period: u64,
}

/// A chosen allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The number of periods that it represents.
    pub(crate) count: u32,
    /// The bytes that it represents.
    pub(crate) weight: u64,
    /// The period it was chosen with.
    pub(crate) period: u64,
}

impl Sampler {
    /// Creates a state at the end of a period, before a new one.
    fn before_period(remaining: i64, period: u64) -> Self {
        Sampler { remaining, to_point: -1, to_end: 0, period }
    }

    /// Decides about an allocation of `size` bytes, which `remaining` already lacks. `period` is the wanted period,
    /// at least 1: it takes effect after an allocation of at least the present one. Else a longer one does at the end
    /// of the present period, since a period that ends at its point would have more points than its bytes, and a
    /// shorter one at the end of a part.
    pub(crate) fn take(
        &mut self,
        size: u64,
        period: u64,
        random: &mut impl FnMut() -> u64,
    ) -> Option<Sample> {
        if self.period == 0 {
            *self = Sampler::before_period(-(size as i64), period);
        }
        if self.period == 1 && period == 1 {
            *self = Sampler::before_period(0, period);
            let count = size.min(u64::from(u32::MAX)) as u32;
            return Some(Sample { count, weight: size, period });
        }
        let current = self.period;
        if size >= current || current == 1 {
            self.remaining += size as i64;
            let more = below(current, random()) < size % current;
            let count =
                (size / current).saturating_add(u64::from(more)).min(u64::from(u32::MAX)) as u32;
            // A thread of large allocations would never come to the end of its period. To cut it here has no bias:
            // the place of the allocation does not depend on that of the point.
            if period != current {
                *self = Sampler::before_period(0, period);
            }
            self.settle(period, random);
            return Some(Sample { count, weight: size, period: current });
        }
        let points = self.settle(period, random);
        (points.count > 0).then_some(points)
    }

    /// Moves on to the next stop after the allocation; returns the points in it.
    ///
    /// A thread that waited for the end of a long period would miss all that it allocates until then. The ends of parts
    /// are where they are wherever the point is, so that a period that ends there has `bytes / R` points in expectation,
    /// too.
    fn settle(&mut self, period: u64, random: &mut impl FnMut() -> u64) -> Sample {
        let mut points = Sample { count: 0, weight: 0, period: self.period };
        while self.remaining <= 0 {
            if self.to_point == 0 {
                points.count = points.count.saturating_add(1);
                points.weight += self.period;
                points.period = self.period;
                self.to_point = -1;
            }
            let is_end_of_part = self.to_end.is_multiple_of(part(self.period));
            if self.to_end == 0 || is_end_of_part && period < self.period {
                self.period = period;
                if period == 1 {
                    *self = Sampler::before_period(0, period);
                    break;
                }
                self.to_point = below(period, random()) as i64 + 1;
                self.to_end = period;
            }
            let part = part(self.period);
            let rest = self.to_end % part;
            let mut to_stop = if rest == 0 { part } else { rest };
            if self.to_point > 0 {
                to_stop = to_stop.min(self.to_point as u64);
            }
            self.remaining += to_stop as i64;
            self.to_end -= to_stop;
            if self.to_point > 0 {
                self.to_point -= to_stop as i64;
            }
        }
        points
    }
}

/// Returns the bytes of a part of a period.
fn part(period: u64) -> u64 {
    PART_MIN.max(period >> PARTS_BITS)
}

/// Returns a number below `limit` from 64 random bits.
fn below(limit: u64, random: u64) -> u64 {
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}

/// Advances the state of a generator (splitmix64, Steele and others, OOPSLA 2014) and returns 64 bits.
pub(crate) fn next_random(state: u64) -> (u64, u64) {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (state, bits ^ (bits >> 31))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a generator of random bits.
    fn random_from(mut state: u64) -> impl FnMut() -> u64 {
        move || {
            let (next, bits) = next_random(state);
            state = next;
            bits
        }
    }

    /// Allocates as the hooks do; returns the sums of weights and counts.
    fn run(sizes: &[u64], period: u64, seed: u64) -> (u64, u64) {
        let mut random = random_from(seed);
        let mut sampler = Sampler::default();
        let (mut weight, mut count) = (0, 0);
        for &size in sizes {
            sampler.remaining -= size as i64;
            if sampler.remaining > 0 {
                assert!(
                    size < sampler.period,
                    "{size} bytes skipped with a period of {}",
                    sampler.period
                );
                continue;
            }
            if let Some(sample) = sampler.take(size, period, &mut random) {
                weight += sample.weight;
                count += u64::from(sample.count);
            }
            assert!(sampler.remaining <= sampler.period as i64);
        }
        (weight, count)
    }

    #[test]
    fn period_of_one_records_every_allocation() {
        let sizes: Vec<u64> = (0..1000).map(|index| index % 77).collect();
        let sum = sizes.iter().sum::<u64>();
        assert_eq!(run(&sizes, 1, 3), (sum, sum));
    }

    #[test]
    fn large_allocations_have_their_exact_weight() {
        let sizes = [4096, 10_000, 4097, 1 << 30];
        assert_eq!(run(&sizes, 4096, 5).0, sizes.iter().sum::<u64>());
    }

    #[test]
    fn sums_differ_by_less_than_a_period_in_one_thread() {
        for seed in 0..200 {
            let sizes: Vec<u64> = (0..5000).map(|index| 16 + index * 7919 % 900).collect();
            let sum = sizes.iter().sum::<u64>();
            let (weight, count) = run(&sizes, 1000, seed);
            assert!(weight.abs_diff(sum) < 1000, "{weight} of {sum}, seed {seed}");
            assert_eq!(weight, count * 1000);
        }
    }

    /// The mean over seeds has a standard error of 0.05 %, so that the bound is at ten of them.
    #[test]
    fn mean_over_seeds_is_the_sum_of_bytes() {
        let sizes = [24, 600, 8, 4000, 100, 1];
        let sum = sizes.iter().sum::<u64>() as f64;
        let seeds = 400_000;
        let total = (0..seeds).map(|seed| run(&sizes, 5000, seed * 7919).0 as f64).sum::<f64>();
        let mean = total / seeds as f64;
        assert!((mean / sum - 1.0).abs() < 0.005, "{mean} instead of {sum}");
    }

    /// A place that allocates blocks of `base` bytes to twice as many.
    #[derive(Clone, Copy, Default)]
    struct Site {
        base: u64,
        calls: u64,
        bytes: u64,
        /// The bytes of the blocks that are smaller than a period.
        sampled_bytes: f64,
        /// The sum of their numbers in a period: the variance of the estimated number of calls.
        sampled_calls: f64,
    }

    /// Returns sites of 16 bytes to 64 MiB, and the blocks of all, in an order that a stride mixes: the number of
    /// the site and the size.
    fn sites(number: usize, period: u64) -> (Vec<Site>, Vec<(usize, u64)>) {
        let mut sites = vec![Site::default(); number];
        let mut blocks = Vec::new();
        for (at, site) in sites.iter_mut().enumerate() {
            site.base = (16.0 * 2_f64.powf(22.0 * at as f64 / (number - 1) as f64)) as u64;
            for index in 0..(8 * period / site.base).max(10) {
                let size = site.base + index * 7919 % site.base;
                site.calls += 1;
                site.bytes += size;
                if size < period {
                    site.sampled_bytes += size as f64;
                    site.sampled_calls += period as f64 / size as f64;
                }
                blocks.push((at, size));
            }
        }
        (sites, blocks)
    }

    /// 200 sites with 200 seeds. Blocks of at least a period are exact. Of the other sites, bytes and calls are within
    /// three standard errors in 99 % of all cases, the mean of each over all seeds is within five standard errors,
    /// and the sum of all is within 0.5 %.
    #[test]
    fn sites_are_exact_or_within_their_margins() {
        let (period, seeds) = (16_384, 200);
        let (sites, blocks) = sites(200, period);
        let (mut rows, mut missed, mut all, mut truth) = (0_u64, 0_u64, 0_f64, 0_f64);
        let mut sums = vec![0.0; sites.len()];
        for seed in 0..seeds {
            let mut random = random_from(seed * 7919);
            let mut found = vec![(0_u64, 0_f64); sites.len()];
            let mut sampler = Sampler::default();
            let stride = blocks.len() * 618 / 1000 + 2 * seed as usize;
            let stride = (stride..).find(|it| gcd(*it, blocks.len()) == 1).expect("a number");
            for step in 0..blocks.len() {
                let (at, size) = blocks[step * stride % blocks.len()];
                sampler.remaining -= size as i64;
                if sampler.remaining <= 0
                    && let Some(sample) = sampler.take(size, period, &mut random)
                {
                    found[at].0 += sample.weight;
                    found[at].1 += sample.weight as f64 / size as f64;
                }
            }
            for (at, (site, (bytes, calls))) in sites.iter().zip(found).enumerate() {
                sums[at] += bytes as f64;
                if site.base >= period {
                    assert_eq!((bytes, calls), (site.bytes, site.calls as f64), "{}", site.base);
                    continue;
                }
                let bytes_error = (site.sampled_bytes * period as f64).sqrt();
                let calls_error = site.sampled_calls.sqrt();
                let is_near = (bytes as f64 - site.bytes as f64).abs() <= 3.0 * bytes_error
                    && (calls - site.calls as f64).abs() <= 3.0 * calls_error;
                all += bytes as f64;
                truth += site.bytes as f64;
                rows += 1;
                missed += u64::from(!is_near);
            }
        }
        assert!(missed * 100 <= rows, "{missed} of {rows} are outside");
        for (site, sum) in sites.iter().zip(sums) {
            let (mean, error) =
                (sum / seeds as f64, (site.sampled_bytes * period as f64 / seeds as f64).sqrt());
            let distance = (mean - site.bytes as f64).abs();
            assert!(distance <= 5.0 * error, "{mean} instead of {} of {}", site.bytes, site.base);
        }
        assert!((all / truth - 1.0).abs() < 0.005, "{all} instead of {truth}");
    }

    fn gcd(one: usize, other: usize) -> usize {
        if other == 0 { one } else { gcd(other, one % other) }
    }

    /// Allocates 4000 blocks with a long period, then others with a short one; returns the weight of the latter.
    fn weight_after_burst(sizes: &[u64], seed: u64) -> u64 {
        let mut random = random_from(seed);
        let mut sampler = Sampler::default();
        let mut weight_of = |sizes: &[u64], period| {
            let mut weight = 0;
            for &size in sizes {
                sampler.remaining -= size as i64;
                if sampler.remaining <= 0 {
                    weight += sampler.take(size, period, &mut random).map_or(0, |it| it.weight);
                }
            }
            weight
        };
        weight_of(&[65_536; 4000], 1 << 28);
        weight_of(sizes, 4096)
    }

    #[test]
    fn any_period_takes_effect_after_a_large_allocation() {
        let mut random = random_from(7);
        let mut sampler = Sampler::default();
        for period in [4096, 1 << 20, 8192, 1, 1 << 40, 4096] {
            sampler.remaining -= 1 << 42;
            let sample = sampler.take(1 << 42, period, &mut random).expect("it is large");
            assert_eq!((sample.weight, sampler.period), (1 << 42, period));
        }
    }

    /// The mean over seeds has a standard error of 0.2 %.
    #[test]
    fn small_allocations_between_changes_of_the_period_have_no_bias() {
        let sizes = [24, 600, 8, 3000, 100, 1];
        let (rounds, seeds) = (20, 20_000);
        let mut total = 0.0;
        for seed in 0..seeds {
            let mut random = random_from(seed * 7919);
            let mut sampler = Sampler::default();
            for round in 0..rounds {
                let period = if round % 3 == 0 { 5000 } else { 9000 };
                for size in sizes.into_iter().chain([1 << 20]) {
                    sampler.remaining -= size as i64;
                    if sampler.remaining <= 0
                        && let Some(sample) = sampler.take(size, period, &mut random)
                        && size < 1 << 20
                    {
                        total += sample.weight as f64;
                    }
                }
            }
        }
        let mean = total / (seeds * rounds) as f64;
        let truth = sizes.iter().sum::<u64>() as f64;
        assert!((mean / truth - 1.0).abs() < 0.01, "{mean} instead of {truth}");
    }

    #[test]
    fn shorter_period_takes_effect_within_a_part() {
        for seed in 0..100 {
            let weight = weight_after_burst(&[1 << 20; 50], seed);
            // The point of the period may be in its last part.
            let missed = part(1 << 28) + 4096;
            assert!(weight.abs_diff(50 << 20) <= missed || weight >= 1 << 28, "{weight}");
            let weight = weight_after_burst(&[100; 100_000], seed);
            assert!(weight.abs_diff(10_000_000) <= missed || weight >= 1 << 28, "{weight}");
        }
    }

    /// The sum of 40,000 runs has a standard error of 0.4 %.
    #[test]
    fn end_of_period_at_a_part_keeps_the_mean() {
        let (mut weight, mut bytes) = (0.0, 0.0);
        let mut random = random_from(5);
        for run in 0..40_000_u64 {
            let mut sampler = Sampler::default();
            for step in 0..60 {
                let size = 1 + (run + step * 7919) % 20_000;
                let period = if step < 10 + run % 40 { 1 << 20 } else { 1 << 16 };
                sampler.remaining -= size as i64;
                bytes += size as f64;
                if sampler.remaining <= 0
                    && let Some(sample) = sampler.take(size, period, &mut random)
                {
                    weight += sample.weight as f64;
                }
            }
        }
        assert!((weight / bytes - 1.0_f64).abs() < 0.02, "{weight} instead of {bytes}");
    }

    #[test]
    fn change_of_period_keeps_the_mean() {
        let mut random = random_from(11);
        let (mut weight, mut bytes) = (0.0, 0.0);
        let mut sampler = Sampler::default();
        for step in 0..2_000_000_u64 {
            let size = 16 + step * 7919 % 300;
            let period = 1000 << (step / 37 % 4);
            sampler.remaining -= size as i64;
            bytes += size as f64;
            if sampler.remaining <= 0
                && let Some(sample) = sampler.take(size, period, &mut random)
            {
                weight += sample.weight as f64;
            }
        }
        assert!((weight / bytes - 1.0_f64).abs() < 0.001, "{weight} instead of {bytes}");
    }
}
