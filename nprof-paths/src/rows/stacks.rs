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
