//! The variance of one row, stabilized by the variances of all rows.
//!
//! With three or five runs, the variance of one row is so uncertain that no difference among
//! hundreds of rows would ever be significant. But the rows of a profile vary alike. Each variance
//! is therefore drawn towards the usual variance of a row of its size; the fewer the runs and the
//! more alike the rows, the further: the empirical Bayes method of limma (G. K. Smyth, Statistical
//! Applications in Genetics and Molecular Biology 3:3, 2004).
//!
//! The usual variance has a trend, as for sequencing counts (M. D. Robinson and G. K. Smyth,
//! Biostatistics 9:321-332, 2008; S. P. Lund et al., Statistical Applications in Genetics and
//! Molecular Biology 11:8, 2012): one part is proportional to the variance of independent samples,
//! the other grows with the square of the value. The variances of both sides stay separate, as in
//! Welch's test (M. Demissie et al., Bioinformatics 24:1168-1174, 2008).

use statrs::function::gamma::digamma;

use crate::stats::welch::{MeanVariance, Spread, p_value};

/// The smallest number of variances that a prior is fitted to.
const MIN_VARIANCES: usize = 8;

/// The largest weight of the prior, as a multiple of the weight of a row's own runs. Rows of a
/// profile are not independent (shares sum to 1, a phase moves all its functions, a slower machine
/// moves all of them), so they contain less information about each other than their number
/// suggests.
const MAX_PRIOR_WEIGHT: f64 = 2.5;

/// The number of variances required per degree of freedom of the prior.
const VARIANCES_PER_DEGREE: f64 = 4.0;

/// The largest ratio of a variance to its expectation that enters the fit of the trend; larger
/// ones count as this, so that a few outliers do not raise the trend for all rows.
const MAX_RELATIVE_VARIANCE: f64 = 8.0;

/// The usual variance among the rows of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prior {
    trend: Trend,
    /// The usual variance divided by the trend.
    factor: f64,
    /// The weight of the usual variance, in degrees of freedom; 0 if too few rows are known, which
    /// makes the test Welch's.
    degrees_of_freedom: f64,
}

/// A variance divided by its expectation.
#[derive(Clone, Copy, Debug)]
struct VarianceRatio {
    ratio: f64,
    degrees_of_freedom: f64,
}

/// A scaled F distribution.
#[derive(Clone, Copy, Debug)]
struct ScaledF {
    scale: f64,
    /// The degrees of freedom of the denominator.
    degrees_of_freedom: f64,
}

impl Prior {
    /// Fits a prior to the spreads of rows with enough samples.
    pub(crate) fn fit(spreads: &[Spread]) -> Self {
        let none = Self {
            trend: Trend { sampling: 1.0, square: 0.0 },
            factor: 1.0,
            degrees_of_freedom: 0.0,
        };
        let spreads: Vec<Spread> =
            spreads.iter().filter(|spread| is_usable(spread)).copied().collect();
        if spreads.len() < MIN_VARIANCES {
            return none;
        }
        let trend = Trend::fit(&spreads);
        let ratios: Vec<VarianceRatio> = spreads
            .iter()
            .map(|spread| VarianceRatio {
                ratio: spread.variance / trend.expected(spread),
                degrees_of_freedom: spread.degrees_of_freedom(),
            })
            .collect();
        let Some(fitted) = fit_f(&ratios) else { return none };
        let count = spreads.len() as f64;
        let own = spreads.iter().map(|spread| spread.degrees_of_freedom()).sum::<f64>() / count;
        // Rows that vary alike give infinite degrees of freedom; the weight stays bounded by the
        // runs of a row and by the number of rows.
        let max = (MAX_PRIOR_WEIGHT * own).min(count / VARIANCES_PER_DEGREE);
        let degrees_of_freedom = fitted.degrees_of_freedom.min(max);
        Self { trend, factor: fitted.scale, degrees_of_freedom }
    }

    /// Returns the moderated variance of a side's mean.
    fn moderated(&self, spread: Spread) -> MeanVariance {
        let own = spread.degrees_of_freedom();
        let usual = self.factor * self.trend.expected(&spread);
        // The mean of both variances, weighted by degrees of freedom (Smyth 2004).
        let degrees_of_freedom = self.degrees_of_freedom + own;
        let variance =
            (self.degrees_of_freedom * usual + own * spread.variance) / degrees_of_freedom;
        MeanVariance {
            variance: variance.max(spread.min_variance) / spread.runs as f64,
            degrees_of_freedom,
        }
    }

    /// Returns the probability of a difference at least as large as that of `new` and `base`.
    pub(crate) fn p_value(&self, base: Spread, new: Spread) -> f64 {
        p_value(new.mean - base.mean, self.moderated(base), self.moderated(new))
    }
}

/// True if a spread can enter the fit.
fn is_usable(spread: &Spread) -> bool {
    spread.sampling_variance > 0.0 && spread.variance.is_finite()
}

/// The usual variance of one run, as a function of its sampling variance and of the square of its
/// value. Samples at regular times are more even than independent ones, so the first coefficient
/// may well be below 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Trend {
    /// The coefficient of the sampling variance.
    sampling: f64,
    /// The coefficient of the square of the value: the squared coefficient of variation between
    /// runs.
    square: f64,
}

/// The smallest coefficient of the sampling variance; 0 would make an expectation of 0 possible.
const MIN_SAMPLING_FACTOR: f64 = 1e-6;

/// Iterations of the fit of a trend; it converges within these.
const FIT_ITERATIONS: usize = 50;

impl Trend {
    /// Fits a trend to variances by iteratively reweighted least squares, each weighted with its
    /// expectation (P. McCullagh and J. A. Nelder, Generalized Linear Models, 1989, chapter 8).
    /// No coefficient is negative.
    fn fit(spreads: &[Spread]) -> Self {
        let mut trend = Self { sampling: 1.0, square: 0.0 };
        for _ in 0..FIT_ITERATIONS {
            let mut equations = NormalEquations::default();
            for spread in spreads {
                equations.add(spread, trend.expected(spread));
            }
            trend = equations.solve();
            trend.sampling = trend.sampling.max(MIN_SAMPLING_FACTOR);
        }
        trend
    }

    /// Returns the expected variance of one run.
    fn expected(&self, spread: &Spread) -> f64 {
        self.sampling * spread.sampling_variance + self.square * spread.mean * spread.mean
    }
}

/// The normal equations of the fit of a trend: sums of products of both regressors, and of each
/// with the observed variances.
#[derive(Clone, Copy, Debug, Default)]
struct NormalEquations {
    sampling_sampling: f64,
    sampling_square: f64,
    square_square: f64,
    sampling_observed: f64,
    square_observed: f64,
}

impl NormalEquations {
    /// Adds a variance with the given expectation.
    fn add(&mut self, spread: &Spread, expected: f64) {
        let sampling = spread.sampling_variance / expected;
        let square = spread.mean.powi(2) / expected;
        let observed = (spread.variance / expected).min(MAX_RELATIVE_VARIANCE);
        self.sampling_sampling += sampling * sampling;
        self.sampling_square += sampling * square;
        self.square_square += square * square;
        self.sampling_observed += sampling * observed;
        self.square_observed += square * observed;
    }

    fn solve(self) -> Trend {
        let only_sampling =
            Trend { sampling: self.sampling_observed / self.sampling_sampling, square: 0.0 };
        let product = self.sampling_sampling * self.square_square;
        let determinant = product - self.sampling_square * self.sampling_square;
        // Rows of equal size cannot separate the two parts.
        if determinant <= 1e-9 * product {
            return only_sampling;
        }
        // Cramer's rule.
        let sampling = self.sampling_observed * self.square_square
            - self.square_observed * self.sampling_square;
        let square = self.square_observed * self.sampling_sampling
            - self.sampling_observed * self.sampling_square;
        if sampling < 0.0 {
            // The best fit with the other coefficient alone.
            Trend { sampling: 0.0, square: self.square_observed / self.square_square }
        } else if square < 0.0 {
            only_sampling
        } else {
            Trend { sampling: sampling / determinant, square: square / determinant }
        }
    }
}

/// Fits a scaled F distribution to variances by the moments of their logarithms (Smyth 2004,
/// section 6.2). None if half of the variances are 0.
fn fit_f(variances: &[VarianceRatio]) -> Option<ScaledF> {
    let mut sorted: Vec<f64> = variances.iter().map(|variance| variance.ratio).collect();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    if median <= 0.0 {
        return None;
    }
    // A variance of 0 has no logarithm; limma uses the same bound.
    let min_ratio = 1e-5 * median;
    let count = variances.len() as f64;
    let logs: Vec<f64> = variances
        .iter()
        .map(|variance| {
            let half = variance.degrees_of_freedom / 2.0;
            // The logarithm of a chi-squared variable over its degrees of freedom has the
            // expectation digamma(half) - ln(half).
            variance.ratio.max(min_ratio).ln() - digamma(half) + half.ln()
        })
        .collect();
    let mean = logs.iter().sum::<f64>() / count;
    let observed = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let expected =
        variances.iter().map(|variance| trigamma(variance.degrees_of_freedom / 2.0)).sum::<f64>()
            / count;
    // The rows differ by no more than chance: they all have the same true variance.
    if observed <= expected {
        return Some(ScaledF { scale: mean.exp(), degrees_of_freedom: f64::INFINITY });
    }
    let half = trigamma_inverse(observed - expected);
    Some(ScaledF {
        scale: (mean + digamma(half) - half.ln()).exp(),
        degrees_of_freedom: 2.0 * half,
    })
}

/// Returns the derivative of digamma, for positive numbers (Abramowitz and Stegun 6.4.6 and
/// 6.4.12).
fn trigamma(x: f64) -> f64 {
    let (mut x, mut sum) = (x, 0.0);
    // The recurrence raises x until the asymptotic series is exact to double precision.
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

/// Returns the number with the trigamma `y`, by bisection: trigamma falls from infinity to 0.
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
    fn trigamma_matches_scipy() {
        for case in reference_cases("trigamma") {
            let [x] = case.numbers("in");
            let [y] = case.numbers("out");
            assert_close(trigamma(x), y);
            assert_close(trigamma_inverse(y), x);
        }
    }

    #[test]
    fn prior_matches_limma() {
        for case in reference_cases("squeeze") {
            let (variances, degrees) = (case.list("variances"), case.list("degrees"));
            let variances: Vec<VarianceRatio> = variances
                .into_iter()
                .zip(degrees)
                .map(|(ratio, degrees_of_freedom)| VarianceRatio { ratio, degrees_of_freedom })
                .collect();
            let fitted = fit_f(&variances).unwrap();
            let [expected_scale, expected_degrees] = case.numbers("out");
            assert_close(fitted.scale, expected_scale);
            if expected_degrees.is_finite() {
                assert!(
                    (fitted.degrees_of_freedom / expected_degrees - 1.0).abs() < 1e-6,
                    "{fitted:?}"
                );
            } else {
                assert_eq!(fitted.degrees_of_freedom, f64::INFINITY);
            }
        }
    }

    fn spread(mean: f64, variance: f64) -> Spread {
        Spread { runs: 5, mean, variance, sampling_variance: 1e-6, min_variance: 0.0 }
    }

    #[test]
    fn prior_of_few_rows_gives_welch_test() {
        let prior = Prior::fit(&[spread(0.1, 1e-5); MIN_VARIANCES - 1]);
        assert_eq!(prior.degrees_of_freedom, 0.0);
        let (base, new) = (spread(0.1, 1e-5), spread(0.11, 3e-5));
        assert_close(prior.p_value(base, new), welch::welch(base, new, 0.05, 1.0).p);
    }

    #[test]
    fn prior_corrects_accidentally_small_and_average_variances() {
        let rows: Vec<Spread> = (0..40).map(|i| spread(0.02, 1e-5 + 1e-7 * f64::from(i))).collect();
        let prior = Prior::fit(&rows);
        assert_eq!(prior.degrees_of_freedom, MAX_PRIOR_WEIGHT * 4.0);
        let (base, new) = (spread(0.020, 1e-8), spread(0.022, 1e-8));
        let alone = welch::welch(base, new, 0.05, 1.0).p;
        assert!(alone < 0.02 && prior.p_value(base, new) > 0.1, "{alone}");
        // A row with the usual variance becomes significant with fewer runs.
        let (base, new) = (spread(0.020, 1e-5), spread(0.030, 2.4e-5));
        let alone = welch::welch(base, new, 0.05, 1.0).p;
        assert!(prior.p_value(base, new) < alone / 2.0, "{alone}");
    }

    #[test]
    fn fit_recovers_trend() {
        let rows: Vec<Spread> = (1..50)
            .map(|i| {
                let mean = f64::from(i) * 0.004;
                spread(mean, 0.3e-6 + 0.01 * mean * mean)
            })
            .collect();
        let trend = Prior::fit(&rows).trend;
        assert_close(trend.square, 0.01);
        assert_close(trend.sampling, 0.3);
        assert_eq!(Prior::fit(&[spread(0.1, 0.0); 20]).degrees_of_freedom, 0.0);
    }
}
