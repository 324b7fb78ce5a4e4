//! The number of further runs until a comparison is decided. Pure.

use crate::compare::comparison::Method;
use crate::compare::diff::{Diff, MIN_SAMPLES_PER_SIDE};
use crate::stats::{Estimate, student_quantile};

/// The largest number of further runs that is searched for.
pub(crate) const MAX_MORE_RUNS: usize = 1000;

/// Returns the number of further runs per side that would move the end of an interval across
/// `limit`, if the estimate stays and runs keep their variance. None above [`MAX_MORE_RUNS`].
pub(crate) fn more_runs(diff: &Diff, estimate: Estimate, limit: f64) -> Option<usize> {
    let difference = estimate.difference();
    // The distance from the estimate to the end of the interval that lies on the wrong side of the
    // limit, and the distance to the limit.
    let (half_width, distance) = if difference > limit {
        (difference - estimate.low, difference - limit)
    } else {
        (estimate.high - difference, limit - difference)
    };
    let width_now = relative_width(diff, 0);
    // At least one run: an end already past the limit lacks significance among all rows.
    (1..=MAX_MORE_RUNS).find(|more| half_width * relative_width(diff, *more) / width_now < distance)
}

/// Returns a number proportional to the width of an interval, with `more` runs added to both sides.
fn relative_width(diff: &Diff, more: usize) -> f64 {
    let (base, new) = ((diff.base.runs + more) as f64, (diff.new.runs + more) as f64);
    let error = (1.0 / base + 1.0 / new).sqrt();
    match diff.method {
        Method::Welch => error * student_quantile(diff.criteria.alpha, base + new - 2.0),
        Method::Newcombe => error,
    }
}

/// Returns advice on reaching the required number of samples.
pub(crate) fn samples_advice(diff: &Diff) -> String {
    let runs = [diff.base, diff.new].map(|side| {
        // None without runs, or if runs have no samples: more of them would not help.
        let per_run =
            side.sum.samples.checked_div(side.runs as u64).filter(|samples| *samples > 0)?;
        Some(MIN_SAMPLES_PER_SIDE.saturating_sub(side.sum.samples).div_ceil(per_run))
    });
    match runs {
        [Some(base), Some(new)] => format!(
            "record for longer, sample more often (-F), or add {} per side",
            match base.max(new) {
                1 => "a run".to_owned(),
                runs => format!("about {runs} runs"),
            }
        ),
        _ => "record for longer, or sample more often (-F)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::comparison::Criteria;
    use crate::compare::observed::SideTotals;
    use crate::input::event::AmountUnit;

    fn diff(runs: usize, method: Method) -> Diff {
        let totals = SideTotals { runs, ..SideTotals::default() };
        Diff {
            method,
            criteria: Criteria {
                alpha: 0.05,
                amount: Some(AmountUnit::Ns),
                is_in_turn: true,
                min_effect: None,
            },
            base: totals,
            new: totals,
            run_amount: None,
            comparisons: 0,
            common_part: 1.0,
            undivided: 0,
            rows: Vec::new(),
        }
    }

    fn estimate(new: f64, half: f64) -> Estimate {
        Estimate { base: 0.1, new, low: new - 0.1 - half, high: new - 0.1 + half, p: 1.0 }
    }

    #[test]
    fn four_times_the_runs_halve_an_interval_from_counts() {
        let diff = diff(1, Method::Newcombe);
        // 0 +- 2 points, and a bound of 1.
        assert_eq!(more_runs(&diff, estimate(0.1, 0.02), 0.01), Some(4));
        assert_eq!(more_runs(&diff, estimate(0.13, 0.019), 0.02), Some(3));
    }

    #[test]
    fn first_additional_runs_narrow_the_interval_most() {
        // Of 2 + 2 runs an interval is 4.30 standard errors wide, of 4 + 4 runs 2.45.
        assert_eq!(more_runs(&diff(2, Method::Welch), estimate(0.1, 0.02), 0.01), Some(2));
        assert_eq!(more_runs(&diff(10, Method::Welch), estimate(0.1, 0.02), 0.01), Some(27));
        assert_eq!(more_runs(&diff(5, Method::Welch), estimate(0.11, 0.02), 0.01), None);
    }
}
