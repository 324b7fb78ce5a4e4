//! The difference of two means of runs, for two or more runs on both sides.
//!
//! The interval and test for unequal variances (B. L. Welch, Biometrika 34:28-35, 1947), with the
//! degrees of freedom of Welch and F. E. Satterthwaite (Biometrics Bulletin 2:110-114, 1946). The
//! limits of each side are cut at the range of its values (a share lies in 0..1, time is not
//! negative), and combined by the method of variance estimates recovery (G. Y. Zou and A. Donner,
//! Statistics in Medicine 27:1693-1702, 2008); if no limit is cut, that is Welch's interval.

use crate::stats::Estimate;
use crate::stats::distributions::{student_p, student_quantile};

/// Mean and variance of one value over the runs of a side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// The number of runs; at least two.
    pub(crate) runs: usize,
    /// The mean over the runs.
    pub(crate) mean: f64,
    /// The variance between runs, of one run.
    pub(crate) variance: f64,
    /// The variance of one run if its samples were independent.
    pub(crate) sampling_variance: f64,
    /// A lower bound for the variance of one run, however well the runs agree.
    pub(crate) min_variance: f64,
}

impl Spread {
    /// Returns the spread of one value per run, without knowledge of the sampling variance. Needs
    /// at least two values.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let variance = squares / (values.len() as f64 - 1.0).max(1.0);
        Self { runs: values.len(), mean, variance, sampling_variance: 0.0, min_variance: 0.0 }
    }

    /// Returns the spread of a mean of which the variance is known, and not estimated from runs.
    pub(crate) fn known(mean: f64, variance: f64) -> Self {
        // With these degrees of freedom, the distribution is the normal one.
        let runs: usize = 1 << 30;
        let variance = variance * runs as f64;
        Self { runs, mean, variance, sampling_variance: 0.0, min_variance: 0.0 }
    }

    /// Returns the degrees of freedom of the variance.
    pub(crate) fn degrees_of_freedom(self) -> f64 {
        (self.runs as f64 - 1.0).max(1.0)
    }

    /// Returns the variance of the mean, from these runs alone.
    fn mean_variance(self) -> MeanVariance {
        MeanVariance {
            variance: self.variance.max(self.min_variance) / self.runs as f64,
            degrees_of_freedom: self.degrees_of_freedom(),
        }
    }

    /// Returns the distances from the mean down and up to the limits of its interval, cut to
    /// 0..=`max`.
    fn limit_distances(self, mean_variance: MeanVariance, quantile: f64, max: f64) -> (f64, f64) {
        let half = quantile * mean_variance.variance.sqrt();
        (half.min(self.mean), half.min((max - self.mean).max(0.0)))
    }
}

/// An estimated variance of a mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeanVariance {
    /// The variance of the mean.
    pub(super) variance: f64,
    /// The degrees of freedom of that variance.
    pub(super) degrees_of_freedom: f64,
}

/// Returns the standard error of the difference and Satterthwaite's degrees of freedom. None if
/// nothing varies.
fn standard_error(base: MeanVariance, new: MeanVariance) -> Option<(f64, f64)> {
    let variance = base.variance + new.variance;
    // NaN if nothing varies; the result is dropped then.
    let [base_part, new_part] = [base, new].map(|side| side.variance / variance);
    let degrees_of_freedom = 1.0
        / (base_part.powi(2) / base.degrees_of_freedom + new_part.powi(2) / new.degrees_of_freedom);
    (variance > 0.0).then(|| (variance.sqrt(), degrees_of_freedom))
}

/// Returns the probability of a difference of means at least this large if the true means are
/// equal.
pub(super) fn p_value(difference: f64, base: MeanVariance, new: MeanVariance) -> f64 {
    match standard_error(base, new) {
        Some((error, degrees_of_freedom)) => {
            student_p(difference.abs() / error, degrees_of_freedom)
        }
        // Without any variance, equal means are certainly equal and others certainly are not.
        None if difference == 0.0 => 1.0,
        None => 0.0,
    }
}

/// Returns the difference of two means of runs, with Welch's interval of confidence 1 - `alpha`.
/// All values lie in 0..=`max`.
pub(crate) fn welch(base: Spread, new: Spread, alpha: f64, max: f64) -> Estimate {
    let (base_variance, new_variance) = (base.mean_variance(), new.mean_variance());
    let difference = new.mean - base.mean;
    let p = p_value(difference, base_variance, new_variance);
    let Some((_, degrees_of_freedom)) = standard_error(base_variance, new_variance) else {
        return Estimate { base: base.mean, new: new.mean, low: difference, high: difference, p };
    };
    let quantile = student_quantile(alpha, degrees_of_freedom);
    let (base_below, base_above) = base.limit_distances(base_variance, quantile, max);
    let (new_below, new_above) = new.limit_distances(new_variance, quantile, max);
    Estimate {
        base: base.mean,
        new: new.mean,
        // The lower end combines the lower limit of new with the upper limit of base, and the
        // upper end the other two (Zou and Donner 2008).
        low: difference - new_below.hypot(base_above),
        high: difference + new_above.hypot(base_below),
        p,
    }
}

/// Returns the variance of a share counted in one sample. Two hits and two misses are added, so
/// that a key without samples has a variance too (A. Agresti and B. A. Coull, The American
/// Statistician 52:119-126, 1998).
pub(crate) fn sampling_variance(hits: f64, trials: f64) -> f64 {
    let p = (hits + 2.0) / (trials + 4.0);
    p * (1.0 - p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::reference::{assert_close, reference_cases};
    use proptest::prelude::*;

    #[test]
    fn interval_and_p_match_scipy() {
        for case in reference_cases("welch") {
            let (base, new) = (case.list("base"), case.list("new"));
            let [alpha] = case.numbers("in");
            // The values are moved away from 0, so that no limit is cut.
            let moved: [Vec<f64>; 2] = [base, new].map(|v| v.iter().map(|v| v + 1e3).collect());
            let got = welch(Spread::of(&moved[0]), Spread::of(&moved[1]), alpha, f64::INFINITY);
            let [low, high, p] = case.numbers("out");
            for (value, expected) in [(got.low, low), (got.high, high), (got.p, p)] {
                assert!((value - expected).abs() < 1e-8, "{value} is not {expected}");
            }
            assert_close(got.p.max(1e-3), p.max(1e-3));
        }
    }

    #[test]
    fn runs_that_agree_keep_minimum_variance() {
        let sampling = sampling_variance(1.0, 1000.0) / 1000.0;
        let [base, new] = [[0.0, 0.0], [0.001, 0.001]]
            .map(|values| Spread { min_variance: sampling, ..Spread::of(&values) });
        assert!(welch(base, new, 0.05, 1.0).p > 0.2);
        let exact = |values: [f64; 2]| Spread::of(&values);
        assert_eq!(welch(exact([0.0, 0.0]), exact([0.0, 0.0]), 0.05, 1.0).p, 1.0);
        assert_eq!(welch(exact([0.0, 0.0]), exact([1.0, 1.0]), 0.05, 1.0).p, 0.0);
    }

    #[test]
    fn interval_is_cut_at_share_of_zero() {
        let base = Spread::of(&[0.001, 0.03, 0.002]);
        let new = Spread::of(&[0.0, 0.0, 0.001]);
        let got = welch(base, new, 0.05, 1.0);
        // Welch's interval without the cut ends at +0.031.
        assert!(got.high < base.mean && got.high > 0.0, "{got:?}");
    }

    proptest! {
        #[test]
        fn interval_contains_difference_and_agrees_with_p(
            base in proptest::collection::vec(0.0..1.0, 2..9),
            new in proptest::collection::vec(0.0..1.0, 2..9),
            least in 0.0..0.01,
            alpha in 1e-6..0.9,
        ) {
            let [base, new] = [base, new].map(|runs| Spread { min_variance: least, ..Spread::of(&runs) });
            let got = welch(base, new, alpha, 1.0);
            prop_assert!(got.low <= got.difference() && got.difference() <= got.high);
            prop_assert!(got.low >= -1.0 - 1e-12 && got.high <= 1.0 + 1e-12);
            let swapped = welch(new, base, alpha, 1.0);
            prop_assert!((got.low + swapped.high).abs() < 1e-9);
            prop_assert_eq!(got.p, swapped.p);
            if (got.p / alpha - 1.0).abs() > 1e-6 {
                prop_assert_eq!(got.p < alpha, got.low > 0.0 || got.high < 0.0);
            }
        }
    }
}
