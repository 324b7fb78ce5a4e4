//! Folded stacks: the text that FlameGraph, inferno and speedscope read.
//!
//! A line is `command;root;...;leaf N`, N the samples. Names are escaped as in text streams, and
//! further, as readers of such lines need it.

use std::collections::BTreeMap;

use nprof_report::folded::{guarded, part};

use crate::select::Section;
use crate::tree::call_tree::{At, Tree};

/// The lines, sorted. Paths that differ in images only are one. Reversed, the leaf comes first and
/// the command last.
pub(crate) fn print(tree: &Tree, sections: &[Section], reverse: bool) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for &leaf in sections.iter().flat_map(|section| &section.paths) {
        *counts.entry(stack(tree, leaf, reverse)).or_default() += tree.nodes[leaf].own.samples;
    }
    let mut out = String::new();
    for (stack, samples) in counts {
        out.push_str(&format!("{stack} {samples}\n"));
    }
    out
}

/// A path, root first or reversed, joined by `;`. The top's name is at the root's end, where it has
/// one.
pub(crate) fn stack(tree: &Tree, leaf: At, reverse: bool) -> String {
    let mut nodes: Vec<At> =
        std::iter::successors(Some(leaf), |&node| tree.nodes[node].parent).collect();
    if nodes.last().is_some_and(|&top| tree.function(top).name.is_empty()) {
        nodes.pop();
    }
    if !reverse {
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
