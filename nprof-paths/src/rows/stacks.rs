//! Rows of folded stacks: the call paths within the limits. All other samples are kept, too, as
//! `(other)` below the last call of their path that is within the limits: the samples of every
//! call that is shown are complete.

use std::collections::BTreeMap;

use nprof_report::profile::{ReportedEvent, Sum};
use nprof_report::report::RowLimits;

use crate::tree::call_tree::{NodeIndex, Tree, largest_first};

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

/// Returns the stacks of each event within the limits: calls below the minimum share, and paths
/// beyond the maximum number, are in `(other)`.
pub fn stack_rows(tree: &Tree, events: &[ReportedEvent], limits: &RowLimits) -> Vec<StackRows> {
    events.iter().map(|&event| rows_of_event(tree, event, limits)).collect()
}

fn rows_of_event(tree: &Tree, event: ReportedEvent, limits: &RowLimits) -> StackRows {
    let leaves = tree.leaves(event.event);
    let mut is_shown = vec![limits.rows.is_none(); tree.nodes.len()];
    if let Some(count) = limits.rows {
        let mut largest = leaves.clone();
        // The sort is stable and leaves come in the order of names.
        largest.sort_by(|&a, &b| largest_first(tree.nodes[a].self_, tree.nodes[b].self_));
        for node in largest.into_iter().take(count).flat_map(|leaf| with_callers(tree, leaf)) {
            is_shown[node] = true;
        }
    }
    let is_shown =
        |node: NodeIndex| is_shown[node] && !limits.is_small(tree.nodes[node].total, event.whole);
    // Sorted by node, so that the order is defined.
    let mut sums: BTreeMap<(Option<NodeIndex>, bool), Sum> = BTreeMap::new();
    let mut other = Sum::default();
    for leaf in leaves {
        // A total is never larger than that of the caller: the calls above this one are shown, too.
        let node = with_callers(tree, leaf).find(|&node| is_shown(node));
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

/// Returns a node and all nodes above it, the root included.
fn with_callers(tree: &Tree, node: NodeIndex) -> impl Iterator<Item = NodeIndex> + '_ {
    std::iter::successors(Some(node), |&node| tree.parent(node))
}
