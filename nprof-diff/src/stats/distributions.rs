//! Tails of the normal distribution and of Student's t, on both sides.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// The normal quantile beyond which the tail is 0 in double precision.
pub(super) const MAX_Z: f64 = 39.0;

/// Returns the `z` that a standard normal variable exceeds in absolute value with probability
/// `alpha`.
pub(super) fn normal_quantile(alpha: f64) -> f64 {
    -Normal::standard().inverse_cdf(alpha / 2.0)
}

/// Returns the probability that a standard normal variable exceeds `z` in absolute value.
pub(super) fn normal_p(z: f64) -> f64 {
    // The bisection in `newcombe` ends just below MAX_Z if the interval never reaches zero.
    if z >= MAX_Z - 1e-6 { 0.0 } else { (2.0 * Normal::standard().sf(z)).min(1.0) }
}

/// The degrees of freedom above which the normal distribution replaces Student's. It agrees to 5
/// digits there, while the quantiles of statrs become inaccurate: 7 % off at 10^7.
const MAX_DEGREES_OF_FREEDOM: f64 = 1e5;

fn student(degrees_of_freedom: f64) -> Option<StudentsT> {
    // Fails for degrees of freedom that are not positive, which no caller has.
    StudentsT::new(0.0, 1.0, degrees_of_freedom)
        .ok()
        .filter(|_| degrees_of_freedom <= MAX_DEGREES_OF_FREEDOM)
}

/// Returns the `t` that Student's variable exceeds in absolute value with probability `alpha`.
pub(crate) fn student_quantile(alpha: f64, degrees_of_freedom: f64) -> f64 {
    match student(degrees_of_freedom) {
        Some(student) => -student.inverse_cdf(alpha / 2.0),
        None => normal_quantile(alpha),
    }
}

/// Returns the probability that Student's variable exceeds `t` in absolute value.
pub(super) fn student_p(t: f64, degrees_of_freedom: f64) -> f64 {
    match student(degrees_of_freedom) {
        Some(student) => (2.0 * student.sf(t)).min(1.0),
        None => normal_p(t),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::reference::{assert_close, reference_cases};

    #[test]
    fn tails_match_scipy() {
        for case in reference_cases("normal") {
            let ([alpha], [z]) = (case.numbers("in"), case.numbers("out"));
            assert_close(normal_quantile(alpha), z);
        }
        for case in reference_cases("student") {
            let ([alpha, degrees], [t]) = (case.numbers("in"), case.numbers("out"));
            assert!((student_quantile(alpha, degrees) / t - 1.0).abs() < 1e-5);
        }
        for case in reference_cases("student-p") {
            let ([t, degrees], [p]) = (case.numbers("in"), case.numbers("out"));
            assert!((student_p(t, degrees) / p - 1.0).abs() < 1e-5);
        }
        assert_eq!(normal_p(MAX_Z), 0.0);
    }
}
