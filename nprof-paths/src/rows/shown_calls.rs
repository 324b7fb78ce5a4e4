//! The calls of a tree that the limits of a report keep.

use nprof_report::profile::ReportedEvent;
use nprof_report::report::RowLimits;

use crate::tree::call_tree::{NodeIndex, Tree, largest_first};

/// The calls of one event that are shown: those with the minimum share on the heaviest paths. The caller
/// of such a call is one, too.
pub(super) struct ShownCalls<'a> {
    tree: &'a Tree,
    event: ReportedEvent,
    limits: RowLimits,
    /// By node, true if it is on one of the heaviest paths. None if all paths are shown.
    is_on_path: Option<Vec<bool>>,
}

impl<'a> ShownCalls<'a> {
    /// Selects the calls of an event.
    pub(super) fn of(tree: &'a Tree, event: ReportedEvent, limits: &RowLimits) -> Self {
        let is_on_path = limits.rows.map(|count| on_heaviest_paths(tree, event.event, count));
        Self { tree, event, limits: *limits, is_on_path }
    }

    /// True if the call is shown.
    pub(super) fn contains(&self, node: NodeIndex) -> bool {
        self.is_on_path.as_ref().is_none_or(|is_on_path| is_on_path[node])
            && !self.limits.is_small(self.tree.nodes[node].total, self.event.whole)
    }
}

/// Returns which nodes are on the `count` heaviest paths of an event.
fn on_heaviest_paths(tree: &Tree, event: usize, count: usize) -> Vec<bool> {
    let mut leaves = tree.leaves(event);
    // The sort is stable and leaves come in the order of names.
    leaves.sort_by(|&a, &b| largest_first(tree.nodes[a].self_, tree.nodes[b].self_));
    let mut is_on_path = vec![false; tree.nodes.len()];
    for leaf in leaves.into_iter().take(count) {
        for node in with_callers(tree, leaf) {
            is_on_path[node] = true;
        }
    }
    is_on_path
}

/// Returns a node and all nodes above it, the root included.
pub(crate) fn with_callers(tree: &Tree, node: NodeIndex) -> impl Iterator<Item = NodeIndex> + '_ {
    std::iter::successors(Some(node), |&node| tree.parent(node))
}
