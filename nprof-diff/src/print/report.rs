//! The data of a report, before it is printed in any format. Pure.

use crate::compare::diff::Diff;
use crate::compare::fail_on::Bound;
use crate::compare::noise::NoiseCalibration;
use crate::compare::rename_candidates::RenameCandidate;
use crate::compare::row::{Metric, Row};
use crate::input::event::ComparedEvent;
use crate::input::key::{By, KeyTable};
use crate::input::side::Side;
use crate::print::options::Sort;

/// All that a report says.
#[derive(Debug)]
pub(crate) struct DiffReport<'a> {
    /// What a row is.
    pub(crate) by: By,
    /// The base.
    pub(crate) base: &'a Side,
    /// The new side.
    pub(crate) new: &'a Side,
    /// What was compared; none when there are no samples.
    pub(crate) event: Option<&'a ComparedEvent>,
    /// The comparison.
    pub(crate) diff: &'a Diff,
    /// The names of its rows.
    pub(crate) keys: &'a KeyTable,
    /// What the reader must know.
    pub(crate) warnings: &'a [String],
    /// What would make the comparison fail.
    pub(crate) bounds: &'a [Bound],
    /// The order of the rows.
    pub(crate) sort: Sort,
    /// How many rows to print.
    pub(crate) row_limit: usize,
    /// What may have been renamed.
    pub(crate) rename_candidates: &'a [RenameCandidate<'a>],
    /// The columns of the terminal it goes to, if it goes to one.
    pub(crate) width: Option<usize>,
}

/// All that a report on the noise of one side says.
#[derive(Debug)]
pub(crate) struct NoiseReport<'a> {
    /// What a row is.
    pub(crate) by: By,
    /// The side.
    pub(crate) base: &'a Side,
    /// What was compared; none when there are no samples.
    pub(crate) event: Option<&'a ComparedEvent>,
    /// The noise.
    pub(crate) calibration: &'a NoiseCalibration,
    /// The names of its rows.
    pub(crate) keys: &'a KeyTable,
    /// What the reader must know.
    pub(crate) warnings: &'a [String],
    /// How many rows to print.
    pub(crate) row_limit: usize,
    /// The columns of the terminal it goes to, if it goes to one.
    pub(crate) width: Option<usize>,
}

impl DiffReport<'_> {
    /// All rows, sorted; equal ones by the other metric, then by name and image.
    pub(super) fn sorted(&self) -> Vec<&Row> {
        let size = |metric: &Metric| metric.share.estimate.difference().abs();
        let ranks = self.keys.ranks();
        let mut rows: Vec<&Row> = self.diff.rows.iter().collect();
        rows.sort_by(|a, b| {
            let own = size(&b.own).total_cmp(&size(&a.own));
            let total = size(&b.total).total_cmp(&size(&a.total));
            let difference = match self.sort {
                Sort::Own => own.then(total),
                Sort::Total => total.then(own),
                Sort::Name => std::cmp::Ordering::Equal,
            };
            difference.then_with(|| ranks[a.key.index()].cmp(&ranks[b.key.index()]))
        });
        rows
    }
}
