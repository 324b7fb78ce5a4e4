//! The difference of two counted shares, for a single run on either side.
//!
//! The hybrid score interval of the difference of two proportions (R. G. Newcombe, Statistics in
//! Medicine 17:873-890, 1998, method 10), made of two Wilson score intervals (E. B. Wilson, JASA
//! 22:209-212, 1927). For scaled proportions (CPU time) it is the general form (G. Y. Zou and
//! A. Donner, Statistics in Medicine 27:1693-1702, 2008).

use crate::stats::Estimate;
use crate::stats::distributions::{MAX_Z, normal_p, normal_quantile};

/// A counted share with the value `scale * hits / trials`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proportion {
    /// Samples of the key; at most `trials`. Samples of unequal weights count as fewer.
    pub(crate) hits: f64,
    /// All samples.
    pub(crate) trials: f64,
    /// The value of a share of 1; 1 for the share itself.
    pub(crate) scale: f64,
}

impl Proportion {
    fn value(self) -> f64 {
        if self.trials == 0.0 { 0.0 } else { self.scale * self.hits / self.trials }
    }

    /// Returns the distances from the value down and up to the Wilson limits for the normal
    /// quantile `z`.
    fn limit_distances(self, z: f64) -> (f64, f64) {
        let (low, high) = wilson(self.hits, self.trials, z);
        // Rounding can put a limit on the wrong side of the value by one unit in the last place.
        ((self.value() - self.scale * low).max(0.0), (self.scale * high - self.value()).max(0.0))
    }
}

/// Returns the Wilson score limits of `hits` of `trials`, for the normal quantile `z`.
fn wilson(hits: f64, trials: f64, z: f64) -> (f64, f64) {
    if trials == 0.0 {
        return (0.0, 1.0);
    }
    let n = trials;
    let p = hits / n;
    let z2 = z * z;
    let centre = p + z2 / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    // At the ends of the scale the limits are exactly 0 and 1; the formula only comes close.
    let low = if hits == 0.0 { 0.0 } else { (centre - half) / (1.0 + z2 / n) };
    let high = if hits == trials { 1.0 } else { (centre + half) / (1.0 + z2 / n) };
    (low.clamp(0.0, p), high.clamp(p, 1.0))
}

/// Returns the limits of the difference of two independent proportions, for the normal quantile
/// `z`.
fn limits(base: Proportion, new: Proportion, z: f64) -> (f64, f64) {
    let difference = new.value() - base.value();
    let (base_below, base_above) = base.limit_distances(z);
    let (new_below, new_above) = new.limit_distances(z);
    // The lower limit combines the lower limit of new with the upper limit of base (Newcombe 1998,
    // method 10).
    (difference - new_below.hypot(base_above), difference + new_above.hypot(base_below))
}

/// Returns the difference of two independent proportions, with its interval of confidence
/// 1 - `alpha`.
pub(crate) fn newcombe(base: Proportion, new: Proportion, alpha: f64) -> Estimate {
    let (low, high) = limits(base, new, normal_quantile(alpha));
    Estimate { base: base.value(), new: new.value(), low, high, p: p_value(base, new) }
}

/// True if the interval of this width does not contain zero.
fn excludes_zero(base: Proportion, new: Proportion, z: f64) -> bool {
    let (low, high) = limits(base, new, z);
    if new.value() > base.value() { low > 0.0 } else { high < 0.0 }
}

/// Returns the p-value at which the interval just reaches zero.
fn p_value(base: Proportion, new: Proportion) -> f64 {
    if !excludes_zero(base, new, 0.0) {
        return 1.0;
    }
    // The interval grows with z: bisection finds the z at which it reaches zero. 48 halvings of
    // MAX_Z come to 1.4e-13, below the accuracy of the normal tail.
    let (mut excluded, mut reached) = (0.0, MAX_Z);
    for _ in 0..48 {
        let z = f64::midpoint(excluded, reached);
        if excludes_zero(base, new, z) {
            excluded = z;
        } else {
            reached = z;
        }
    }
    normal_p(excluded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::reference::{ReferenceCase, assert_close, reference_cases};
    use proptest::prelude::*;

    fn counted(hits: u64, trials: u64) -> Proportion {
        Proportion { hits: hits as f64, trials: trials as f64, scale: 1.0 }
    }

    #[test]
    fn wilson_limits_match_statsmodels() {
        for case in reference_cases("wilson") {
            let [hits, trials, alpha] = case.numbers("in");
            let (low, high) = wilson(hits, trials, normal_quantile(alpha));
            let [expected_low, expected_high] = case.numbers("out");
            assert_close(low, expected_low);
            assert_close(high, expected_high);
        }
        assert_eq!(wilson(0.0, 0.0, 1.96), (0.0, 1.0));
    }

    fn proportions(case: &ReferenceCase) -> (Proportion, Proportion, f64) {
        let [base, base_of, new, new_of, alpha] = case.numbers("in");
        (counted(base as u64, base_of as u64), counted(new as u64, new_of as u64), alpha)
    }

    #[test]
    fn limits_and_p_match_statsmodels() {
        // The first case is also example (a) of Newcombe's table II: 0.0524, 0.3339.
        for case in reference_cases("newcombe") {
            let (base, new, alpha) = proportions(&case);
            let got = newcombe(base, new, alpha);
            let [low, high, p] = case.numbers("out");
            assert_close(got.low, low);
            assert_close(got.high, high);
            assert_close(got.p, p);
            assert_close(newcombe(new, base, alpha).p, p);
        }
        assert_eq!(newcombe(counted(7, 7), counted(7, 7), 0.05).p, 1.0);
        let certain = newcombe(counted(0, 1 << 40), counted(1 << 40, 1 << 40), 0.05);
        assert_eq!(certain.p, 0.0);
    }

    fn proportion() -> impl Strategy<Value = Proportion> {
        (any::<u64>(), 1..u64::MAX, 0u32..60, 1e-3..1e12).prop_map(
            |(hits, trials, shift, scale)| {
                // Whole numbers that a double holds exactly.
                let trials = (trials >> shift.max(12)).max(1);
                Proportion { scale, ..counted(hits % (trials + 1), trials) }
            },
        )
    }

    proptest! {
        #[test]
        fn newcombe_interval_contains_difference_and_agrees_with_p(base in proportion(), new in proportion(), alpha in 1e-6..0.9) {
            let got = newcombe(base, new, alpha);
            prop_assert!(got.low <= got.difference() && got.difference() <= got.high);
            prop_assert!(got.high <= new.scale * (1.0 + 1e-9) && got.low >= -base.scale * (1.0 + 1e-9));
            prop_assert!((0.0..=1.0).contains(&got.p));
            let swapped = newcombe(new, base, alpha);
            prop_assert_eq!((got.low, got.high, got.p), (-swapped.high, -swapped.low, swapped.p));
            if (got.p / alpha - 1.0).abs() > 1e-6 {
                prop_assert_eq!(got.p < alpha, got.low > 0.0 || got.high < 0.0);
            }
        }
    }
}
