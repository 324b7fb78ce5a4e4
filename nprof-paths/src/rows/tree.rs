//! Rows of the views `tree` and `callers`: one per node of a call tree. Subtrees beyond the limits are
//! omitted, but stay in the totals of their callers.

use nprof_report::profile::{ReportedEvent, Sum};
use nprof_report::report::RowLimits;

use crate::rows::shown_calls::ShownCalls;
use crate::tree::call_tree::{NodeIndex, Tree, largest_first};
use crate::tree::invert::Inverter;

/// Subtrees that are not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedSubtrees {
    /// Number of subtrees.
    pub count: usize,
    /// Their totals.
    pub total: Sum,
}

impl OmittedSubtrees {
    /// Adds the subtrees of `other`.
    pub fn merge(&mut self, other: OmittedSubtrees) {
        self.count += other.count;
        self.total.add(other.total);
    }
}

/// A node in a report.
#[derive(Debug)]
pub struct TreeRow {
    /// Index into [`Tree::nodes`].
    pub node: NodeIndex,
    /// Index of the parent's row; None for an outermost function.
    pub parent: Option<usize>,
    /// Number of rows above this one, up to the outermost function.
    pub depth: usize,
    /// Indices of the children's rows, the largest total first.
    pub children: Vec<usize>,
    /// Children that are omitted with their subtrees.
    pub omitted: OmittedSubtrees,
}

/// The nodes of one event.
#[derive(Debug)]
pub struct TreeRows {
    /// The event.
    pub event: ReportedEvent,
    /// The reported nodes in depth-first order.
    pub rows: Vec<TreeRow>,
    /// Indices of the rows of outermost functions, the largest total first.
    pub outermost: Vec<usize>,
    /// Outermost functions that are omitted with their subtrees.
    pub omitted: OmittedSubtrees,
}

impl TreeRows {
    /// Returns the number of subtrees that were omitted, in the whole tree.
    pub fn omitted_subtrees(&self) -> usize {
        self.omitted.count + self.rows.iter().map(|row| row.omitted.count).sum::<usize>()
    }
}

/// Returns the nodes of each event on its heaviest paths, as many as the limits allow, without subtrees
/// below the minimum share.
pub fn tree_rows(tree: &Tree, events: &[ReportedEvent], limits: &RowLimits) -> Vec<TreeRows> {
    events.iter().map(|&event| rows_of_event(tree, event, limits)).collect()
}

/// Inverts the tree for the view `callers`. Small subtrees are cut where [`tree_rows`] omits them.
pub fn inverted(tree: &Tree, events: &[ReportedEvent], limits: &RowLimits) -> Tree {
    let mut inverter = Inverter::new(tree);
    for event in events {
        inverter.add_event(event.event, |sum| limits.is_small(sum, event.whole));
    }
    inverter.finish()
}

/// A node that gets a row.
struct PendingRow {
    node: NodeIndex,
    parent: Option<usize>,
}

fn rows_of_event(tree: &Tree, event: ReportedEvent, limits: &RowLimits) -> TreeRows {
    let mut found = TreeRows {
        event,
        rows: Vec::new(),
        outermost: Vec::new(),
        omitted: OmittedSubtrees::default(),
    };
    let shown = ShownCalls::of(tree, event, limits);
    let mut pending = Vec::new();
    for root in tree.roots_of(event.event) {
        let (children, omitted) = split_children(tree, root, &shown);
        found.omitted.merge(omitted);
        pending.extend(children.into_iter().map(|node| PendingRow { node, parent: None }));
    }
    // The largest is on top of the stack, so it comes first.
    pending.reverse();
    while let Some(PendingRow { node, parent }) = pending.pop() {
        let row = found.rows.len();
        // The parent came before: its row exists.
        let depth = match parent {
            Some(parent) => {
                found.rows[parent].children.push(row);
                found.rows[parent].depth + 1
            }
            None => {
                found.outermost.push(row);
                0
            }
        };
        let (children, omitted) = split_children(tree, node, &shown);
        let below = children.into_iter().rev();
        pending.extend(below.map(|node| PendingRow { node, parent: Some(row) }));
        found.rows.push(TreeRow { node, parent, depth, children: Vec::new(), omitted });
    }
    found
}

/// Returns the children of a node that get rows, the largest first, and the others.
fn split_children(
    tree: &Tree,
    node: NodeIndex,
    shown: &ShownCalls<'_>,
) -> (Vec<NodeIndex>, OmittedSubtrees) {
    let mut omitted = OmittedSubtrees::default();
    let mut children = Vec::new();
    for child in tree.children(node) {
        if shown.contains(child) {
            children.push(child);
        } else {
            omitted.merge(OmittedSubtrees { count: 1, total: tree.nodes[child].total });
        }
    }
    children.sort_by(|&a, &b| largest_first(tree.nodes[a].total, tree.nodes[b].total));
    (children, omitted)
}
