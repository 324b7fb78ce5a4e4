//! The inverted call tree: from the leaves up to the outermost callers.
//!
//! A node is a function together with the calls below it, down to the leaf. Its total counts the
//! samples on paths that end in these calls; its own sum counts the paths that also begin there.
//!
//! The complete inverted tree can be far larger than the call tree: paths that share their callers
//! share nothing here. Callers are therefore added to the heaviest node first, until there are
//! `MAX_NODES` nodes or `MAX_STEPS` steps were taken; other callers are one node `(other)`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nprof_report::profile::Sum;

use crate::tree::builder::TreeBuilder;
use crate::tree::call_tree::{Function, NodeIndex, Tree};

/// The largest number of nodes of the inverted tree, without those of other callers.
const MAX_NODES: usize = 1 << 18;

/// The largest number of steps from callee to caller over all paths: a few seconds.
const MAX_STEPS: usize = 1 << 24;

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
    total: Sum,
    /// The paths that end in the calls of this node.
    cursors: Vec<Cursor>,
}

impl PendingNode {
    /// Returns the order in which nodes get callers: the heaviest first, equal ones as they were added.
    fn rank(&self) -> (u64, u64, Reverse<NodeIndex>) {
        (self.total.weight, self.total.samples, Reverse(self.node))
    }
}

impl PartialEq for PendingNode {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for PendingNode {}

impl PartialOrd for PendingNode {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PendingNode {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// Returns the number of a function; adds it if it is new.
fn number(functions: &mut Vec<Function>, function: Function) -> usize {
    let found = functions.iter().position(|other| *other == function);
    found.unwrap_or_else(|| {
        functions.push(function);
        functions.len() - 1
    })
}

/// Inverts a call tree event by event.
pub struct Inverter<'a> {
    tree: &'a Tree,
    builder: TreeBuilder,
    functions: Vec<Function>,
    /// The number of the function of callers without nodes of their own.
    other: usize,
    /// The number of the function of all roots, without a command.
    no_command: usize,
    /// The nodes and steps that are left.
    nodes: usize,
    steps: usize,
}

impl<'a> Inverter<'a> {
    /// Creates an inverter of `tree`.
    pub fn new(tree: &'a Tree) -> Self {
        // The tree may have the functions already: they must not have two numbers.
        let mut functions = tree.functions.clone();
        let other = number(&mut functions, Function::other());
        let no_command = number(&mut functions, Function::default());
        let builder = TreeBuilder::default();
        Self { tree, builder, functions, other, no_command, nodes: MAX_NODES, steps: MAX_STEPS }
    }

    /// Adds the paths of an event.
    ///
    /// Nodes with a small total get no callers.
    pub fn add_event(&mut self, event: usize, is_small: impl Fn(Sum) -> bool) {
        if self.tree.roots_of(event).next().is_none() {
            return;
        }
        let root = self.builder.root(event, self.no_command);
        let leaves = self.tree.leaves(event).into_iter();
        let cursors =
            leaves.map(|node| Cursor { node, sum: self.tree.nodes[node].self_ }).collect();
        self.add_callers(root, cursors, is_small);
    }

    /// Returns the inverted tree. It has no source lines.
    pub fn finish(self) -> Tree {
        self.builder.finish(self.functions, Vec::new(), self.tree.bounds.clone())
    }

    /// Adds the callers of all paths below `root`, the heaviest node first.
    fn add_callers(
        &mut self,
        root: NodeIndex,
        leaves: Vec<Cursor>,
        is_small: impl Fn(Sum) -> bool,
    ) {
        let mut pending = BinaryHeap::new();
        self.push_groups(root, leaves, &mut pending);
        while let Some(PendingNode { node, total, cursors }) = pending.pop() {
            // The node keeps its samples as its own, so that totals above it stay complete.
            if is_small(total) {
                self.builder.add(node, total);
                continue;
            }
            if cursors.len() > self.steps || self.builder.len() > self.nodes {
                let other = self.builder.child(node, self.other);
                self.builder.add(other, total);
                continue;
            }
            self.steps -= cursors.len();
            let mut callers = Vec::with_capacity(cursors.len());
            for Cursor { node: callee, sum } in cursors {
                // A root without a command is not a call: its children have no caller.
                let caller = self.tree.parent(callee);
                let caller = caller.filter(|&at| !self.tree.function(at).name.is_empty());
                match caller {
                    Some(caller) => callers.push(Cursor { node: caller, sum }),
                    None => self.builder.add(node, sum),
                }
            }
            self.push_groups(node, callers, &mut pending);
        }
    }

    /// Groups cursors by function, and makes each function a child of `parent`.
    fn push_groups(
        &mut self,
        parent: NodeIndex,
        mut cursors: Vec<Cursor>,
        pending: &mut BinaryHeap<PendingNode>,
    ) {
        let nodes = &self.tree.nodes;
        cursors.sort_by_key(|cursor| (nodes[cursor.node].function, cursor.node));
        // Several paths can be at the same node; one cursor is enough for them.
        cursors.dedup_by(|next, cursor| {
            let is_same = next.node == cursor.node;
            if is_same {
                cursor.sum.add(next.sum);
            }
            is_same
        });
        for group in cursors.chunk_by(|a, b| nodes[a.node].function == nodes[b.node].function) {
            let mut total = Sum::default();
            group.iter().for_each(|cursor| total.add(cursor.sum));
            // The heaviest node is next, wherever it is in the tree.
            let node = self.builder.child(parent, nodes[group[0].node].function);
            pending.push(PendingNode { node, total, cursors: group.to_vec() });
        }
    }
}
