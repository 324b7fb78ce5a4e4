//! The rows of a report for people: those that changed, and those beyond a bound. Pure.

use rustc_hash::FxHashSet;

use crate::compare::row::{Row, RowChange};
use crate::input::event::AmountUnit;
use crate::input::key::KeyId;
use crate::print::report::DiffReport;

/// The group of a row in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Rows with a change that is reported.
    Changed(RowChange),
    /// Rows that exceed a bound in their amount, though their share did not change.
    ExceedsInAmount,
}

impl Group {
    /// Returns all groups in the order of printing.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        RowChange::CHANGES.map(Group::Changed).into_iter().chain([Group::ExceedsInAmount])
    }

    /// Returns the title, for an event with this unit of amounts.
    pub(super) fn title(self, unit: Option<AmountUnit>) -> String {
        match self {
            Group::Changed(change) => change.word().to_owned(),
            Group::ExceedsInAmount => {
                let unit = unit.map_or("amount", AmountUnit::name);
                format!("grown in {unit} only, beyond a bound")
            }
        }
    }
}

/// Returns the rows that changed or exceed a bound, with their groups, in the order of the report.
pub(super) fn changed<'a>(report: &DiffReport<'a>, rows: &[&'a Row]) -> Vec<(Group, &'a Row)> {
    let bounds = report.bounds.iter();
    let exceeding: FxHashSet<KeyId> =
        bounds.flat_map(|bound| bound.exceeding_rows(report.diff)).map(|row| row.key).collect();
    let mut changed = Vec::new();
    for &row in rows {
        let change = row.change();
        if change.is_change() {
            changed.push((Group::Changed(change), row));
        } else if exceeding.contains(&row.key) {
            // A bound on a share is exceeded by changed rows only, so this bound is an amount.
            changed.push((Group::ExceedsInAmount, row));
        }
    }
    changed
}

/// Returns the rows to print. The limit applies to the changes of all groups together, the largest
/// first. Rows that exceed a bound in amount have a limit of their own: their shares did not change, so
/// they would always come last.
pub(super) fn within_limit<'a>(
    changed: &[(Group, &'a Row)],
    limit: usize,
) -> Vec<(Group, &'a Row)> {
    let (in_amount, in_share): (Vec<_>, Vec<_>) =
        changed.iter().partition(|(group, _)| *group == Group::ExceedsInAmount);
    in_share.into_iter().take(limit).chain(in_amount.into_iter().take(limit)).collect()
}
