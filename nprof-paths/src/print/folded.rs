//! Folded stacks: the text that FlameGraph, inferno and speedscope read.
//!
//! A line is `command;root;...;leaf N`, where N is the number of samples. Names are escaped as in
//! text streams, and further where readers of folded stacks would misread them.

use std::collections::BTreeMap;

use nprof_report::folded::{guarded, part};

use crate::rows::paths::PathRows;
use crate::tree::call_tree::{NodeIndex, Tree};

/// The order of the functions on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathOrder {
    /// The command, then the outermost function.
    RootFirst,
    /// The leaf first, the command last.
    LeafFirst,
}

/// Prints the paths as sorted lines. Paths that differ only in images share a line.
pub(crate) fn print(tree: &Tree, events: &[PathRows], order: PathOrder) -> String {
    // Sorted, so that the output is reproducible and two files can be compared.
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for &leaf in events.iter().flat_map(|rows| &rows.paths) {
        *counts.entry(stack(tree, leaf, order)).or_default() += tree.nodes[leaf].self_.samples;
    }
    let mut out = String::new();
    for (stack, samples) in counts {
        out.push_str(&format!("{stack} {samples}\n"));
    }
    out
}

/// Returns the functions of a path, joined by `;`. The command is part of it if the tree has one
/// root per command.
pub(crate) fn stack(tree: &Tree, leaf: NodeIndex, order: PathOrder) -> String {
    let mut nodes: Vec<NodeIndex> =
        std::iter::successors(Some(leaf), |&node| tree.parent(node)).collect();
    // A root without a command is not part of the path.
    if nodes.last().is_some_and(|&root| tree.function(root).name.is_empty()) {
        nodes.pop();
    }
    if order == PathOrder::RootFirst {
        nodes.reverse();
    }
    let mut out = String::new();
    for (i, &node) in nodes.iter().enumerate() {
        if i > 0 {
            out.push(';');
        }
        out.push_str(&part(&tree.function(node).name));
    }
    guarded(out)
}
