//! Margins of error of shares that are estimated from samples.

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

    /// Returns the margin of error of the share `part` of `whole` samples, as a fraction from 0 to
    /// 0.5: half the width of the Wilson score interval. Unlike the textbook (Wald) margin it is not
    /// 0 for a function seen in all samples or in none. 0.5 without samples.
    pub fn margin(self, part: u64, whole: u64) -> f64 {
        if whole == 0 {
            return 0.5;
        }
        let n = whole as f64;
        // Saturated sums can make the part exceed the whole.
        let p = (part as f64 / n).min(1.0);
        let z2 = self.z * self.z;
        self.z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt()
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

    #[test]
    fn margin_matches_published_wilson_interval() {
        // Wilson interval of 10 in 100 at 95 %: 0.0552 to 0.1744.
        let margin = Confidence::default().margin(10, 100);
        assert!((margin - (0.174_367 - 0.055_229) / 2.0).abs() < 1e-6, "{margin}");
    }

    proptest! {
        #[test]
        fn margin_is_at_most_nprofiles_maximum(part in 0..100_000u64, more in 0..100_000u64) {
            let whole = part + more;
            let margin = Confidence::default().margin(part, whole);
            prop_assert!(margin > 0.0 && margin <= 0.5);
            if whole > 0 {
                prop_assert!(margin <= 0.98 / (whole as f64).sqrt());
            }
        }
    }
}
