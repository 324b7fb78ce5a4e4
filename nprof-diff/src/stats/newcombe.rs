//! One run a side: shares that were counted.
//!
//! The hybrid score interval of the difference of two proportions (R. G. Newcombe, Statistics in
//! Medicine 17:873-890, 1998, method 10), made of two Wilson score intervals (E. B. Wilson, JASA
//! 22:209-212, 1927). Where the proportions are scaled (CPU time), its general form (G. Y. Zou and
//! A. Donner, Statistics in Medicine 27:1693-1702, 2008).

use super::{Estimate, MAX_Z, normal_p, normal_quantile};

/// A share that was counted: `hits` of `trials`, which stands for `scale * hits / trials`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proportion {
    /// Samples that count; at most `trials`.
    pub(crate) hits: u64,
    /// All samples.
    pub(crate) trials: u64,
    /// What a share of 1 stands for; 1 for the share itself.
    pub(crate) scale: f64,
}

impl Proportion {
    fn value(self) -> f64 {
        if self.trials == 0 { 0.0 } else { self.scale * self.hits as f64 / self.trials as f64 }
    }

    /// How far the Wilson limits for the normal quantile `z` lie below and above the value.
    fn reach(self, z: f64) -> (f64, f64) {
        let (low, high) = wilson(self.hits, self.trials, z);
        ((self.value() - self.scale * low).max(0.0), (self.scale * high - self.value()).max(0.0))
    }
}

/// The Wilson score limits of `hits` of `trials`, for the normal quantile `z`.
fn wilson(hits: u64, trials: u64, z: f64) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let n = trials as f64;
    let p = hits as f64 / n;
    let z2 = z * z;
    let centre = p + z2 / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let low = if hits == 0 { 0.0 } else { (centre - half) / (1.0 + z2 / n) };
    let high = if hits == trials { 1.0 } else { (centre + half) / (1.0 + z2 / n) };
    (low.clamp(0.0, p), high.clamp(p, 1.0))
}

/// The limits of the difference of two independent proportions, for the normal quantile `z`.
fn limits(base: Proportion, new: Proportion, z: f64) -> (f64, f64) {
    let difference = new.value() - base.value();
    let (base_below, base_above) = base.reach(z);
    let (new_below, new_above) = new.reach(z);
    (difference - new_below.hypot(base_above), difference + new_above.hypot(base_below))
}

/// The difference of two independent proportions, with its interval of level 1 - `alpha`.
pub(crate) fn newcombe(base: Proportion, new: Proportion, alpha: f64) -> Estimate {
    let (low, high) = limits(base, new, normal_quantile(alpha));
    Estimate { base: base.value(), new: new.value(), low, high, p: p_value(base, new) }
}

/// Inverts the interval: it grows with `z`, so that the `z` at which it reaches zero is found by
/// halving.
fn p_value(base: Proportion, new: Proportion) -> f64 {
    let difference = new.value() - base.value();
    let leaves_out_zero = |z| {
        let (low, high) = limits(base, new, z);
        if difference > 0.0 { low > 0.0 } else { high < 0.0 }
    };
    if !leaves_out_zero(0.0) {
        return 1.0;
    }
    let (mut inside, mut outside) = (0.0, MAX_Z);
    for _ in 0..48 {
        let z = f64::midpoint(inside, outside);
        if leaves_out_zero(z) {
            inside = z;
        } else {
            outside = z;
        }
    }
    normal_p(inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::reference::{ReferenceCase, assert_close, reference_cases};
    use proptest::prelude::*;

    fn counted(hits: u64, trials: u64) -> Proportion {
        Proportion { hits, trials, scale: 1.0 }
    }

    #[test]
    fn wilson_limits_are_statsmodels() {
        for figure in reference_cases("wilson") {
            let [hits, trials, alpha] = figure.numbers("in");
            let (low, high) = wilson(hits as u64, trials as u64, normal_quantile(alpha));
            let [expected_low, expected_high] = figure.numbers("out");
            assert_close(low, expected_low);
            assert_close(high, expected_high);
        }
        assert_eq!(wilson(0, 0, 1.96), (0.0, 1.0));
    }

    fn proportions(figure: &ReferenceCase) -> (Proportion, Proportion, f64) {
        let [base, base_of, new, new_of, alpha] = figure.numbers("in");
        (counted(base as u64, base_of as u64), counted(new as u64, new_of as u64), alpha)
    }

    #[test]
    fn limits_and_p_are_statsmodels() {
        // The first is also example (a) of Newcombe's table II: 0.0524, 0.3339.
        for figure in reference_cases("newcombe") {
            let (base, new, alpha) = proportions(&figure);
            let got = newcombe(base, new, alpha);
            let [low, high, p] = figure.numbers("out");
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
                let trials = (trials >> shift).max(1);
                Proportion { hits: hits % (trials + 1), trials, scale }
            },
        )
    }

    proptest! {
        #[test]
        fn newcombe_is_sound(base in proportion(), new in proportion(), alpha in 1e-6..0.9) {
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
