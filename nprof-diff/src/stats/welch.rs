//! Several runs on both sides: means of runs, judged by how runs of a side differ.
//!
//! The interval and test for unequal variances (B. L. Welch, Biometrika 34:28-35, 1947), degrees
//! of freedom after Welch and F. E. Satterthwaite (Biometrics Bulletin 2:110-114, 1946). The
//! limits of each side end where its values must (a share lies in 0..1, time is not negative),
//! and are put together by the method of variance estimates recovery (G. Y. Zou and A. Donner,
//! Statistics in Medicine 27:1693-1702, 2008); where no limit is cut, that is Welch's interval.

use super::{Estimate, student_p, student_quantile};

/// What the runs of a side tell of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// How many runs there are; two at least.
    pub(crate) runs: usize,
    /// The mean over the runs.
    pub(crate) mean: f64,
    /// The variance between runs, of one run.
    pub(crate) variance: f64,
    /// The variance that one run would have were its samples independent.
    pub(crate) sampling: f64,
    /// The variance that one run has at least, however well runs agree.
    pub(crate) least: f64,
}

impl Spread {
    /// Of one value a run, two at least, of which nothing is known but that.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let variance = squares / (values.len() as f64 - 1.0).max(1.0);
        Self { runs: values.len(), mean, variance, sampling: 0.0, least: 0.0 }
    }

    /// The degrees of freedom of the variance.
    pub(crate) fn degrees(self) -> f64 {
        (self.runs as f64 - 1.0).max(1.0)
    }

    /// The same with all values multiplied.
    pub(crate) fn scaled(self, by: f64) -> Self {
        let square = by * by;
        Self {
            runs: self.runs,
            mean: self.mean * by,
            variance: self.variance * square,
            sampling: self.sampling * square,
            least: self.least * square,
        }
    }
}

/// The variance of a mean, and the degrees of freedom it is known with.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeanVariance {
    /// The variance of the mean.
    pub(super) variance: f64,
    /// Its degrees of freedom.
    pub(super) degrees: f64,
}

/// The standard error of the difference, and Satterthwaite's degrees of freedom. `None` when
/// nothing varies.
fn error(base: MeanVariance, new: MeanVariance) -> Option<(f64, f64)> {
    let variance = base.variance + new.variance;
    let [base_part, new_part] = [base, new].map(|side| side.variance / variance);
    let degrees = 1.0 / (base_part.powi(2) / base.degrees + new_part.powi(2) / new.degrees);
    (variance > 0.0).then(|| (variance.sqrt(), degrees))
}

/// The probability of a difference of means at least as large, were there none.
pub(super) fn p_value(difference: f64, base: MeanVariance, new: MeanVariance) -> f64 {
    match error(base, new) {
        Some((error, degrees)) => student_p(difference.abs() / error, degrees),
        None if difference == 0.0 => 1.0,
        None => 0.0,
    }
}

/// The difference of two means of runs, with Welch's interval of level 1 - `alpha`. No value is
/// negative, and none is above `most`.
pub(crate) fn welch(base: Spread, new: Spread, alpha: f64, most: f64) -> Estimate {
    let known = |side: Spread| MeanVariance {
        variance: side.variance.max(side.least) / side.runs as f64,
        degrees: side.degrees(),
    };
    let (base_known, new_known) = (known(base), known(new));
    let difference = new.mean - base.mean;
    let p = p_value(difference, base_known, new_known);
    let Some((_, degrees)) = error(base_known, new_known) else {
        return Estimate { base: base.mean, new: new.mean, low: difference, high: difference, p };
    };
    let quantile = student_quantile(alpha, degrees);
    let reach = |side: Spread, known: MeanVariance| {
        let half = quantile * known.variance.sqrt();
        (half.min(side.mean), half.min((most - side.mean).max(0.0)))
    };
    let (base_below, base_above) = reach(base, base_known);
    let (new_below, new_above) = reach(new, new_known);
    Estimate {
        base: base.mean,
        new: new.mean,
        low: difference - new_below.hypot(base_above),
        high: difference + new_above.hypot(base_below),
        p,
    }
}

/// The variance of a share from sampling alone, were it counted in one sample. Two hits and two
/// misses are added, so that what was never seen has a variance too (A. Agresti and B. A. Coull,
/// The American Statistician 52:119-126, 1998).
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
    fn welch_is_scipy() {
        for figure in reference_cases("welch") {
            let (base, new) = (figure.list("base"), figure.list("new"));
            let [alpha] = figure.numbers("in");
            let spread = Spread::of;
            // No limit is cut: the values are moved away from 0.
            let moved: [Vec<f64>; 2] = [base, new].map(|v| v.iter().map(|v| v + 1e3).collect());
            let got = welch(spread(&moved[0]), spread(&moved[1]), alpha, f64::INFINITY);
            let [low, high, p] = figure.numbers("out");
            for (value, expected) in [(got.low, low), (got.high, high), (got.p, p)] {
                assert!((value - expected).abs() < 1e-8, "{value} is not {expected}");
            }
            assert_close(got.p.max(1e-3), p.max(1e-3));
        }
    }

    #[test]
    fn runs_that_agree_by_chance_are_not_certain() {
        let sampling = sampling_variance(1.0, 1000.0) / 1000.0;
        let [base, new] = [[0.0, 0.0], [0.001, 0.001]]
            .map(|values| Spread { least: sampling, ..Spread::of(&values) });
        assert!(welch(base, new, 0.05, 1.0).p > 0.2);
        let exact = |values: [f64; 2]| Spread::of(&values);
        assert_eq!(welch(exact([0.0, 0.0]), exact([0.0, 0.0]), 0.05, 1.0).p, 1.0);
        assert_eq!(welch(exact([0.0, 0.0]), exact([1.0, 1.0]), 0.05, 1.0).p, 0.0);
    }

    #[test]
    fn a_share_cannot_fall_by_more_than_it_had() {
        let base = Spread::of(&[0.001, 0.03, 0.002]);
        let new = Spread::of(&[0.0, 0.0, 0.001]);
        let got = welch(base, new, 0.05, 1.0);
        // Welch's own interval ends at +0.031.
        assert!(got.high < base.mean && got.high > 0.0, "{got:?}");
    }

    proptest! {
        #[test]
        fn welch_is_sound(
            base in proptest::collection::vec(0.0..1.0, 2..9),
            new in proptest::collection::vec(0.0..1.0, 2..9),
            least in 0.0..0.01,
            alpha in 1e-6..0.9,
        ) {
            let [base, new] = [base, new].map(|runs| Spread { least, ..Spread::of(&runs) });
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
