//! `--fail-on`: bounds that a comparison must not exceed, and the result of a comparison. Pure.

use std::fmt;
use std::str::FromStr;

use crate::compare::diff::{Diff, MIN_SAMPLES_PER_SIDE};
use crate::compare::effect_size::EffectSize;
use crate::compare::quantity::MetricKind;
use crate::compare::row::{Metric, Row};
use crate::compare::runs_needed;
use crate::input::event::AmountUnit;
use crate::stats::Estimate;

/// The smallest change that `any` must not miss, without `--min-effect`: points of a run.
const SMALLEST_CHANGE: EffectSize = EffectSize::Share(0.02);

/// A bound on changes; the comparison fails if a row exceeds it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    text: String,
    kind: BoundKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BoundKind {
    /// No row may change.
    Any,
    /// A metric may grow up to a limit.
    Growth { metric: MetricKind, limit: EffectSize },
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Bound {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str =
            "expected any, or self>+SIZE or total>+SIZE with a size such as 2%, 20ms, 1MiB or 1000";
        let kind = match text.split_once('>') {
            None if text == "any" => BoundKind::Any,
            Some(("self", size)) => growth(MetricKind::Self_, size).ok_or(EXPECTED)?,
            Some(("total", size)) => growth(MetricKind::Total, size).ok_or(EXPECTED)?,
            _ => return Err(EXPECTED),
        };
        Ok(Self { text: text.to_owned(), kind })
    }
}

fn growth(metric: MetricKind, size: &str) -> Option<BoundKind> {
    let limit = size.strip_prefix('+')?.parse().ok()?;
    Some(BoundKind::Growth { metric, limit })
}

/// The position of a row relative to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BoundState {
    /// The whole interval lies beyond the bound, and the change is significant.
    Exceeded,
    /// The interval contains the bound, or lies beyond it without significance: more runs are
    /// needed. Of `any`: a change that matters may have been missed.
    Open,
    /// The whole interval lies below the bound.
    Within,
}

impl Bound {
    /// Returns the unit of the bound. None if it is a share.
    pub(crate) fn unit(&self) -> Option<AmountUnit> {
        match self.kind {
            BoundKind::Growth { limit: EffectSize::Amount(unit, _), .. } => Some(unit),
            _ => None,
        }
    }

    fn state(&self, row: &Row, diff: &Diff) -> BoundState {
        let Some((estimate, limit)) = self.estimate(row) else {
            return if row.change().is_change() {
                BoundState::Exceeded
            } else if unseen_change(row, diff).is_some() {
                BoundState::Open
            } else {
                BoundState::Within
            };
        };
        let metric = self.metric(row);
        // Where every row grows by one factor, only the amount of a row shows it.
        let significant = metric.corrected.significant
            || self.unit().is_some() && metric.amount.is_some_and(|amount| amount.significant);
        // An interval beyond the limit without significance among all rows is open, too: more runs
        // may confirm it.
        if !(significant && estimate.low > limit) {
            return if estimate.high > limit { BoundState::Open } else { BoundState::Within };
        }
        if metric.is_at_least(diff.criteria.min_effect) {
            BoundState::Exceeded
        } else {
            BoundState::Within
        }
    }

    fn metric<'a>(&self, row: &'a Row) -> &'a Metric {
        match self.kind {
            BoundKind::Growth { metric, .. } => row.metric(metric),
            BoundKind::Any => &row.self_,
        }
    }

    /// Returns the difference that the bound limits, and the limit. None if the bound is `any`, or
    /// without amounts.
    fn estimate(&self, row: &Row) -> Option<(Estimate, f64)> {
        let metric = self.metric(row);
        match self.kind {
            BoundKind::Any => None,
            BoundKind::Growth { limit: EffectSize::Share(limit), .. } => {
                Some((metric.share.estimate, limit))
            }
            BoundKind::Growth { limit: EffectSize::Amount(_, limit), .. } => {
                metric.amount.map(|amount| (amount.estimate, limit))
            }
        }
    }

    /// Returns the lower end of a row's growth. None if the bound is `any`.
    pub(crate) fn min_growth(&self, row: &Row) -> Option<EffectSize> {
        let (estimate, _) = self.estimate(row)?;
        let low = estimate.low;
        Some(self.unit().map_or(EffectSize::Share(low), |unit| EffectSize::Amount(unit, low)))
    }

    /// Returns the rows that exceed the bound.
    pub(crate) fn exceeding_rows<'a>(&self, diff: &'a Diff) -> impl Iterator<Item = &'a Row> {
        diff.rows.iter().filter(move |row| self.state(row, diff) == BoundState::Exceeded)
    }

    /// Returns the rows for which the bound is undecided.
    pub(crate) fn open_rows<'a>(&self, diff: &'a Diff) -> impl Iterator<Item = &'a Row> {
        diff.rows.iter().filter(move |row| self.state(row, diff) == BoundState::Open)
    }

    /// Returns the number of additional runs per side that would decide all open rows if they were
    /// like the present ones. None if that is more than [`runs_needed::MAX_MORE_RUNS`].
    pub(crate) fn more_runs(&self, diff: &Diff) -> Option<usize> {
        let needs = self.open_rows(diff).map(|row| {
            let (estimate, limit) = self.estimate(row).or_else(|| unseen_change(row, diff))?;
            runs_needed::more_runs(diff, estimate, limit)
        });
        // One more run at least: with the present ones the bound is undecided.
        let mut max = 1;
        for runs in needs {
            max = runs?.max(max);
        }
        Some(max)
    }

    /// Returns a sentence on the open rows and the runs that would decide them. None if no row is
    /// open.
    fn missing(&self, diff: &Diff) -> Option<String> {
        let rows = match self.open_rows(diff).count() {
            0 => return None,
            1 => "1 row".to_owned(),
            open => format!("{open} rows"),
        };
        let need = match self.more_runs(diff) {
            Some(1) => "about 1 more run per side would decide".to_owned(),
            Some(runs) => format!("about {runs} more runs per side would decide"),
            None => {
                let why = match self.kind {
                    BoundKind::Any => {
                        "; allow larger changes with --min-effect, or record for longer"
                    }
                    BoundKind::Growth { .. } => {
                        ", since the bound is too close to the measured difference"
                    }
                };
                format!(
                    "more than {} more runs per side would be needed{why}",
                    runs_needed::MAX_MORE_RUNS
                )
            }
        };
        let cause = match self.kind {
            BoundKind::Any => {
                format!("{rows} may have changed by {} or more", smallest_change(diff))
            }
            BoundKind::Growth { .. } => format!("{rows} may exceed {self}"),
        };
        Some(format!("not enough runs to decide: {cause}; {need}"))
    }
}

/// Returns the smallest change that `any` must not miss.
fn smallest_change(diff: &Diff) -> EffectSize {
    diff.criteria.min_effect.unwrap_or(SMALLEST_CHANGE)
}

/// Returns the difference of a row of which the interval reaches beyond the smallest change that
/// `any` must not miss, and that change; in the direction of growth. None if the row certainly did
/// not change that much. Total is not considered: it is a sum of other rows' self.
fn unseen_change(row: &Row, diff: &Diff) -> Option<(Estimate, f64)> {
    let (estimate, limit) = match smallest_change(diff) {
        EffectSize::Share(limit) => (row.self_.corrected.estimate, limit),
        EffectSize::Amount(_, limit) => (row.self_.amount?.estimate, limit),
    };
    if estimate.high > limit {
        Some((estimate, limit))
    } else if estimate.low < -limit {
        let Estimate { base, new, low, high, p } = estimate;
        Some((Estimate { base: new, new: base, low: -high, high: -low, p }, limit))
    } else {
        None
    }
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiffResult {
    /// A side has too few samples, or a bound is undecided for a row.
    Undecided,
    /// A row exceeds a bound.
    Failed,
    /// Rows changed; none exceeds a bound.
    Changed,
    /// Nothing changed significantly.
    Same,
}

impl DiffResult {
    /// Returns the word that reports use.
    pub(crate) fn word(self) -> &'static str {
        match self {
            DiffResult::Undecided => "undecided",
            DiffResult::Failed => "failed",
            DiffResult::Changed => "changed",
            DiffResult::Same => "same",
        }
    }
}

/// Returns the bounds that rows exceed.
pub(crate) fn exceeded<'a>(diff: &Diff, bounds: &'a [Bound]) -> impl Iterator<Item = &'a Bound> {
    bounds.iter().filter(|bound| bound.exceeding_rows(diff).next().is_some())
}

/// Returns the result of a comparison with these bounds.
pub(crate) fn result(diff: &Diff, bounds: &[Bound]) -> DiffResult {
    if !diff.has_enough_samples() {
        DiffResult::Undecided
    } else if bounds.iter().any(|bound| bound.exceeding_rows(diff).next().is_some()) {
        // One row beyond a bound decides, however many are open.
        DiffResult::Failed
    } else if bounds.iter().any(|bound| bound.open_rows(diff).next().is_some()) {
        DiffResult::Undecided
    } else if diff.rows.iter().any(|row| row.change().is_change()) {
        DiffResult::Changed
    } else {
        DiffResult::Same
    }
}

/// Returns one sentence per cause why a comparison is undecided, with the remedy.
pub(crate) fn missing(diff: &Diff, bounds: &[Bound]) -> Vec<String> {
    if !diff.has_enough_samples() {
        return vec![format!(
            "not enough samples to decide: base has {}, new has {}, at least {MIN_SAMPLES_PER_SIDE} each are needed; {}",
            diff.base.sum.samples,
            diff.new.sum.samples,
            runs_needed::samples_advice(diff),
        )];
    }
    // More runs are of use only once there are enough samples.
    bounds.iter().filter_map(|bound| bound.missing(diff)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> BoundKind {
        text.parse::<Bound>().unwrap().kind
    }

    fn growth(metric: MetricKind, limit: EffectSize) -> BoundKind {
        BoundKind::Growth { metric, limit }
    }

    #[test]
    fn parses_bounds_with_metric_sign_and_unit() {
        let time = |ns| EffectSize::Amount(AmountUnit::Ns, ns);
        assert_eq!(kind("any"), BoundKind::Any);
        assert_eq!(kind("self>+2%"), growth(MetricKind::Self_, EffectSize::Share(0.02)));
        assert_eq!(kind("total>+1.5ms"), growth(MetricKind::Total, time(1.5e6)));
        assert_eq!(kind("self>+2s"), growth(MetricKind::Self_, time(2e9)));
        let bytes = EffectSize::Amount(AmountUnit::Bytes, 1_048_576.0);
        assert_eq!(kind("total>+1MiB"), growth(MetricKind::Total, bytes));
        let count = EffectSize::Amount(AmountUnit::Count, 2.0);
        assert_eq!(kind("self>+2"), growth(MetricKind::Self_, count));
        for wrong in [
            "",
            "self",
            "self>",
            "self>%",
            "self>2",
            "self>2%",
            "self>-2%",
            "self<+2%",
            "both>+2%",
            "self>+2d",
            "self>++2%",
        ] {
            assert!(wrong.parse::<Bound>().is_err(), "{wrong:?}");
        }
    }
}
