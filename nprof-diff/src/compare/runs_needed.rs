//! How much more must be recorded until a comparison can be decided. Pure.

use crate::compare::comparison::Method;
use crate::compare::diff::{Diff, MIN_SAMPLES_PER_SIDE};
use crate::stats::{Estimate, student_quantile};

/// More runs than this are as good as never.
pub(crate) const MAX_MORE_RUNS: usize = 1000;

/// How many more runs a side would move the end of an interval that lies on the wrong side of
/// `limit` to the other, should the estimate stay and runs vary as they do. None above [`MAX_MORE_RUNS`].
pub(crate) fn more_runs(diff: &Diff, estimate: Estimate, limit: f64) -> Option<usize> {
    let difference = estimate.difference();
    let (reach, room) = if difference > limit {
        (difference - estimate.low, difference - limit)
    } else {
        (estimate.high - difference, limit - difference)
    };
    let now = width(diff, 0);
    // An end that is clear of the limit already lacks significance among many: a run more helps.
    (1..=MAX_MORE_RUNS).find(|more| reach * width(diff, *more) / now < room)
}

/// What the width of an interval is proportional to, with so many runs more on both sides.
fn width(diff: &Diff, more: usize) -> f64 {
    let (base, new) = ((diff.base.runs + more) as f64, (diff.new.runs + more) as f64);
    let error = (1.0 / base + 1.0 / new).sqrt();
    match diff.method {
        Method::Welch => error * student_quantile(diff.criteria.alpha, base + new - 2.0),
        Method::Newcombe => error,
    }
}

/// How to come to samples enough.
pub(crate) fn samples_advice(diff: &Diff) -> String {
    let needed = [diff.base, diff.new].map(|side| {
        let of_run = side.sum.samples.checked_div(side.runs as u64).filter(|samples| *samples > 0);
        of_run.map(|of_run| MIN_SAMPLES_PER_SIDE.saturating_sub(side.sum.samples).div_ceil(of_run))
    });
    match needed {
        [Some(base), Some(new)] => format!(
            "record for longer, sample more often (-F), or add about {} runs a side",
            base.max(new)
        ),
        _ => "record for longer, or sample more often (-F)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::comparison::Criteria;
    use crate::compare::observed::SideTotals;

    fn of(runs: usize, method: Method) -> Diff {
        let whole = SideTotals { runs, ..SideTotals::default() };
        Diff {
            method,
            criteria: Criteria { alpha: 0.05, clock: true, min_effect: None },
            base: whole,
            new: whole,
            time: None,
            comparisons: 0,
            median_ratio: 1.0,
            rows: Vec::new(),
        }
    }

    fn estimate(new: f64, half: f64) -> Estimate {
        Estimate { base: 0.1, new, low: new - 0.1 - half, high: new - 0.1 + half, p: 1.0 }
    }

    #[test]
    fn four_times_the_runs_halve_an_interval_from_counts() {
        let diff = of(1, Method::Newcombe);
        // 0 +- 2 points, and a bound of 1.
        assert_eq!(more_runs(&diff, estimate(0.1, 0.02), 0.01), Some(4));
        assert_eq!(more_runs(&diff, estimate(0.13, 0.019), 0.02), Some(3));
    }

    #[test]
    fn the_first_runs_help_most() {
        // Of 2 + 2 runs an interval is 4.30 standard errors wide, of 4 + 4 runs 2.45.
        assert_eq!(more_runs(&of(2, Method::Welch), estimate(0.1, 0.02), 0.01), Some(2));
        assert_eq!(more_runs(&of(10, Method::Welch), estimate(0.1, 0.02), 0.01), Some(27));
        assert_eq!(more_runs(&of(5, Method::Welch), estimate(0.11, 0.02), 0.01), None);
    }
}
