//! Folded stacks: the text that FlameGraph, inferno and speedscope read.
//!
//! A line is `command;root;...;leaf N`, where N is the number of samples. Names are escaped as in
//! text streams, and further where readers of folded stacks would misread them.

use std::collections::BTreeMap;

use nprof_report::folded::{guarded, part};

use crate::rows::stacks::{StackRow, StackRows};
use crate::tree::call_tree::{NodeIndex, Tree};

/// The name of calls that are too small to be shown.
const OTHER: &str = "(other)";

/// Prints the stacks as sorted lines. Stacks that differ only in images share a line.
pub(crate) fn print(tree: &Tree, events: &[StackRows]) -> String {
    // Sorted, so that the output is reproducible and two files can be compared.
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for row in events.iter().flat_map(|rows| &rows.stacks) {
        *counts.entry(line(tree, row)).or_default() += row.sum.samples;
    }
    let mut out = String::new();
    for (stack, samples) in counts {
        out.push_str(&format!("{stack} {samples}\n"));
    }
    out
}

fn line(tree: &Tree, row: &StackRow) -> String {
    let mut parts = row.node.map_or(Vec::new(), |node| parts(tree, node));
    if row.is_other {
        parts.push(OTHER.to_owned());
    }
    guarded(parts.join(";"))
}

/// Returns the functions of a path, joined by `;`. The command is part of it if the tree has one
/// root per command.
pub(crate) fn stack(tree: &Tree, leaf: NodeIndex) -> String {
    guarded(parts(tree, leaf).join(";"))
}

fn parts(tree: &Tree, leaf: NodeIndex) -> Vec<String> {
    let nodes = std::iter::successors(Some(leaf), |&node| tree.parent(node));
    let mut parts: Vec<String> = nodes.map(|node| part(&tree.function(node).name)).collect();
    // A root without a command is not part of the path.
    parts.pop_if(|root| root.is_empty());
    parts.reverse();
    parts
}
