//! The call tree turned over: from where the samples are, up to the roots.
//!
//! A node stands for a function and the calls below it, down to the leaf; its total is what fell on
//! the paths that end in these calls, its self what fell on those of them that begin with it.

use nprof_report::profile::Sum;
use nprof_report::report::RowLimits;
use rustc_hash::FxHashMap;

use crate::select::Shown;
use crate::tree::call_tree::{At, Growing, LeafLines, Tree};

/// Where paths stand that have their last calls in common, and what fell on each.
type Cursors = Vec<(At, Sum)>;

/// Turns over what the events have. What is too small to be printed is not followed any further: a
/// tree that was turned over and followed to all roots may be far larger than it was.
pub(crate) fn invert(tree: &Tree, shown: &[Shown], choice: &RowLimits) -> Tree {
    let mut growing = Growing::default();
    for shown in shown {
        let tops = tree.tops.iter().filter(|top| top.event == shown.event);
        let Some(top) = tops.map(|top| tree.nodes[top.node].function).next() else {
            continue;
        };
        let top = growing.top(shown.event, top);
        let leaves = tree.leaves(shown.event).into_iter();
        let cursors = leaves.map(|leaf| (leaf, tree.nodes[leaf].own)).collect();
        grow(tree, &mut growing, top, cursors, |sum| choice.is_small(sum, shown.whole));
    }
    growing.finish(tree.functions.clone(), LeafLines::default())
}

fn grow(
    tree: &Tree,
    growing: &mut Growing,
    top: At,
    leaves: Cursors,
    is_small: impl Fn(Sum) -> bool,
) {
    let mut open: Vec<(At, Cursors)> = Vec::new();
    push_groups(tree, growing, top, leaves, &mut open);
    while let Some((at, cursors)) = open.pop() {
        let mut total = Sum::default();
        cursors.iter().for_each(|&(_, sum)| total.add(sum));
        if is_small(total) {
            growing.add(at, total);
            continue;
        }
        let mut callers = Cursors::new();
        for (node, sum) in cursors {
            let caller = tree.nodes[node].parent.filter(|&at| tree.nodes[at].parent.is_some());
            match caller {
                Some(caller) => callers.push((caller, sum)),
                None => growing.add(at, sum),
            }
        }
        push_groups(tree, growing, at, callers, &mut open);
    }
}

/// Groups paths by the function they stand at, which becomes a child of `parent`.
fn push_groups(
    tree: &Tree,
    growing: &mut Growing,
    parent: At,
    cursors: Cursors,
    open: &mut Vec<(At, Cursors)>,
) {
    let mut groups: FxHashMap<usize, FxHashMap<At, Sum>> = FxHashMap::default();
    for (at, sum) in cursors {
        groups.entry(tree.nodes[at].function).or_default().entry(at).or_default().add(sum);
    }
    for (function, cursors) in groups {
        open.push((growing.child(parent, function), cursors.into_iter().collect()));
    }
}
