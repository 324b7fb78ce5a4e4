//! A test that takes nothing for granted but that runs could as well have been of the other side.
//!
//! The permutation test (R. A. Fisher, The Design of Experiments, 1935; E. J. G. Pitman, JRSS
//! Suppl. 4:119-130, 1937): of all ways to split the runs into two sides of these sizes, how many
//! have a difference at least as large? Differences are measured in standard errors after Welch,
//! which keeps the level where the sides vary unequally (A. Janssen, Statistics & Probability
//! Letters 36:9-21, 1997).

use fastrand::Rng;

/// Every split is tried up to this many; of more, as many are drawn.
const MAX_SPLITS: u64 = 20_000;

/// Two differences are the same if they differ by less, relatively: rounding must not decide.
const RELATIVE_TOLERANCE: f64 = 1e-9;

/// The smallest probability that so many runs a side can give.
pub(crate) fn smallest_p(base: usize, new: usize) -> f64 {
    // Where the sides are of the same size, the mirror of a split is as extreme.
    let alike = if base == new { 2.0 } else { 1.0 };
    alike / splits(base, new)
}

/// How many splits there are.
pub(crate) fn splits(base: usize, new: usize) -> f64 {
    (1..=base).map(|i| (new + i) as f64 / i as f64).product::<f64>().round()
}

/// The probability of a difference at least as large as that of `base` and `new`, two-sided.
/// `least` is the variance that no side falls below. Drawn
/// splits are the same every time.
pub(crate) fn permutation_p(base: &[f64], new: &[f64], least: f64) -> f64 {
    let values = [base, new].concat();
    let first = base.len();
    let observed = statistic(base, new, least);
    let is_extreme = |order: &[f64]| {
        let (base, new) = order.split_at(first);
        statistic(base, new, least) >= observed * (1.0 - RELATIVE_TOLERANCE)
    };
    if splits(base.len(), new.len()) <= MAX_SPLITS as f64 && values.len() < 64 {
        let (extreme, all) = every_split(&values, first, is_extreme);
        return extreme as f64 / all as f64;
    }
    let mut rng = Rng::with_seed(1);
    let mut order = values;
    let extreme = (0..MAX_SPLITS).filter(|_| {
        rng.shuffle(&mut order);
        is_extreme(&order)
    });
    // The observed split is one of them (B. Phipson and G. K. Smyth, Statistical Applications in
    // Genetics and Molecular Biology 9:39, 2010).
    (extreme.count() + 1) as f64 / (MAX_SPLITS + 1) as f64
}

/// How many splits are extreme, of how many.
fn every_split(values: &[f64], first: usize, is_extreme: impl Fn(&[f64]) -> bool) -> (u64, u64) {
    let mut order = vec![0.0; values.len()];
    let (mut extreme, mut all) = (0, 0);
    let mut set: u64 = (1 << first) - 1;
    while set < 1 << values.len() {
        let (mut base, mut new) = (0, first);
        for (i, value) in values.iter().enumerate() {
            let place = if set >> i & 1 == 1 { &mut base } else { &mut new };
            order[*place] = *value;
            *place += 1;
        }
        all += 1;
        extreme += u64::from(is_extreme(&order));
        // The next larger number with as many bits (R. W. Gosper, HAKMEM, item 175).
        let lowest = set & set.wrapping_neg();
        let carried = set + lowest;
        set = (((set ^ carried) / lowest) >> 2) | carried;
    }
    (extreme, all)
}

/// The difference of the means in standard errors, without its sign.
fn statistic(base: &[f64], new: &[f64], least: f64) -> f64 {
    let of = |values: &[f64]| {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (mean, (squares / (count - 1.0).max(1.0)).max(least) / count)
    };
    let ((base, base_variance), (new, new_variance)) = (of(base), of(new));
    match (base - new).abs() {
        0.0 => 0.0,
        difference => difference / (base_variance + new_variance).sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::reference::{assert_close, reference_cases};

    #[test]
    fn every_split_is_scipy() {
        for figure in reference_cases("permutation") {
            let p = permutation_p(&figure.list("base"), &figure.list("new"), 0.0);
            let [expected] = figure.numbers("out");
            assert_close(p, expected);
        }
    }

    #[test]
    fn splits_are_counted() {
        for (base, new, count) in [(5, 5, 252.0), (3, 3, 20.0), (2, 7, 36.0), (10, 10, 184_756.0)] {
            assert_eq!(splits(base, new), count);
        }
        assert_eq!(smallest_p(5, 5), 2.0 / 252.0);
        assert_eq!(smallest_p(4, 5), 1.0 / 126.0);
    }

    #[test]
    fn drawn_splits_come_near_all_of_them_and_are_the_same_again() {
        // 12 + 12 runs: 2.7 million splits. The normal distribution's p is 0.0143.
        let base: Vec<f64> = (0..12).map(|i| f64::from(i * 7 % 12)).collect();
        let new: Vec<f64> = base.iter().map(|value| value + 4.0).collect();
        let p = permutation_p(&base, &new, 0.0);
        assert!((0.005..0.03).contains(&p), "{p}");
        assert_eq!(p, permutation_p(&base, &new, 0.0));
        assert!(permutation_p(&base, &base, 0.0) > 0.9);
    }

    #[test]
    fn what_does_not_vary_is_no_trouble() {
        assert_eq!(permutation_p(&[1.0; 5], &[1.0; 5], 0.0), 1.0);
        assert_close(permutation_p(&[1.0; 5], &[2.0; 5], 0.0), 2.0 / 252.0);
    }
}
