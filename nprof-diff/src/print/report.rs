//! The content of a report, independent of its format. Pure.

use std::cmp::Ordering;

use nprof_report::ratio_scale::RatioScale;

use crate::compare::diff::Diff;
use crate::compare::effect_size::EffectSize;
use crate::compare::fail_on::Bound;
use crate::compare::noise::{NoiseCalibration, RowNoise};
use crate::compare::rename_candidates::RenameCandidate;
use crate::compare::row::{Metric, Row, RowChange};
use crate::input::event::ComparedEvent;
use crate::input::key::KeyTable;
use crate::input::moved_files::MovedDirectory;
use crate::input::row_kind::RowKind;
use crate::input::side::Side;
use crate::print::sort::Sort;

/// The content of a report on two sides.
#[derive(Debug)]
pub(crate) struct DiffReport<'a> {
    /// The kind of the rows.
    pub(crate) row_kind: RowKind,
    /// The base.
    pub(crate) base: &'a Side,
    /// The new side.
    pub(crate) new: &'a Side,
    /// The event compared. None without samples.
    pub(crate) event: Option<&'a ComparedEvent>,
    /// The event that it is divided by. None unless one was requested.
    pub(crate) per: Option<&'a ComparedEvent>,
    /// The comparison.
    pub(crate) diff: &'a Diff,
    /// The keys of its rows.
    pub(crate) keys: &'a KeyTable,
    /// Directories of source files that have another path on the new side.
    pub(crate) moved_directories: &'a [MovedDirectory],
    /// The warnings.
    pub(crate) warnings: &'a [String],
    /// The bounds of `--fail-on`.
    pub(crate) bounds: &'a [Bound],
    /// The order of the rows.
    pub(crate) sort: Sort,
    /// The largest number of rows to print.
    pub(crate) row_limit: usize,
    /// True if the heading of a table has all facts about both sides.
    pub(crate) is_verbose: bool,
    /// Possible renames.
    pub(crate) rename_candidates: &'a [RenameCandidate<'a>],
    /// The call paths of the functions. None unless the format has both.
    pub(crate) paths: Option<DiffRows<'a>>,
    /// The source lines. None unless the format has both.
    pub(crate) lines: Option<DiffRows<'a>>,
}

/// The comparison of two sides by another kind of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiffRows<'a> {
    /// The comparison.
    pub(crate) diff: &'a Diff,
    /// The keys of its rows.
    pub(crate) keys: &'a KeyTable,
}

/// The content of a report on the noise of one side.
#[derive(Debug)]
pub(crate) struct NoiseReport<'a> {
    /// The kind of the rows.
    pub(crate) row_kind: RowKind,
    /// The side.
    pub(crate) base: &'a Side,
    /// The event compared. None without samples.
    pub(crate) event: Option<&'a ComparedEvent>,
    /// The noise.
    pub(crate) calibration: &'a NoiseCalibration,
    /// The keys of its rows.
    pub(crate) keys: &'a KeyTable,
    /// The warnings.
    pub(crate) warnings: &'a [String],
    /// The largest number of rows to print.
    pub(crate) row_limit: usize,
}

impl<'a> DiffReport<'a> {
    /// Returns the unit of ratios. None unless ratios are compared.
    pub(super) fn ratio_scale(&self) -> Option<RatioScale> {
        let of = |event: Option<&'a ComparedEvent>| event?.summaries(self.base).next();
        Some(RatioScale::of(of(self.event)?, of(self.per)?))
    }

    /// Returns all rows in the requested order; equal ones by the other metric, then by name and
    /// image.
    pub(super) fn sorted_rows(&self) -> Vec<&'a Row> {
        DiffRows { diff: self.diff, keys: self.keys }.sorted_rows(self.sort)
    }

    /// Returns the rows beyond a bound: the largest growth first, then those that shrank. Equal ones are
    /// in the requested order.
    pub(super) fn rows_beyond(&self, bound: &Bound) -> Vec<&'a Row> {
        let rows = DiffRows { diff: self.diff, keys: self.keys };
        let mut rows = rows.sorted(bound.exceeding_rows(self.diff), self.sort);
        let growth = |row: &Row| match bound.min_growth(row) {
            Some(EffectSize::Share(size) | EffectSize::Amount(_, size)) => size,
            None => f64::from(matches!(row.change(), RowChange::Added | RowChange::Grown)),
        };
        rows.sort_by(|a, b| growth(b).total_cmp(&growth(a)));
        rows
    }
}

impl<'a> DiffRows<'a> {
    /// Returns all rows in this order, as [`DiffReport::sorted_rows`] does.
    pub(super) fn sorted_rows(&self, sort: Sort) -> Vec<&'a Row> {
        self.sorted(self.diff.rows.iter(), sort)
    }

    /// Returns some of the rows in this order.
    fn sorted(&self, rows: impl Iterator<Item = &'a Row>, sort: Sort) -> Vec<&'a Row> {
        let mut rows: Vec<&Row> = rows.collect();
        // Ranks are those of all names: none are needed for the bounds of a gate that passes.
        if rows.len() < 2 {
            return rows;
        }
        let ranks = self.keys.ranks();
        // Ranks instead of names in the comparison: a name would be built for each of them.
        rows.sort_by(|a, b| {
            let self_ = share_change(&b.self_).total_cmp(&share_change(&a.self_));
            let total = share_change(&b.total).total_cmp(&share_change(&a.total));
            let difference = match sort {
                Sort::Self_ => self_.then(total),
                Sort::Total => total.then(self_),
                Sort::Name => Ordering::Equal,
            };
            difference.then_with(|| ranks[a.key.index()].cmp(&ranks[b.key.index()]))
        });
        rows
    }
}

fn share_change(metric: &Metric) -> f64 {
    metric.share.estimate.difference().abs()
}

impl<'a> NoiseReport<'a> {
    /// Returns all rows, the highest noise floor first.
    pub(super) fn sorted_rows(&self) -> Vec<&'a RowNoise> {
        let ranks = self.keys.ranks();
        let mut rows: Vec<&RowNoise> = self.calibration.rows.iter().collect();
        rows.sort_by(|a, b| {
            let floors = share_floor(b).total_cmp(&share_floor(a));
            floors.then_with(|| ranks[a.key.index()].cmp(&ranks[b.key.index()]))
        });
        rows
    }
}

fn share_floor(row: &RowNoise) -> f64 {
    row.self_.share.floor.max(row.total.share.floor)
}
