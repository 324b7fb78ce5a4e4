//! What may have been renamed: a row that vanished and a new one of the same image and about the
//! same share. Only ever proposed. Pure.

use crate::compare::diff::Diff;
use crate::compare::row::{Metric, Row, Verdict};
use crate::input::key::{By, KeyId, Keys};

/// Of more rows than this on a side, those with the largest shares are looked at.
const MOST: usize = 200;

/// Shares this near to each other, relatively, are about the same, however exact they are.
const NEAR: f64 = 0.1;

/// Shares that differ by more than this factor are not about the same, however inexact.
const FAR: f64 = 2.0;

/// A row that may be another one's under a new name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair<'a> {
    /// What vanished.
    pub(crate) old: &'a Row,
    /// What is new.
    pub(crate) new: &'a Row,
}

/// The pairs, the largest share first; a row is in one at most. Of several that fit, the ones
/// whose names are most alike are taken.
pub(crate) fn propose<'a>(diff: &'a Diff, keys: &Keys, by: By) -> Vec<Pair<'a>> {
    // A line that moves has another number, and a path another name with every function on it.
    if matches!(by, By::Line | By::Path) {
        return Vec::new();
    }
    let removed = largest(diff, keys, Verdict::Removed, |row| row.total.share.estimate.base);
    let added = largest(diff, keys, Verdict::Added, |row| row.total.share.estimate.new);
    let mut fitting = Vec::new();
    for old in &removed {
        for new in added.iter().filter(|new| fits(old, new, keys)) {
            fitting.push((likeness(keys, old.key, new.key), Pair { old, new }));
        }
    }
    // The sort is stable: of equally like ones the largest come first.
    fitting.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut pairs: Vec<Pair<'a>> = Vec::new();
    for (_, pair) in fitting {
        let is_taken =
            |other: &Pair<'_>| other.old.key == pair.old.key || other.new.key == pair.new.key;
        if !pairs.iter().any(is_taken) {
            pairs.push(pair);
        }
    }
    let share = |pair: &Pair<'_>| pair.old.total.share.estimate.base;
    pairs.sort_by(|a, b| share(b).total_cmp(&share(a)));
    pairs
}

fn largest<'a>(
    diff: &'a Diff,
    keys: &Keys,
    verdict: Verdict,
    share: fn(&Row) -> f64,
) -> Vec<&'a Row> {
    let rows = diff.rows.iter().filter(|row| row.verdict() == verdict);
    let mut rows: Vec<&Row> = rows.filter(|row| !keys.get(row.key).is_placeholder()).collect();
    rows.sort_by(|a, b| share(b).total_cmp(&share(a)).then(a.key.cmp(&b.key)));
    rows.truncate(MOST);
    rows
}

fn fits(old: &Row, new: &Row, keys: &Keys) -> bool {
    keys.get(old.key).image == keys.get(new.key).image
        && is_about_the_same(&old.own, &new.own)
        && is_about_the_same(&old.total, &new.total)
}

/// Whether the share that one had on the base is about the share that the other has now.
fn is_about_the_same(old: &Metric, new: &Metric) -> bool {
    let (old, new) = (&old.share.estimate, &new.share.estimate);
    let (larger, smaller) = (old.base.max(new.new), old.base.min(new.new));
    let reach = (old.difference() - old.low).hypot(new.high - new.difference());
    larger - smaller <= reach.max(NEAR * larger) && larger <= FAR * smaller
}

/// How alike two names are, from 0 to 1.
fn likeness(keys: &Keys, old: KeyId, new: KeyId) -> f64 {
    strsim::normalized_levenshtein(&keys.name(old), &keys.name(new))
}
