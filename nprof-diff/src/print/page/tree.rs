//! The call paths of both sides in the order of a flame graph. Pure.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::compare::row::Row;
use crate::print::report::DiffRows;

/// A path on the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    pub(super) row: &'a Row,
    /// The number of its callers, and 1.
    pub(super) depth: u64,
}

/// A row by its weight; equal ones by the order of the names of paths.
#[derive(Clone, Copy, Debug)]
struct Weighted<'a> {
    row: &'a Row,
    /// The mean share of both sides, by which the page draws it.
    share: f64,
    rank: u32,
}

/// Returns the heaviest paths, at most `limit`, in depth-first order; heavier callees first.
pub(super) fn heaviest<'a>(paths: &DiffRows<'a>, limit: usize) -> Vec<Node<'a>> {
    let callees = callees(paths);
    let mut is_kept = vec![false; paths.keys.len()];
    let mut candidates: BinaryHeap<Weighted<'_>> = callees[0].iter().copied().collect();
    // Callees become candidates with their caller: no path is kept without it.
    for _ in 0..limit {
        let Some(heaviest) = candidates.pop() else { break };
        is_kept[heaviest.row.key.index()] = true;
        candidates.extend(&callees[1 + heaviest.row.key.index()]);
    }
    let mut nodes = Vec::new();
    // A stack of its own: paths are too deep for recursion.
    let mut pending: Vec<(&Weighted<'_>, u64)> =
        callees[0].iter().map(|callee| (callee, 1)).collect();
    while let Some((path, depth)) = pending.pop() {
        if !is_kept[path.row.key.index()] {
            continue;
        }
        nodes.push(Node { row: path.row, depth });
        pending.extend(callees[1 + path.row.key.index()].iter().map(|callee| (callee, depth + 1)));
    }
    nodes
}

/// Returns the rows of the paths without a caller, then those that extend the path of each key; lighter ones
/// first.
fn callees<'a>(paths: &DiffRows<'a>) -> Vec<Vec<Weighted<'a>>> {
    let ranks = paths.keys.ranks();
    let mut callees: Vec<Vec<Weighted<'_>>> = vec![Vec::new(); 1 + paths.keys.len()];
    for row in &paths.diff.rows {
        let share = row.total.share.estimate;
        let share = (share.base + share.new) / 2.0;
        let caller = paths.keys.get(row.key).caller.map_or(0, |caller| 1 + caller.index());
        callees[caller].push(Weighted { row, share, rank: ranks[row.key.index()] });
    }
    callees.iter_mut().for_each(|rows| rows.sort());
    callees
}

impl Ord for Weighted<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.share.total_cmp(&other.share).then_with(|| other.rank.cmp(&self.rank))
    }
}

impl PartialOrd for Weighted<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Weighted<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Weighted<'_> {}
