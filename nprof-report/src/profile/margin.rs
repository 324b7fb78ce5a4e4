//! Margins of error of shares that are estimated from samples. Pure.
//!
//! All reports follow one law. A share is a part of the weight. A record that represents `count`
//! observations is `count` samples, each with its part of the record's weight. A margin is the
//! distance to the share that a complete recording of the same runs would have shown; it depends on
//! the squared weights, because one sample of weight 1000 says less than 1000 samples of weight 1.
//!
//! The law also holds for a source that records a quantity of at least one period exactly, as one
//! record of this weight and a count of about weight / period, and a smaller quantity as one period,
//! with the probability quantity / period. An exactly recorded quantity has no sampling error, but a
//! reader cannot distinguish its record from one that represents `count` samples. It counts as
//! `count` observations: the margin is then at most too large, and the number of samples of such an
//! event is its weight in periods. It does not count as one observation: that would be the error of
//! a forecast for another run, which only several runs can show (nprof-diff).

use crate::profile::group::Sum;

/// The confidence of a margin of error: the probability that the interval contains the true share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence {
    percent: f64,
    z: f64,
}

impl Default for Confidence {
    /// 95 %, as in the nprofile thesis (section on accuracy).
    fn default() -> Self {
        Self { percent: 95.0, z: quantile(0.95) }
    }
}

impl Confidence {
    /// Creates a level from per cent. None unless it is above 0 and at most 99.9999.
    pub fn from_percent(percent: f64) -> Option<Self> {
        (percent > 0.0 && percent <= 99.9999)
            .then(|| Self { percent, z: quantile(percent / 100.0) })
    }

    /// Returns the level in per cent.
    pub fn percent(self) -> f64 {
        self.percent
    }

    /// Returns the number of standard deviations on either side that contain the true value.
    pub fn z(self) -> f64 {
        self.z
    }

    /// Returns the margin of error of the share of `part` in `whole`, as a fraction from 0 to 1: the
    /// distance from the share to the farther end of its Wilson score interval. Unlike the textbook
    /// (Wald) margin it is not 0 for a function seen in all samples or in none. 1 without samples.
    ///
    /// The farther end, because reports print share ± margin: the interval is not centred on the share,
    /// and half its width around the share would miss 14 % of shares of two samples, at 95 %.
    pub fn margin(self, part: Sum, whole: Sum) -> f64 {
        let n = part.effective_samples(whole);
        if n == 0.0 {
            return 1.0;
        }
        let p = part.share_of(whole);
        let z2 = self.z * self.z;
        let center = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
        let half = self.z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
        (center - p).abs() + half
    }
}

/// Returns the z for which a standard normal variable lies in -z..z with this probability.
fn quantile(probability: f64) -> f64 {
    // Bisection: 80 halvings of 0..8 exhaust the 53 bits of a double.
    let (mut low, mut high) = (0.0, 8.0);
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if within(middle) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// Returns the probability that a standard normal variable lies in -z..z, by the series of
/// Abramowitz and Stegun 26.2.11; all terms are positive, so nothing cancels.
fn within(z: f64) -> f64 {
    let mut term = z;
    let mut sum = z;
    let mut odd = 1.0;
    // Half the precision of a double: smaller terms no longer change the sum.
    while term > sum * 1e-17 {
        odd += 2.0;
        term *= z * z / odd;
        sum += term;
    }
    2.0 * sum * (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantile_matches_tables() {
        assert!((quantile(0.95) - 1.959_963_984_540_054).abs() < 1e-12);
        assert!((quantile(0.99) - 2.575_829_303_548_9).abs() < 1e-10);
        assert!((quantile(0.682_689_492_137_086) - 1.0).abs() < 1e-12);
        assert!((quantile(0.999_999) - 4.891_638_475_7).abs() < 1e-8);
    }

    #[test]
    fn level_outside_of_its_range_is_refused() {
        for wrong in [0.0, -1.0, 100.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Confidence::from_percent(wrong), None);
        }
    }

    /// Returns the sum of samples of one weight.
    fn equal(samples: u64) -> Sum {
        Sum::of(samples, 7 * samples)
    }

    #[test]
    fn margin_reaches_the_far_end_of_the_published_wilson_interval() {
        // Wilson interval of 10 in 100 at 95 %: 0.0552 to 0.1744.
        let margin = Confidence::default().margin(equal(10), equal(100));
        assert!((margin - (0.174_366 - 0.1)).abs() < 1e-6, "{margin}");
        // Of 0 in 10: 0 to 0.2775.
        let margin = Confidence::default().margin(equal(0), equal(10));
        assert!((margin - 0.277_533).abs() < 1e-6, "{margin}");
    }

    proptest! {
        #[test]
        fn margin_is_at_most_nprofiles_maximum(part in 0..1000u64, more in 0..1000u64) {
            let whole = part + more;
            let margin = Confidence::default().margin(equal(part), equal(whole));
            prop_assert!(margin > 0.0 && margin <= 1.0);
            if whole > 0 {
                // 0.98 is half of z, rounded up.
                prop_assert!(margin <= 0.98 / (whole as f64).sqrt());
            }
        }
    }
}
