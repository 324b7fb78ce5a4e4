//! Differences and how sure they are: intervals, p-values, and their correction for many
//! comparisons. Pure: numbers in, numbers out.

mod family;
mod moderate;
mod newcombe;
mod permutation;
#[cfg(test)]
mod reference;
mod welch;

pub(crate) use family::benjamini_hochberg;
pub(crate) use moderate::Prior;
pub(crate) use newcombe::{Proportion, newcombe};
pub(crate) use permutation::{permutation_p, smallest_p};
pub(crate) use welch::{Spread, sampling_variance, welch};

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
    /// The smallest alpha at which the interval of level 1 - alpha leaves out zero; larger where
    /// a permutation test is less sure.
    pub(crate) p: f64,
}

impl Estimate {
    /// New less base.
    pub(crate) fn difference(&self) -> f64 {
        self.new - self.base
    }
}

/// Beyond this quantile a normal variable's probability is 0 in double precision.
const MAX_Z: f64 = 39.0;

/// The `z` beyond which, on either side, a standard normal variable lies with probability
/// `alpha`.
fn normal_quantile(alpha: f64) -> f64 {
    -Normal::standard().inverse_cdf(alpha / 2.0)
}

/// The probability that a standard normal variable lies beyond `z`, on either side.
fn normal_p(z: f64) -> f64 {
    if z >= MAX_Z - 1e-6 { 0.0 } else { (2.0 * Normal::standard().sf(z)).min(1.0) }
}

/// With more degrees of freedom than this Student's distribution is the normal one to 5 digits,
/// and the library's quantile begins to go wrong (it is 7 % off at 10^7).
const MAX_DEGREES_OF_FREEDOM: f64 = 1e5;

fn student(degrees: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, degrees).ok().filter(|_| degrees <= MAX_DEGREES_OF_FREEDOM)
}

/// The `t` beyond which, on either side, Student's variable lies with probability `alpha`.
pub(crate) fn student_quantile(alpha: f64, degrees: f64) -> f64 {
    student(degrees).map_or_else(|| normal_quantile(alpha), |t| -t.inverse_cdf(alpha / 2.0))
}

fn student_p(t: f64, degrees: f64) -> f64 {
    student(degrees).map_or_else(|| normal_p(t), |student| (2.0 * student.sf(t)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::reference::{assert_close, reference_cases};
    use super::*;

    #[test]
    fn quantiles_hold_in_the_tails() {
        for figure in reference_cases("normal") {
            let ([alpha], [z]) = (figure.numbers("in"), figure.numbers("out"));
            assert_close(normal_quantile(alpha), z);
        }
        for figure in reference_cases("student") {
            let ([alpha, degrees], [t]) = (figure.numbers("in"), figure.numbers("out"));
            assert!((student_quantile(alpha, degrees) / t - 1.0).abs() < 1e-5);
        }
        for figure in reference_cases("student-p") {
            let ([t, degrees], [p]) = (figure.numbers("in"), figure.numbers("out"));
            assert!((student_p(t, degrees) / p - 1.0).abs() < 1e-5);
        }
        assert_eq!(normal_p(MAX_Z), 0.0);
    }
}
