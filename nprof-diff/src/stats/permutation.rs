//! A test that assumes only that the runs of both sides are exchangeable.
//!
//! The permutation test (R. A. Fisher, The Design of Experiments, 1935; E. J. G. Pitman, JRSS
//! Suppl. 4:119-130, 1937): all splits of the runs into two sides of these sizes are compared,
//! and the p-value is the fraction with a difference at least as large as the observed one.
//! Differences are measured in standard errors after Welch, which keeps the level if the sides vary unequally
//! (A. Janssen, Statistics & Probability Letters 36:9-21, 1997).

use fastrand::Rng;

/// The largest number of splits of which all are tried; of more, this number is drawn.
const MAX_SPLITS: u64 = 20_000;

/// The relative tolerance at which two differences are equal: rounding must not decide.
const RELATIVE_TOLERANCE: f64 = 1e-9;

/// Returns the smallest p-value that this number of runs can give.
pub(crate) fn smallest_p(base: usize, new: usize) -> f64 {
    // With sides of equal size, the mirror image of a split is as extreme as the split.
    let equally_extreme = if base == new { 2.0 } else { 1.0 };
    equally_extreme / split_count(base, new)
}

/// Returns the number of splits: the binomial coefficient.
pub(crate) fn split_count(base: usize, new: usize) -> f64 {
    (1..=base).map(|i| (new + i) as f64 / i as f64).product::<f64>().round()
}

/// Returns the two-sided probability of a difference at least as large as that of `base` and
/// `new`. `min_variance` is a lower bound of each side's variance. The result is deterministic:
/// drawn splits come from a fixed seed.
pub(crate) fn permutation_p(base: &[f64], new: &[f64], min_variance: f64) -> f64 {
    let values = [base, new].concat();
    let first = base.len();
    let observed = statistic(base, new, min_variance);
    let is_extreme = |order: &[f64]| {
        let (base, new) = order.split_at(first);
        statistic(base, new, min_variance) >= observed * (1.0 - RELATIVE_TOLERANCE)
    };
    // A set of runs is a bit mask of a u64 in `try_all_splits`.
    if split_count(base.len(), new.len()) <= MAX_SPLITS as f64 && values.len() < 64 {
        let (extreme, all) = try_all_splits(&values, first, is_extreme);
        return extreme as f64 / all as f64;
    }
    let mut rng = Rng::with_seed(1);
    let mut order = values;
    let extreme = (0..MAX_SPLITS).filter(|_| {
        rng.shuffle(&mut order);
        is_extreme(&order)
    });
    // The observed split counts as one of the drawn ones, so that p is never 0 (B. Phipson and
    // G. K. Smyth, Statistical Applications in Genetics and Molecular Biology 9:39, 2010).
    (extreme.count() + 1) as f64 / (MAX_SPLITS + 1) as f64
}

/// Returns the number of extreme splits and the number of all splits.
fn try_all_splits(values: &[f64], first: usize, is_extreme: impl Fn(&[f64]) -> bool) -> (u64, u64) {
    let mut order = vec![0.0; values.len()];
    let (mut extreme, mut all) = (0, 0);
    // Bit i is set if value i belongs to the base.
    let mut set: u64 = (1 << first) - 1;
    while set < 1 << values.len() {
        let (mut base, mut new) = (0, first);
        for (i, value) in values.iter().enumerate() {
            let position = if set >> i & 1 == 1 { &mut base } else { &mut new };
            order[*position] = *value;
            *position += 1;
        }
        all += 1;
        extreme += u64::from(is_extreme(&order));
        // The next larger number with the same number of bits (R. W. Gosper, HAKMEM, item 175).
        let lowest = set & set.wrapping_neg();
        let carried = set + lowest;
        set = (((set ^ carried) / lowest) >> 2) | carried;
    }
    (extreme, all)
}

/// Returns the absolute difference of the means, in standard errors.
fn statistic(base: &[f64], new: &[f64], min_variance: f64) -> f64 {
    let (base_mean, base_variance) = mean_and_its_variance(base, min_variance);
    let (new_mean, new_variance) = mean_and_its_variance(new, min_variance);
    match (base_mean - new_mean).abs() {
        // 0 / 0 if nothing varies.
        0.0 => 0.0,
        difference => difference / (base_variance + new_variance).sqrt(),
    }
}

/// Returns the mean of the values and the variance of that mean.
fn mean_and_its_variance(values: &[f64], min_variance: f64) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).max(min_variance) / count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::reference::{assert_close, reference_cases};

    #[test]
    fn p_of_all_splits_matches_scipy() {
        for case in reference_cases("permutation") {
            let p = permutation_p(&case.list("base"), &case.list("new"), 0.0);
            let [expected] = case.numbers("out");
            assert_close(p, expected);
        }
    }

    #[test]
    fn split_count_is_binomial_coefficient() {
        for (base, new, count) in [(5, 5, 252.0), (3, 3, 20.0), (2, 7, 36.0), (10, 10, 184_756.0)] {
            assert_eq!(split_count(base, new), count);
        }
        assert_eq!(smallest_p(5, 5), 2.0 / 252.0);
        assert_eq!(smallest_p(4, 5), 1.0 / 126.0);
    }

    #[test]
    fn drawn_splits_approximate_all_splits_and_repeat() {
        // 12 + 12 runs: 2.7 million splits. The normal distribution's p is 0.0143.
        let base: Vec<f64> = (0..12).map(|i| f64::from(i * 7 % 12)).collect();
        let new: Vec<f64> = base.iter().map(|value| value + 4.0).collect();
        let p = permutation_p(&base, &new, 0.0);
        assert!((0.005..0.03).contains(&p), "{p}");
        assert_eq!(p, permutation_p(&base, &new, 0.0));
        assert!(permutation_p(&base, &base, 0.0) > 0.9);
    }

    #[test]
    fn accepts_values_without_variance() {
        assert_eq!(permutation_p(&[1.0; 5], &[1.0; 5], 0.0), 1.0);
        assert_close(permutation_p(&[1.0; 5], &[2.0; 5], 0.0), 2.0 / 252.0);
    }
}
