//! What all rows together tell of the variance of one.
//!
//! Three or five runs say little on how much a row varies: its variance alone would have to be
//! taken with so much caution that among hundreds of rows nothing could ever be found. But the
//! rows of a profile vary alike. Each variance is therefore drawn towards what is usual for a row
//! of its size, the more so the fewer runs there are and the more alike the rows are: the
//! empirical Bayes method of limma (G. K. Smyth, Statistical Applications in Genetics and
//! Molecular Biology 3:3, 2004). What is usual has a trend, as with the counts of sequencing (M.
//! D. Robinson and G. K. Smyth, Biostatistics 9:321-332, 2008; S. P. Lund et al., Statistical
//! Applications in Genetics and Molecular Biology 11:8, 2012): a part that is in proportion to the
//! variance of independent samples, and one that grows with the square of the value. The variances of both sides stay apart, as in
//! Welch's test (M. Demissie et al., Bioinformatics 24:1168-1174, 2008).

use statrs::function::gamma::digamma;

use super::welch::{MeanVariance, Spread, p_value};

/// With fewer variances than this nothing is learned from them.
const MIN_VARIANCES: usize = 8;

/// What the prior weighs at most, times what the runs of a row do. Rows of a profile are not
/// independent (shares sum to 1, a phase moves all its functions, a slower machine all of them), so
/// that they know less of each other than their number says.
const MAX_PRIOR_WEIGHT: f64 = 2.5;

/// So many variances stand for one degree of freedom of the prior at most.
const VARIANCES_PER_DEGREE: f64 = 4.0;

/// A variance this many times as large as is usual tells no more of the trend than that.
const MAX_RELATIVE_VARIANCE: f64 = 8.0;

/// What is usual among the rows of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prior {
    trend: Trend,
    /// What the variance is, times the trend.
    pub(crate) factor: f64,
    /// How much it weighs, in degrees of freedom; 0 where there is too little to learn from, and
    /// the test is Welch's.
    pub(crate) degrees: f64,
}

impl Prior {
    /// Learns from spreads of rows that have samples enough.
    pub(crate) fn fit(spreads: &[Spread]) -> Self {
        let none = Self { trend: Trend { sampling: 1.0, square: 0.0 }, factor: 1.0, degrees: 0.0 };
        let usable = |spread: &&Spread| spread.sampling > 0.0 && spread.variance.is_finite();
        let spreads: Vec<Spread> = spreads.iter().filter(usable).copied().collect();
        if spreads.len() < MIN_VARIANCES {
            return none;
        }
        let trend = Trend::fit(&spreads);
        let ratios: Vec<(f64, f64)> = spreads
            .iter()
            .map(|spread| (spread.variance / trend.expected(spread), spread.degrees()))
            .collect();
        let Some((factor, degrees)) = fit_f(&ratios) else { return none };
        let count = spreads.len() as f64;
        let own = spreads.iter().map(|spread| spread.degrees()).sum::<f64>() / count;
        let most = (MAX_PRIOR_WEIGHT * own).min(count / VARIANCES_PER_DEGREE);
        Self { trend, factor, degrees: degrees.min(most) }
    }

    /// The variance of a side's mean, moderated.
    fn known(&self, spread: Spread) -> MeanVariance {
        let own = spread.degrees();
        let usual = self.factor * self.trend.expected(&spread);
        let variance = (self.degrees * usual + own * spread.variance) / (self.degrees + own);
        MeanVariance {
            variance: variance.max(spread.least) / spread.runs as f64,
            degrees: self.degrees + own,
        }
    }

    /// The probability of a difference at least as large as that of `new` and `base`.
    pub(crate) fn p_value(&self, base: Spread, new: Spread) -> f64 {
        p_value(new.mean - base.mean, self.known(base), self.known(new))
    }
}

/// What the variance of one run usually is, by what it would be were samples independent and by
/// the square of the value. Samples taken at regular times are more even than independent ones,
/// so that the first part may well be below 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Trend {
    /// Times the variance of independent samples.
    sampling: f64,
    /// Times the square of the value: the coefficient of variation between runs, squared.
    square: f64,
}

impl Trend {
    /// Fits it to variances, by least squares weighted with what is expected (P. McCullagh and
    /// J. A. Nelder, Generalized Linear Models, 1989, chapter 8), neither part below 0.
    fn fit(spreads: &[Spread]) -> Self {
        let mut trend = Self { sampling: 1.0, square: 0.0 };
        for _ in 0..FIT_ITERATIONS {
            let mut sums = Sums::default();
            for spread in spreads {
                sums.add(spread, trend.expected(spread));
            }
            trend = sums.solve();
            trend.sampling = trend.sampling.max(MIN_SAMPLING_FACTOR);
        }
        trend
    }

    /// The variance of one run that is expected.
    fn expected(&self, spread: &Spread) -> f64 {
        self.sampling * spread.sampling + self.square * spread.mean * spread.mean
    }
}

/// The least that a trend has of the variance of independent samples: it is never 0.
const MIN_SAMPLING_FACTOR: f64 = 1e-6;

/// The fit of a trend comes to rest within so many rounds.
const FIT_ITERATIONS: usize = 50;

/// The normal equations of the fit of a trend.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    sampling: f64,
    mixed: f64,
    square: f64,
    by_sampling: f64,
    by_square: f64,
}

impl Sums {
    /// Takes in a variance, where so much is expected.
    fn add(&mut self, spread: &Spread, expected: f64) {
        let (sampling, square) = (spread.sampling / expected, spread.mean.powi(2) / expected);
        let seen = (spread.variance / expected).min(MAX_RELATIVE_VARIANCE);
        self.sampling += sampling * sampling;
        self.mixed += sampling * square;
        self.square += square * square;
        self.by_sampling += sampling * seen;
        self.by_square += square * seen;
    }

    fn solve(self) -> Trend {
        let only_sampling = Trend { sampling: self.by_sampling / self.sampling, square: 0.0 };
        let product = self.sampling * self.square;
        let determinant = product - self.mixed * self.mixed;
        // Rows of one size do not tell the parts from each other.
        if determinant <= 1e-9 * product {
            return only_sampling;
        }
        let sampling = self.by_sampling * self.square - self.by_square * self.mixed;
        let square = self.by_square * self.sampling - self.by_sampling * self.mixed;
        match (sampling >= 0.0, square >= 0.0) {
            (true, true) => {
                Trend { sampling: sampling / determinant, square: square / determinant }
            }
            (false, _) => Trend { sampling: 0.0, square: self.by_square / self.square },
            (true, false) => only_sampling,
        }
    }
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
    use crate::stats::reference::{assert_close, reference_cases};
    use crate::stats::welch;

    #[test]
    fn trigamma_is_scipy() {
        for figure in reference_cases("trigamma") {
            let [x] = figure.numbers("in");
            let [y] = figure.numbers("out");
            assert_close(trigamma(x), y);
            assert_close(trigamma_inverse(y), x);
        }
    }

    #[test]
    fn the_prior_is_limmas() {
        for figure in reference_cases("squeeze") {
            let (variances, degrees) = (figure.list("variances"), figure.list("degrees"));
            let rename_candidates: Vec<(f64, f64)> = variances.into_iter().zip(degrees).collect();
            let (scale, prior_degrees) = fit_f(&rename_candidates).unwrap();
            let [expected_scale, expected_degrees] = figure.numbers("out");
            assert_close(scale, expected_scale);
            if expected_degrees.is_finite() {
                assert!((prior_degrees / expected_degrees - 1.0).abs() < 1e-6, "{prior_degrees}");
            } else {
                assert_eq!(prior_degrees, f64::INFINITY);
            }
        }
    }

    fn spread(mean: f64, variance: f64) -> Spread {
        Spread { runs: 5, mean, variance, sampling: 1e-6, least: 0.0 }
    }

    #[test]
    fn few_rows_teach_nothing_and_the_test_is_welchs() {
        let prior = Prior::fit(&[spread(0.1, 1e-5); MIN_VARIANCES - 1]);
        assert_eq!(prior.degrees, 0.0);
        let (base, new) = (spread(0.1, 1e-5), spread(0.11, 3e-5));
        assert_close(prior.p_value(base, new), welch::welch(base, new, 0.05, 1.0).p);
    }

    #[test]
    fn a_row_that_varies_by_chance_less_than_all_others_is_not_certain() {
        let rows: Vec<Spread> = (0..40).map(|i| spread(0.02, 1e-5 + 1e-7 * f64::from(i))).collect();
        let prior = Prior::fit(&rows);
        assert_eq!(prior.degrees, MAX_PRIOR_WEIGHT * 4.0);
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
                spread(mean, 0.3e-6 + 0.01 * mean * mean)
            })
            .collect();
        let trend = Prior::fit(&rows).trend;
        assert_close(trend.square, 0.01);
        assert_close(trend.sampling, 0.3);
        assert_eq!(Prior::fit(&[spread(0.1, 0.0); 20]).degrees, 0.0);
    }
}
