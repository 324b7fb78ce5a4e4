//! Folded stacks: the text that FlameGraph, inferno and speedscope read.
//!
//! A line is `command;root;...;leaf N`, where N is the number of samples, or their weight if samples
//! of the event weigh differently. Names are escaped as in text streams, and further where readers
//! of folded stacks would misread them.

use std::collections::BTreeMap;
use std::io::{self, Write};

use nprof_report::folded::{guarded, part};

use crate::rows::stacks::{StackRow, StackRows};
use crate::tree::call_tree::{NodeIndex, Tree};

/// The name of calls that are too small to be shown.
const OTHER: &str = "(other)";

/// Writes the stacks as sorted lines. Stacks that differ only in images share a line.
pub(crate) fn write(tree: &Tree, events: &[StackRows], out: &mut dyn Write) -> io::Result<()> {
    // Sorted, so that the output is reproducible and two files can be compared.
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for rows in events {
        for row in &rows.stacks {
            let count = counts.entry(line(tree, row)).or_default();
            *count = count.saturating_add(rows.event.stack_number(row.sum));
        }
    }
    for (stack, count) in counts {
        writeln!(out, "{stack} {count}")?;
    }
    Ok(())
}

/// Returns the lines that [`write`] writes.
pub(crate) fn print(tree: &Tree, events: &[StackRows]) -> String {
    let mut out = Vec::new();
    // A vector takes everything, and names are escaped.
    let _ = write(tree, events, &mut out);
    String::from_utf8_lossy(&out).into_owned()
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
