//! Proposes renames: pairs of a removed and an added row of the same image with about the same
//! share. They are only proposed, never applied. Pure.

use crate::compare::diff::Diff;
use crate::compare::row::{Metric, Row, RowChange};
use crate::input::key::{KeyId, KeyTable};
use crate::input::row_kind::RowKind;

/// The number of removed rows, and of added rows, that are considered: those with the largest
/// shares. The search compares every pair.
const MAX_ROWS: usize = 200;

/// The relative difference up to which two shares are about the same, however narrow their
/// intervals.
const SHARE_TOLERANCE: f64 = 0.1;

/// The ratio above which two shares are not about the same, however wide their intervals.
const MAX_SHARE_RATIO: f64 = 2.0;

/// A removed row and an added row that may be the same under two names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RenameCandidate<'a> {
    /// The removed row.
    pub(crate) old: &'a Row,
    /// The added row.
    pub(crate) new: &'a Row,
}

/// Returns the pairs, the largest share first. A row is in one pair at most; of several that fit,
/// the one with the most similar name is taken.
pub(crate) fn propose<'a>(
    diff: &'a Diff,
    keys: &KeyTable,
    row_kind: RowKind,
) -> Vec<RenameCandidate<'a>> {
    // A line that moves has another number, and a path changes with every function on it.
    if matches!(row_kind, RowKind::Line | RowKind::Path) {
        return Vec::new();
    }
    let removed = largest(diff, keys, RowChange::Removed, |row| row.total.share.estimate.base);
    let added = largest(diff, keys, RowChange::Added, |row| row.total.share.estimate.new);
    let mut fitting = Vec::new();
    for old in &removed {
        for new in added.iter().filter(|new| fits(old, new, keys)) {
            fitting.push((similarity(keys, old.key, new.key), RenameCandidate { old, new }));
        }
    }
    // The sort is stable: of equally similar names, the largest shares come first.
    fitting.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut candidates: Vec<RenameCandidate<'a>> = Vec::new();
    for (_, pair) in fitting {
        let is_taken = |other: &RenameCandidate<'_>| {
            other.old.key == pair.old.key || other.new.key == pair.new.key
        };
        if !candidates.iter().any(is_taken) {
            candidates.push(pair);
        }
    }
    candidates.sort_by(|a, b| {
        let (a, b) = (a.old.total.share.estimate.base, b.old.total.share.estimate.base);
        b.total_cmp(&a)
    });
    candidates
}

/// Returns the named rows with this change and the largest shares.
fn largest<'a>(
    diff: &'a Diff,
    keys: &KeyTable,
    change: RowChange,
    share: fn(&Row) -> f64,
) -> Vec<&'a Row> {
    let rows = diff.rows.iter().filter(|row| row.change() == change);
    let mut rows: Vec<&Row> = rows.filter(|row| !keys.get(row.key).is_placeholder()).collect();
    rows.sort_by(|a, b| share(b).total_cmp(&share(a)).then(a.key.cmp(&b.key)));
    rows.truncate(MAX_ROWS);
    rows
}

fn fits(old: &Row, new: &Row, keys: &KeyTable) -> bool {
    keys.get(old.key).image == keys.get(new.key).image
        && has_about_same_share(&old.self_, &new.self_)
        && has_about_same_share(&old.total, &new.total)
}

/// True if the share of `new` on the new side is about the share of `old` on the base.
fn has_about_same_share(old: &Metric, new: &Metric) -> bool {
    let (old, new) = (&old.share.estimate, &new.share.estimate);
    let (larger, smaller) = (old.base.max(new.new), old.base.min(new.new));
    // The half-width of the interval of the difference of both shares.
    let uncertainty = (old.difference() - old.low).hypot(new.high - new.difference());
    larger - smaller <= uncertainty.max(SHARE_TOLERANCE * larger)
        && larger <= MAX_SHARE_RATIO * smaller
}

/// Returns the similarity of two names, from 0 to 1.
fn similarity(keys: &KeyTable, old: KeyId, new: KeyId) -> f64 {
    strsim::normalized_levenshtein(&keys.name(old), &keys.name(new))
}
