//! What all rows together tell of the variance of one.
//!
//! Three or five runs say little on how much a row varies: its variance alone would have to be
//! taken with so much caution that among hundreds of rows nothing could ever be found. But the
//! rows of a profile vary alike. Each variance is therefore drawn towards what is usual for a row
//! of its size, the more so the fewer runs there are and the more alike the rows are: the
//! empirical Bayes method of limma (G. K. Smyth, Statistical Applications in Genetics and
//! Molecular Biology 3:3, 2004). What is usual has a trend, as with the counts of sequencing (M.
//! D. Robinson and G. K. Smyth, Biostatistics 9:321-332, 2008; S. P. Lund et al., Statistical
//! Applications in Genetics and Molecular Biology 11:8, 2012): the variance of sampling, and a
//! part that grows with the square of the value. The variances of both sides stay apart, as in
//! Welch's test (M. Demissie et al., Bioinformatics 24:1168-1174, 2008).

use statrs::function::gamma::digamma;

use super::welch::{Known, Spread, p_value};

/// With fewer variances than this nothing is learned from them.
const FEW: usize = 8;

/// What the prior weighs at most, in degrees of freedom. Rows of a profile are not independent
/// (shares sum to 1, a phase moves all its functions), so that they know less of each other than
/// their number says.
const WEIGHTY: f64 = 10.0;

/// So many variances stand for one degree of freedom of the prior at most.
const VARIANCES_A_DEGREE: f64 = 4.0;

/// A variance this many times as large as is usual tells no more of the trend than that.
const OUTLIER: f64 = 8.0;

/// What is usual among the rows of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prior {
    /// The coefficient of variation of a value between runs, beyond sampling, squared.
    pub(crate) square: f64,
    /// What the variance is, times the trend.
    pub(crate) factor: f64,
    /// How much it weighs, in degrees of freedom; 0 where there is too little to learn from, and
    /// the test is Welch's.
    pub(crate) degrees: f64,
}

impl Prior {
    /// Learns from spreads of rows that have samples enough.
    pub(crate) fn fit(spreads: &[Spread]) -> Self {
        let none = Self { square: 0.0, factor: 1.0, degrees: 0.0 };
        let usable = |spread: &&Spread| spread.sampling > 0.0 && spread.variance.is_finite();
        let spreads: Vec<Spread> = spreads.iter().filter(usable).copied().collect();
        if spreads.len() < FEW {
            return none;
        }
        let square = trend(&spreads);
        let ratios: Vec<(f64, f64)> = spreads
            .iter()
            .map(|spread| (spread.variance / expected(spread, square), spread.degrees()))
            .collect();
        let Some((factor, degrees)) = fit_f(&ratios) else { return none };
        let most = WEIGHTY.min(spreads.len() as f64 / VARIANCES_A_DEGREE);
        Self { square, factor, degrees: degrees.min(most) }
    }

    /// The variance of a side's mean, moderated, and never below that of sampling alone.
    fn known(&self, spread: Spread) -> Known {
        let own = spread.degrees();
        let usual = self.factor * expected(&spread, self.square);
        let variance = (self.degrees * usual + own * spread.variance) / (self.degrees + own);
        Known {
            variance: variance.max(spread.sampling) / spread.runs as f64,
            degrees: self.degrees + own,
        }
    }

    /// The probability of a difference at least as large as that of `new` and `base`.
    pub(crate) fn p_value(&self, base: Spread, new: Spread) -> f64 {
        p_value(new.mean - base.mean, self.known(base), self.known(new))
    }
}

/// The variance of one run that is expected.
fn expected(spread: &Spread, square: f64) -> f64 {
    spread.sampling + square * spread.mean * spread.mean
}

/// The `square` with which variances are, on average, what is expected.
fn trend(spreads: &[Spread]) -> f64 {
    let excess = |square: f64| -> f64 {
        let ratio = |spread: &Spread| (spread.variance / expected(spread, square)).min(OUTLIER);
        spreads.iter().map(ratio).sum::<f64>() - spreads.len() as f64
    };
    if excess(0.0) <= 0.0 {
        return 0.0;
    }
    // It falls as `square` grows.
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if excess(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Fits scaled F distributions to variances of known degrees of freedom: the scale, and the
/// denominator's degrees of freedom, by the moments of the logarithms (Smyth 2004, section 6.2).
fn fit_f(variances: &[(f64, f64)]) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = variances.iter().map(|(variance, _)| *variance).collect();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    if median <= 0.0 {
        return None;
    }
    // A variance of 0 has no logarithm; limma's bound.
    let least = 1e-5 * median;
    let count = variances.len() as f64;
    let logs: Vec<f64> = variances
        .iter()
        .map(|(variance, degrees)| {
            variance.max(least).ln() - digamma(degrees / 2.0) + (degrees / 2.0).ln()
        })
        .collect();
    let mean = logs.iter().sum::<f64>() / count;
    let spread = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let sampling =
        variances.iter().map(|(_, degrees)| trigamma(degrees / 2.0)).sum::<f64>() / count;
    if spread <= sampling {
        return Some((mean.exp(), f64::INFINITY));
    }
    let half = trigamma_inverse(spread - sampling);
    Some(((mean + digamma(half) - half.ln()).exp(), 2.0 * half))
}

/// The derivative of digamma, for positive numbers (Abramowitz and Stegun 6.4.6 and 6.4.12).
fn trigamma(x: f64) -> f64 {
    let (mut x, mut sum) = (x, 0.0);
    while x < 12.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let (r, s) = (1.0 / x, 1.0 / (x * x));
    sum + r
        + s / 2.0
        + r * s
            * (1.0 / 6.0 - s * (1.0 / 30.0 - s * (1.0 / 42.0 - s * (1.0 / 30.0 - s * 5.0 / 66.0))))
}

/// The number whose trigamma this is; trigamma falls from infinity to 0.
fn trigamma_inverse(y: f64) -> f64 {
    let (mut low, mut high) = (1e-8_f64, 1e8_f64);
    for _ in 0..200 {
        let middle = (low * high).sqrt();
        if trigamma(middle) > y {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low * high).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::reference::{figures, near};
    use crate::stats::welch;

    #[test]
    fn trigamma_is_scipy() {
        for figure in figures("trigamma") {
            let [x] = figure.numbers("in");
            let [y] = figure.numbers("out");
            near(trigamma(x), y);
            near(trigamma_inverse(y), x);
        }
    }

    #[test]
    fn the_prior_is_limmas() {
        for figure in figures("squeeze") {
            let (variances, degrees) = (figure.list("variances"), figure.list("degrees"));
            let pairs: Vec<(f64, f64)> = variances.into_iter().zip(degrees).collect();
            let (scale, prior_degrees) = fit_f(&pairs).unwrap();
            let [expected_scale, expected_degrees] = figure.numbers("out");
            near(scale, expected_scale);
            if expected_degrees.is_finite() {
                assert!((prior_degrees / expected_degrees - 1.0).abs() < 1e-6, "{prior_degrees}");
            } else {
                assert_eq!(prior_degrees, f64::INFINITY);
            }
        }
    }

    fn spread(mean: f64, variance: f64) -> Spread {
        Spread { runs: 5, mean, variance, sampling: 1e-6 }
    }

    #[test]
    fn few_rows_teach_nothing_and_the_test_is_welchs() {
        let prior = Prior::fit(&[spread(0.1, 1e-5); FEW - 1]);
        assert_eq!(prior.degrees, 0.0);
        let (base, new) = (spread(0.1, 1e-5), spread(0.11, 3e-5));
        near(prior.p_value(base, new), welch::welch(base, new, 0.05, 1.0).p);
    }

    #[test]
    fn a_row_that_varies_by_chance_less_than_all_others_is_not_certain() {
        let rows: Vec<Spread> = (0..40).map(|i| spread(0.02, 1e-5 + 1e-7 * f64::from(i))).collect();
        let prior = Prior::fit(&rows);
        assert_eq!(prior.degrees, WEIGHTY);
        let (base, new) = (spread(0.020, 1e-8), spread(0.022, 1e-8));
        let alone = welch::welch(base, new, 0.05, 1.0).p;
        assert!(alone < 0.02 && prior.p_value(base, new) > 0.1, "{alone}");
        // And one that does not vary more than others is found with fewer runs.
        let (base, new) = (spread(0.020, 1e-5), spread(0.030, 2.4e-5));
        let alone = welch::welch(base, new, 0.05, 1.0).p;
        assert!(prior.p_value(base, new) < alone / 2.0, "{alone}");
    }

    #[test]
    fn the_trend_is_found() {
        let rows: Vec<Spread> = (1..50)
            .map(|i| {
                let mean = f64::from(i) * 0.004;
                spread(mean, 1e-6 + 0.01 * mean * mean)
            })
            .collect();
        near(Prior::fit(&rows).square, 0.01);
        assert_eq!(Prior::fit(&[spread(0.1, 0.0); 20]).degrees, 0.0);
    }
}
