//! Rows of folded stacks: the call paths within the limits. All other samples are kept, too, as
//! `(other)` below the last call of their path that is within the limits: the samples of every
//! call that is shown are complete.

use std::collections::BTreeMap;

use nprof_report::profile::{ReportedEvent, Sum};
use nprof_report::report::RowLimits;

use crate::rows::shown_calls::{ShownCalls, with_callers};
use crate::tree::call_tree::{NodeIndex, Tree};

/// The stacks of one event.
#[derive(Debug)]
pub struct StackRows {
    /// The event.
    pub event: ReportedEvent,
    /// The stacks in the order of the tree.
    pub stacks: Vec<StackRow>,
    /// The samples in `(other)`.
    pub other: Sum,
}

/// Samples with one stack, or with several that are too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackRow {
    /// The last call that is shown. None if there is none: the command is too small.
    pub node: Option<NodeIndex>,
    /// True for the sum of the smaller calls below `node`.
    pub is_other: bool,
    /// The samples.
    pub sum: Sum,
}

/// The most frames of a picture, which has 250 bytes for each: a browser shows 6 MB at once.
const MAX_FRAMES: usize = 24 << 10;

/// The length of all stacks of a picture, which its library has in memory.
const MAX_DRAWN_BYTES: usize = 80 << 20;

/// The step by which the minimum share of a picture grows until the picture is within its bounds.
const STEP: f64 = 1.25;

/// The minimum share that follows 0 per cent.
const FIRST_PERCENT: f64 = 0.001;

/// Returns the stacks of a picture: as [`stack_rows`], with a minimum share that bounds memory; and the
/// limits with this share.
pub fn drawn_rows(
    tree: &Tree,
    events: &[ReportedEvent],
    limits: &RowLimits,
) -> (Vec<StackRows>, RowLimits) {
    let lengths = path_lengths(tree);
    let mut limits = *limits;
    loop {
        let rows = stack_rows(tree, events, &limits);
        if is_drawable(tree, &rows, &lengths) || limits.min_percent > 100.0 {
            return (rows, limits);
        }
        limits.min_percent = next_percent(limits.min_percent);
    }
}

/// Returns the next larger minimum share, with two digits: users read it.
fn next_percent(percent: f64) -> f64 {
    let next = (percent * STEP).max(FIRST_PERCENT);
    let decimals = (1 - next.log10().floor() as i32).max(0);
    // Divided by a whole number: 13 * 0.001 would be 0.013000000000000001.
    let scale = 10f64.powi(decimals);
    (next * scale).ceil() / scale
}

/// Returns the length of the path down to each node, as text.
fn path_lengths(tree: &Tree) -> Vec<usize> {
    let mut lengths: Vec<usize> = Vec::with_capacity(tree.nodes.len());
    // Callers come before their callees.
    for node in 0..tree.nodes.len() {
        let above = tree.parent(node).map_or(0, |parent| lengths[parent]);
        lengths.push(above.saturating_add(tree.function(node).name.len() + 1));
    }
    lengths
}

/// True if the frames and the text of the stacks are within the bounds.
fn is_drawable(tree: &Tree, rows: &[StackRows], lengths: &[usize]) -> bool {
    let mut is_frame = vec![false; tree.nodes.len()];
    let (mut frames, mut bytes) = (0, 0usize);
    for row in rows.iter().flat_map(|rows| &rows.stacks) {
        frames += usize::from(row.is_other);
        let Some(leaf) = row.node else { continue };
        bytes = bytes.saturating_add(lengths[leaf]);
        for node in with_callers(tree, leaf) {
            // The callers were counted with it.
            if std::mem::replace(&mut is_frame[node], true) {
                break;
            }
            frames += 1;
        }
    }
    frames <= MAX_FRAMES && bytes <= MAX_DRAWN_BYTES
}

/// Returns the stacks of each event within the limits: calls below the minimum share, and paths
/// beyond the maximum number, are in `(other)`.
pub fn stack_rows(tree: &Tree, events: &[ReportedEvent], limits: &RowLimits) -> Vec<StackRows> {
    events.iter().map(|&event| rows_of_event(tree, event, limits)).collect()
}

fn rows_of_event(tree: &Tree, event: ReportedEvent, limits: &RowLimits) -> StackRows {
    let shown = ShownCalls::of(tree, event, limits);
    // Sorted by node, so that the order is defined.
    let mut sums: BTreeMap<(Option<NodeIndex>, bool), Sum> = BTreeMap::new();
    let mut other = Sum::default();
    for leaf in tree.leaves(event.event) {
        // A total is never larger than that of the caller: the calls above this one are shown, too.
        let node = with_callers(tree, leaf).find(|&node| shown.contains(node));
        let sum = tree.nodes[leaf].self_;
        let is_other = node != Some(leaf);
        if is_other {
            other.add(sum);
        }
        sums.entry((node, is_other)).or_default().add(sum);
    }
    let row = |((node, is_other), sum)| StackRow { node, is_other, sum };
    StackRows { event, stacks: sums.into_iter().map(row).collect(), other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_share_has_two_digits() {
        let mut percent = 0.0;
        while next_percent(percent) < 100.0 {
            let before = percent;
            percent = next_percent(percent);
            assert!(percent > before, "{percent}");
            let digits = percent.to_string();
            let digits = digits.trim_start_matches(['0', '.']).replace('.', "");
            assert!(digits.trim_end_matches('0').len() <= 2, "{percent}");
        }
        assert_eq!(next_percent(0.01), 0.013);
    }
}
