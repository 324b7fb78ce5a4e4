//! `--fail-on`: what makes a comparison fail. Pure.

use std::str::FromStr;

use crate::compare::diff::{Diff, MIN_SAMPLES_PER_SIDE};
use crate::compare::effect_size::EffectSize;
use crate::compare::row::{Metric, Row};
use crate::compare::runs_needed;
use crate::stats::Estimate;

/// How much may change before the comparison fails.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    text: String,
    kind: BoundKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BoundKind {
    /// Nothing may.
    Any,
    /// A growth of self or total.
    Growth { total: bool, limit: EffectSize },
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Bound {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected any, self>+P%, total>+P%, self>+Nms or total>+Nms";
        let kind = match text.split_once('>') {
            None if text == "any" => BoundKind::Any,
            Some((metric @ ("self" | "total"), size)) => {
                let limit = size.strip_prefix('+').and_then(|size| size.parse().ok());
                let limit = limit.ok_or(EXPECTED)?;
                BoundKind::Growth { total: metric == "total", limit }
            }
            _ => return Err(EXPECTED),
        };
        Ok(Self { text: text.to_owned(), kind })
    }
}

/// Where a row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BoundState {
    /// Its whole interval lies beyond the bound, and the change is significant.
    Exceeded,
    /// Its interval reaches from below the bound to beyond it: more runs are needed.
    Open,
    /// Its whole interval lies below.
    Within,
}

impl Bound {
    /// Whether it is about CPU time.
    pub(crate) fn is_time(&self) -> bool {
        matches!(self.kind, BoundKind::Growth { limit: EffectSize::Time(_), .. })
    }

    fn state(&self, row: &Row, diff: &Diff) -> BoundState {
        let metric = self.metric(row);
        let Some((estimate, limit)) = self.estimate(row) else {
            return if row.verdict().is_change() {
                BoundState::Exceeded
            } else {
                BoundState::Within
            };
        };
        let significant = match self.is_time() {
            true => metric.time.is_some_and(|time| time.significant),
            false => metric.share.significant,
        };
        if !(significant && estimate.low > limit) {
            return if estimate.high > limit { BoundState::Open } else { BoundState::Within };
        }
        let is_due_to_others = metric.displaced && !self.is_time();
        let counts = metric.is_at_least(diff.criteria.min_effect) && !is_due_to_others;
        if counts { BoundState::Exceeded } else { BoundState::Within }
    }

    fn metric<'a>(&self, row: &'a Row) -> &'a Metric {
        if matches!(self.kind, BoundKind::Growth { total: true, .. }) {
            &row.total
        } else {
            &row.own
        }
    }

    /// The difference this bound is about, with its limit; none where it is about any change, or
    /// where there is no CPU time.
    fn estimate(&self, row: &Row) -> Option<(Estimate, f64)> {
        let metric = self.metric(row);
        match self.kind {
            BoundKind::Any => None,
            BoundKind::Growth { limit: EffectSize::Share(limit), .. } => {
                Some((metric.share.estimate, limit))
            }
            BoundKind::Growth { limit: EffectSize::Time(limit), .. } => {
                metric.time.map(|time| (time.estimate, limit))
            }
        }
    }

    /// How much a row has grown at least; none where the bound is about any change.
    pub(crate) fn growth(&self, row: &Row) -> Option<EffectSize> {
        let (estimate, _) = self.estimate(row)?;
        Some(if self.is_time() {
            EffectSize::Time(estimate.low)
        } else {
            EffectSize::Share(estimate.low)
        })
    }

    /// The rows beyond the bound.
    pub(crate) fn exceeding_rows<'a>(&self, diff: &'a Diff) -> impl Iterator<Item = &'a Row> {
        diff.rows.iter().filter(move |row| self.state(row, diff) == BoundState::Exceeded)
    }

    /// The rows that may be beyond the bound or not.
    pub(crate) fn open_rows<'a>(&self, diff: &'a Diff) -> impl Iterator<Item = &'a Row> {
        diff.rows.iter().filter(move |row| self.state(row, diff) == BoundState::Open)
    }

    /// How many more runs a side would decide on all rows that are open, should they be like
    /// those there are; none where that would be too many to be told.
    pub(crate) fn more_runs(&self, diff: &Diff) -> Option<usize> {
        let of_row = |row: &Row| {
            let (estimate, limit) = self.estimate(row)?;
            runs_needed::more_runs(diff, estimate, limit)
        };
        self.open_rows(diff).map(of_row).try_fold(1, |most, runs| Some(runs?.max(most)))
    }
}

/// What came out of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiffVerdict {
    /// A side has too few samples, or a row may be beyond a bound or not.
    Undecided,
    /// A row is beyond a bound.
    Failed,
    /// Rows changed, none beyond a bound.
    Changed,
    /// Nothing changed significantly.
    Same,
}

impl DiffVerdict {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            DiffVerdict::Undecided => "undecided",
            DiffVerdict::Failed => "failed",
            DiffVerdict::Changed => "changed",
            DiffVerdict::Same => "same",
        }
    }
}

/// What came out of a comparison, with these bounds.
pub(crate) fn verdict(diff: &Diff, bounds: &[Bound]) -> DiffVerdict {
    if !diff.is_decided() {
        DiffVerdict::Undecided
    } else if bounds.iter().any(|bound| bound.exceeding_rows(diff).next().is_some()) {
        DiffVerdict::Failed
    } else if bounds.iter().any(|bound| bound.open_rows(diff).next().is_some()) {
        DiffVerdict::Undecided
    } else if diff.rows.iter().any(|row| row.verdict().is_change()) {
        DiffVerdict::Changed
    } else {
        DiffVerdict::Same
    }
}

/// What is missing for a decision, and how to get it: a sentence for each cause.
pub(crate) fn missing(diff: &Diff, bounds: &[Bound]) -> Vec<String> {
    if !diff.is_decided() {
        return vec![format!(
            "not enough samples to decide: {} and {}, {MIN_SAMPLES_PER_SIDE} a side at least: {}",
            diff.base.sum.samples,
            diff.new.sum.samples,
            runs_needed::samples_advice(diff),
        )];
    }
    let of_bound = |bound: &Bound| {
        let open_rows = bound.open_rows(diff).count();
        (open_rows > 0).then(|| {
            let rows = if open_rows == 1 { "1 row" } else { &format!("{open_rows} rows") };
            let need = match bound.more_runs(diff) {
                Some(1) => "about 1 more run a side would decide".to_owned(),
                Some(runs) => format!("about {runs} more runs a side would decide"),
                None => format!(
                    "more than {} more runs a side would be needed: the bound lies too near to what was measured",
                    runs_needed::MAX_MORE_RUNS
                ),
            };
            format!("not enough runs to decide: {rows} may be beyond {bound} or not: {need}")
        })
    };
    bounds.iter().filter_map(of_bound).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read() {
        let growth = |text: &str| text.parse::<Bound>().unwrap().kind;
        assert_eq!(growth("any"), BoundKind::Any);
        let share = BoundKind::Growth { total: false, limit: EffectSize::Share(0.02) };
        assert_eq!(growth("self>+2%"), share);
        assert_eq!(
            growth("total>+1.5ms"),
            BoundKind::Growth { total: true, limit: EffectSize::Time(1.5e6) }
        );
        assert_eq!(
            growth("self>+2s"),
            BoundKind::Growth { total: false, limit: EffectSize::Time(2e9) }
        );
        for wrong in [
            "",
            "self",
            "self>",
            "self>%",
            "self>+2",
            "self>2%",
            "self>-2%",
            "self<+2%",
            "both>+2%",
            "self>+2h",
            "self>++2%",
        ] {
            assert!(wrong.parse::<Bound>().is_err(), "{wrong:?}");
        }
    }
}
