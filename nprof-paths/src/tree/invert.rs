//! The inverted call tree: from the leaves up to the outermost callers.
//!
//! A node is a function together with the calls below it, down to the leaf. Its total counts the
//! samples on paths that end in these calls; its own sum counts the paths that also begin there.

use nprof_report::profile::Sum;
use rustc_hash::FxHashMap;

use crate::tree::call_tree::{LeafLines, NodeIndex, Tree, TreeBuilder};

/// The position on a path while walking from its leaf up to its root.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    node: NodeIndex,
    /// The samples of the path.
    sum: Sum,
}

/// A node of the inverted tree without its callers.
struct PendingNode {
    node: NodeIndex,
    /// The paths that end in the calls of this node.
    cursors: Vec<Cursor>,
}

/// Inverts a call tree event by event.
pub struct Inverter<'a> {
    tree: &'a Tree,
    builder: TreeBuilder,
}

impl<'a> Inverter<'a> {
    /// Creates an inverter of `tree`.
    pub fn new(tree: &'a Tree) -> Self {
        Self { tree, builder: TreeBuilder::default() }
    }

    /// Adds the paths of an event.
    ///
    /// Nodes with a small total get no callers: the complete inverted tree can be far larger
    /// than the call tree.
    pub fn add_event(&mut self, event: usize, is_small: impl Fn(Sum) -> bool) {
        let Some(root) = self.tree.roots_of(event).next() else {
            return;
        };
        let root = self.builder.root(event, self.tree.nodes[root].function);
        let leaves = self.tree.leaves(event).into_iter();
        let cursors =
            leaves.map(|node| Cursor { node, sum: self.tree.nodes[node].self_ }).collect();
        add_callers(self.tree, &mut self.builder, root, cursors, is_small);
    }

    /// Returns the inverted tree. It has no source lines.
    pub fn finish(self) -> Tree {
        self.builder.finish(self.tree.functions.clone(), LeafLines::default())
    }
}

/// Adds the callers of all paths below `root`, leaf by leaf.
fn add_callers(
    tree: &Tree,
    builder: &mut TreeBuilder,
    root: NodeIndex,
    leaves: Vec<Cursor>,
    is_small: impl Fn(Sum) -> bool,
) {
    let mut pending = Vec::new();
    push_groups(tree, builder, root, leaves, &mut pending);
    while let Some(PendingNode { node, cursors }) = pending.pop() {
        let mut total = Sum::default();
        cursors.iter().for_each(|cursor| total.add(cursor.sum));
        // The node keeps its samples as its own, so that totals above it stay complete.
        if is_small(total) {
            builder.add(node, total);
            continue;
        }
        let mut callers = Vec::new();
        for Cursor { node: callee, sum } in cursors {
            // The node of a root is not a call: its children have no caller.
            let caller = tree.nodes[callee].parent.filter(|&at| tree.nodes[at].parent.is_some());
            match caller {
                Some(caller) => callers.push(Cursor { node: caller, sum }),
                None => builder.add(node, sum),
            }
        }
        push_groups(tree, builder, node, callers, &mut pending);
    }
}

/// Groups cursors by function, and makes each function a child of `parent`.
fn push_groups(
    tree: &Tree,
    builder: &mut TreeBuilder,
    parent: NodeIndex,
    cursors: Vec<Cursor>,
    pending: &mut Vec<PendingNode>,
) {
    // Several paths can be at the same node; one cursor is enough for them.
    let mut groups: FxHashMap<usize, FxHashMap<NodeIndex, Sum>> = FxHashMap::default();
    for Cursor { node, sum } in cursors {
        groups.entry(tree.nodes[node].function).or_default().entry(node).or_default().add(sum);
    }
    for (function, sums) in groups {
        let cursors = sums.into_iter().map(|(node, sum)| Cursor { node, sum }).collect();
        pending.push(PendingNode { node: builder.child(parent, function), cursors });
    }
}
