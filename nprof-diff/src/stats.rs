//! Differences and how sure they are: intervals, p-values, and their correction for many
//! comparisons. Pure: numbers in, numbers out.
//!
//! - One run a side: the hybrid score interval of two proportions (R. G. Newcombe, Statistics in
//!   Medicine 17:873-890, 1998, method 10), made of two Wilson score intervals (E. B. Wilson,
//!   JASA 22:209-212, 1927). Where the proportions are scaled (CPU time), its general form
//!   (G. Y. Zou and A. Donner, Statistics in Medicine 27:1693-1702, 2008).
//! - Several runs on both sides: the interval and test for unequal variances (B. L. Welch,
//!   Biometrika 34:28-35, 1947), degrees of freedom after Welch and F. E. Satterthwaite
//!   (Biometrics Bulletin 2:110-114, 1946).
//! - Many comparisons: Y. Benjamini and Y. Hochberg, JRSS B 57:289-300, 1995.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// A difference, new less base, its interval, and how surprising it would be were there none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The value of the base.
    pub(crate) base: f64,
    /// The value of the new side.
    pub(crate) new: f64,
    /// The interval's lower end, of the difference new - base.
    pub(crate) low: f64,
    /// The interval's upper end.
    pub(crate) high: f64,
    /// The smallest alpha at which the interval of level 1 - alpha leaves out zero.
    pub(crate) p: f64,
}

impl Estimate {
    /// New less base.
    pub(crate) fn difference(&self) -> f64 {
        self.new - self.base
    }
}

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
fn newcombe_limits(base: Proportion, new: Proportion, z: f64) -> (f64, f64) {
    let difference = new.value() - base.value();
    let (base_below, base_above) = base.reach(z);
    let (new_below, new_above) = new.reach(z);
    (difference - new_below.hypot(base_above), difference + new_above.hypot(base_below))
}

/// The difference of two independent proportions, with its interval of level 1 - `alpha`.
pub(crate) fn newcombe(base: Proportion, new: Proportion, alpha: f64) -> Estimate {
    let (low, high) = newcombe_limits(base, new, normal_quantile(alpha));
    Estimate { base: base.value(), new: new.value(), low, high, p: newcombe_p(base, new) }
}

/// Beyond this quantile a normal variable's probability is 0 in double precision.
const Z_LIMIT: f64 = 39.0;

/// Inverts the interval: it grows with `z`, so that the `z` at which it reaches zero is found by
/// halving.
fn newcombe_p(base: Proportion, new: Proportion) -> f64 {
    let difference = new.value() - base.value();
    let leaves_out_zero = |z| {
        let (low, high) = newcombe_limits(base, new, z);
        if difference > 0.0 { low > 0.0 } else { high < 0.0 }
    };
    if !leaves_out_zero(0.0) {
        return 1.0;
    }
    let (mut inside, mut outside) = (0.0, Z_LIMIT);
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

/// One side's value in each of its runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicates<'a> {
    /// One value a run, two at least.
    pub(crate) values: &'a [f64],
    /// The variance the mean has from sampling alone: the runs cannot know it better.
    pub(crate) floor: f64,
}

impl Replicates<'_> {
    fn mean(self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }

    fn degrees(self) -> f64 {
        (self.values.len() as f64 - 1.0).max(1.0)
    }

    /// The variance of the mean.
    fn variance(self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        (squares / self.degrees() / self.values.len() as f64).max(self.floor)
    }
}

/// The difference of two means of runs, with Welch's interval of level 1 - `alpha`.
pub(crate) fn welch(base: Replicates<'_>, new: Replicates<'_>, alpha: f64) -> Estimate {
    let (base_mean, new_mean) = (base.mean(), new.mean());
    let difference = new_mean - base_mean;
    let (base_variance, new_variance) = (base.variance(), new.variance());
    let variance = base_variance + new_variance;
    if variance <= 0.0 {
        let p = if difference == 0.0 { 1.0 } else { 0.0 };
        return Estimate { base: base_mean, new: new_mean, low: difference, high: difference, p };
    }
    let base_part = base_variance / variance;
    let new_part = new_variance / variance;
    let degrees = 1.0 / (base_part.powi(2) / base.degrees() + new_part.powi(2) / new.degrees());
    let error = variance.sqrt();
    let half = error * student_quantile(alpha, degrees);
    Estimate {
        base: base_mean,
        new: new_mean,
        low: difference - half,
        high: difference + half,
        p: student_p(difference.abs() / error, degrees),
    }
}

/// The variance of a share from sampling alone, were it counted in one sample. Two hits and two
/// misses are added, so that what was never seen has a variance too (A. Agresti and B. A. Coull,
/// The American Statistician 52:119-126, 1998).
pub(crate) fn sampling_variance(hits: f64, trials: f64) -> f64 {
    let p = (hits + 2.0) / (trials + 4.0);
    p * (1.0 - p)
}

/// The q-values of p-values: each the smallest rate of false discoveries at which its comparison
/// is one of the discoveries.
pub(crate) fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut q = vec![1.0; p.len()];
    let mut least = 1.0_f64;
    for (rank, &at) in order.iter().enumerate().rev() {
        least = least.min(p[at] * (p.len() as f64 / (rank + 1) as f64));
        q[at] = least;
    }
    q
}

/// The `z` beyond which, on either side, a standard normal variable lies with probability
/// `alpha`.
fn normal_quantile(alpha: f64) -> f64 {
    -Normal::standard().inverse_cdf(alpha / 2.0)
}

/// The probability that a standard normal variable lies beyond `z`, on either side.
fn normal_p(z: f64) -> f64 {
    if z >= Z_LIMIT - 1e-6 { 0.0 } else { (2.0 * Normal::standard().sf(z)).min(1.0) }
}

/// With more degrees of freedom than this Student's distribution is the normal one to 5 digits,
/// and the library's quantile begins to go wrong (it is 7 % off at 10^7).
const DEGREES_LIMIT: f64 = 1e5;

fn student(degrees: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, degrees).ok().filter(|_| degrees <= DEGREES_LIMIT)
}

fn student_quantile(alpha: f64, degrees: f64) -> f64 {
    student(degrees).map_or_else(|| normal_quantile(alpha), |t| -t.inverse_cdf(alpha / 2.0))
}

fn student_p(t: f64, degrees: f64) -> f64 {
    student(degrees).map_or_else(|| normal_p(t), |student| (2.0 * student.sf(t)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // The reference values below are from scipy 1.17.1 and statsmodels 0.15.0:
    //
    //   proportion_confint(x, n, alpha, method='wilson')
    //   confint_proportions_2indep(new, n_new, base, n_base, method='newcomb', alpha=alpha)
    //   brentq over log(alpha) of the end of that interval that lies nearer to 0
    //   ttest_ind(new, base, equal_var=False), .confidence_interval(1 - alpha)
    //   false_discovery_control(p), multipletests(p, method='fdr_bh')

    fn near(value: f64, reference: f64) {
        let scale = reference.abs().max(1e-3);
        assert!((value - reference).abs() < 1e-8 * scale, "{value} is not {reference}");
    }

    fn counted(hits: u64, trials: u64) -> Proportion {
        Proportion { hits, trials, scale: 1.0 }
    }

    #[test]
    fn wilson_limits_are_statsmodels() {
        for (hits, trials, alpha, low, high) in [
            (0, 10, 0.05, 0.0, 0.277532799863),
            (7, 50, 0.05, 0.069508334270, 0.261861937106),
            (50, 50, 0.05, 0.928652400867, 1.0),
            (312, 9973, 0.01, 0.027096569148, 0.036095612042),
        ] {
            let limits = wilson(hits, trials, normal_quantile(alpha));
            near(limits.0, low);
            near(limits.1, high);
        }
        assert_eq!(wilson(0, 0, 1.96), (0.0, 1.0));
    }

    #[test]
    fn newcombe_limits_are_statsmodels() {
        // The first is also example (a) of Newcombe's table II: 0.0524, 0.3339.
        for (base, new, alpha, low, high) in [
            ((48, 80), (56, 70), 0.05, 0.052431472402, 0.333872654037),
            ((0, 1000), (12, 1000), 0.05, 0.005606051885, 0.020857268475),
            ((312, 9973), (401, 9871), 0.05, 0.004162633560, 0.014547042814),
            ((312, 9973), (401, 9871), 0.001, 0.000630536879, 0.018133941456),
            ((0, 10), (0, 20), 0.05, -0.277532799863, 0.161125158053),
        ] {
            let got = newcombe(counted(base.0, base.1), counted(new.0, new.1), alpha);
            near(got.low, low);
            near(got.high, high);
        }
    }

    #[test]
    fn newcombe_p_inverts_the_interval() {
        for (base, new, p) in [
            ((48, 80), (56, 70), 8.133140358607e-03),
            ((0, 1000), (12, 1000), 1.704239863682e-03),
            ((312, 9973), (401, 9871), 4.207004493628e-04),
        ] {
            let (base, new) = (counted(base.0, base.1), counted(new.0, new.1));
            near(newcombe(base, new, 0.05).p, p);
            near(newcombe(new, base, 0.05).p, p);
        }
        assert_eq!(newcombe(counted(7, 7), counted(7, 7), 0.05).p, 1.0);
        let certain = newcombe(counted(0, 1 << 40), counted(1 << 40, 1 << 40), 0.05);
        assert_eq!(certain.p, 0.0);
    }

    #[test]
    fn welch_is_scipy() {
        let (few, more) = ([0.10, 0.12, 0.11], [0.13, 0.15, 0.14, 0.16]);
        let same = [0.2, 0.21, 0.19, 0.22, 0.2];
        let sets = [
            (&few[..], &more[..], 0.05, 0.012682885187, 0.057317114813, 1.007694334799e-02),
            (&few, &more, 0.001, -0.024915721818, 0.094915721818, 1.007694334799e-02),
            (&[1.0, 2.0], &[5.0, 9.0], 0.05, -14.743378906989, 25.743378906989, 2.054491507309e-01),
            (&same, &same, 0.05, -0.016628832302, 0.016628832302, 1.0),
        ];
        for (base, new, alpha, low, high, p) in sets {
            let base = Replicates { values: base, floor: 0.0 };
            let new = Replicates { values: new, floor: 0.0 };
            let got = welch(base, new, alpha);
            near(got.low, low);
            near(got.high, high);
            near(got.p, p);
        }
    }

    #[test]
    fn runs_that_agree_by_chance_are_not_certain() {
        let floor = sampling_variance(1.0, 1000.0) / 1000.0 / 2.0;
        let base = Replicates { values: &[0.0, 0.0], floor };
        let new = Replicates { values: &[0.001, 0.001], floor };
        assert!(welch(base, new, 0.05).p > 0.2);
        let exact = |values| Replicates { values, floor: 0.0 };
        assert_eq!(welch(exact(&[0.0, 0.0]), exact(&[0.0, 0.0]), 0.05).p, 1.0);
        assert_eq!(welch(exact(&[0.0, 0.0]), exact(&[1.0, 1.0]), 0.05).p, 0.0);
    }

    #[test]
    fn quantiles_hold_in_the_tails() {
        near(normal_quantile(0.05), 1.959963984540);
        near(normal_quantile(1e-9), 6.109410204869);
        near(student_quantile(0.05, 1.0), 12.706204736175);
        near(student_quantile(1e-6, 8.0), 13.257135102228);
        near(student_quantile(0.05, 1e7), 1.959963984540);
        near(student_p(3.0, 1e7), 2.699796063260e-03);
        assert_eq!(normal_p(Z_LIMIT), 0.0);
    }

    #[test]
    fn q_values_are_scipy() {
        let p = [
            0.001, 0.008, 0.039, 0.041, 0.042, 0.06, 0.074, 0.205, 0.212, 0.216, 0.222, 0.251,
            0.269, 0.275, 0.34, 1.0,
        ];
        let q = benjamini_hochberg(&p);
        for (at, reference) in [(0, 0.016), (1, 0.064), (2, 0.1344), (6, 0.169142857143)] {
            near(q[at], reference);
        }
        near(q[14], 0.362666666667);
        let q = benjamini_hochberg(&[0.04, 0.01, 0.03, 0.01, 0.9]);
        for (q, reference) in q.into_iter().zip([0.05, 0.025, 0.05, 0.025, 0.9]) {
            near(q, reference);
        }
        assert_eq!(benjamini_hochberg(&[]), [0.0; 0]);
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
            prop_assert!((0.0..=1.0).contains(&got.p));
            let swapped = newcombe(new, base, alpha);
            prop_assert_eq!((got.low, got.high, got.p), (-swapped.high, -swapped.low, swapped.p));
            if (got.p / alpha - 1.0).abs() > 1e-6 {
                prop_assert_eq!(got.p < alpha, got.low > 0.0 || got.high < 0.0);
            }
        }

        #[test]
        fn welch_is_sound(
            base in proptest::collection::vec(0.0..1.0, 2..9),
            new in proptest::collection::vec(0.0..1.0, 2..9),
            floor in 0.0..0.01,
            alpha in 1e-6..0.9,
        ) {
            let base = Replicates { values: &base, floor };
            let new = Replicates { values: &new, floor };
            let got = welch(base, new, alpha);
            prop_assert!(got.low <= got.difference() && got.difference() <= got.high);
            let swapped = welch(new, base, alpha);
            prop_assert!((got.low + swapped.high).abs() < 1e-9);
            prop_assert_eq!(got.p, swapped.p);
            if (got.p / alpha - 1.0).abs() > 1e-6 {
                prop_assert_eq!(got.p < alpha, got.low > 0.0 || got.high < 0.0);
            }
        }

        #[test]
        fn q_is_never_below_p(p in proptest::collection::vec(0.0..=1.0, 0..50)) {
            let q = benjamini_hochberg(&p);
            for (p, q) in p.iter().zip(&q) {
                prop_assert!(p <= q && *q <= 1.0);
            }
        }
    }
}
