//! What may have been renamed: a row that vanished and a new one of the same image and about the
//! same share. Only ever proposed. Pure.

use crate::compare::diff::Diff;
use crate::compare::row::{Metric, Row, RowVerdict};
use crate::input::key::{By, KeyId, KeyTable};

/// Of more rows than this on a side, those with the largest shares are looked at.
const MAX_ROWS: usize = 200;

/// Shares this near to each other, relatively, are about the same, however exact they are.
const SHARE_TOLERANCE: f64 = 0.1;

/// Shares that differ by more than this factor are not about the same, however inexact.
const MAX_SHARE_RATIO: f64 = 2.0;

/// A row that may be another one's under a new name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RenameCandidate<'a> {
    /// What vanished.
    pub(crate) old: &'a Row,
    /// What is new.
    pub(crate) new: &'a Row,
}

/// The pairs, the largest share first; a row is in one at most. Of several that fit, the ones
/// whose names are most alike are taken.
pub(crate) fn propose<'a>(diff: &'a Diff, keys: &KeyTable, by: By) -> Vec<RenameCandidate<'a>> {
    // A line that moves has another number, and a path another name with every function on it.
    if matches!(by, By::Line | By::Path) {
        return Vec::new();
    }
    let removed = largest(diff, keys, RowVerdict::Removed, |row| row.total.share.estimate.base);
    let added = largest(diff, keys, RowVerdict::Added, |row| row.total.share.estimate.new);
    let mut fitting = Vec::new();
    for old in &removed {
        for new in added.iter().filter(|new| fits(old, new, keys)) {
            fitting.push((likeness(keys, old.key, new.key), RenameCandidate { old, new }));
        }
    }
    // The sort is stable: of equally like ones the largest come first.
    fitting.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut rename_candidates: Vec<RenameCandidate<'a>> = Vec::new();
    for (_, pair) in fitting {
        let is_taken = |other: &RenameCandidate<'_>| {
            other.old.key == pair.old.key || other.new.key == pair.new.key
        };
        if !rename_candidates.iter().any(is_taken) {
            rename_candidates.push(pair);
        }
    }
    let share = |pair: &RenameCandidate<'_>| pair.old.total.share.estimate.base;
    rename_candidates.sort_by(|a, b| share(b).total_cmp(&share(a)));
    rename_candidates
}

fn largest<'a>(
    diff: &'a Diff,
    keys: &KeyTable,
    verdict: RowVerdict,
    share: fn(&Row) -> f64,
) -> Vec<&'a Row> {
    let rows = diff.rows.iter().filter(|row| row.verdict() == verdict);
    let mut rows: Vec<&Row> = rows.filter(|row| !keys.get(row.key).is_placeholder()).collect();
    rows.sort_by(|a, b| share(b).total_cmp(&share(a)).then(a.key.cmp(&b.key)));
    rows.truncate(MAX_ROWS);
    rows
}

fn fits(old: &Row, new: &Row, keys: &KeyTable) -> bool {
    keys.get(old.key).image == keys.get(new.key).image
        && is_about_the_same(&old.own, &new.own)
        && is_about_the_same(&old.total, &new.total)
}

/// Whether the share that one had on the base is about the share that the other has now.
fn is_about_the_same(old: &Metric, new: &Metric) -> bool {
    let (old, new) = (&old.share.estimate, &new.share.estimate);
    let (larger, smaller) = (old.base.max(new.new), old.base.min(new.new));
    let reach = (old.difference() - old.low).hypot(new.high - new.difference());
    larger - smaller <= reach.max(SHARE_TOLERANCE * larger) && larger <= MAX_SHARE_RATIO * smaller
}

/// How alike two names are, from 0 to 1.
fn likeness(keys: &KeyTable, old: KeyId, new: KeyId) -> f64 {
    strsim::normalized_levenshtein(&keys.name(old), &keys.name(new))
}
