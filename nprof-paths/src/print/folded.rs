//! Folded stacks: the text that FlameGraph, inferno and speedscope read.
//!
//! A line is `command;root;...;leaf N`, where N is the number of samples, or their weight if samples
//! of the event weigh differently. Names are escaped as in text streams, and further where readers
//! of folded stacks would misread them.
//!
//! Lines are written during a walk of the tree, which takes far less memory than all of them: 270 MB
//! of lines came from a compiler with stacks of 200 calls.

use std::io::{self, Write};

use nprof_report::folded::{guarded, part};

use crate::rows::shown_calls::with_callers;
use crate::rows::stacks::StackRows;
use crate::tree::call_tree::{NodeIndex, Tree};

/// The name of calls that are too small to be shown.
const OTHER: &str = "(other)";

/// Writes the stacks in the order of the names of their calls. Stacks that differ only in images
/// share a line.
pub(crate) fn write(tree: &Tree, events: &[StackRows], out: &mut dyn Write) -> io::Result<()> {
    events.iter().try_for_each(|rows| Walk::new(tree, rows).write(out))
}

/// Returns the lines that [`write`] writes.
pub(crate) fn print(tree: &Tree, events: &[StackRows]) -> String {
    let mut out = Vec::new();
    // A vector takes everything, and names are escaped.
    let _ = write(tree, events, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Calls of functions with one name, which may be in several images.
struct Calls<'a> {
    name: &'a str,
    /// The length of the path above.
    above: usize,
    nodes: Vec<NodeIndex>,
    /// The number of the path's line, without that of `nodes`. None if there is no such line.
    number: Option<u64>,
}

/// A walk along the stacks of an event.
struct Walk<'a> {
    tree: &'a Tree,
    rows: &'a StackRows,
    /// By node, true if a stack goes through it.
    is_on_stack: Vec<bool>,
    /// The calls that come next, the first one last.
    pending: Vec<Calls<'a>>,
}

impl<'a> Walk<'a> {
    fn new(tree: &'a Tree, rows: &'a StackRows) -> Self {
        let mut is_on_stack = vec![false; tree.nodes.len()];
        for leaf in rows.stacks.iter().filter_map(|row| row.node) {
            for node in with_callers(tree, leaf) {
                // The callers were marked with it.
                if std::mem::replace(&mut is_on_stack[node], true) {
                    break;
                }
            }
        }
        Self { tree, rows, is_on_stack, pending: Vec::new() }
    }

    fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        let roots = self.tree.roots_of(self.rows.event.event).collect();
        self.add(0, roots, self.number(None, true));
        let mut path = String::new();
        while let Some(Calls { name, above, nodes, number }) = self.pending.pop() {
            path.truncate(above);
            if above > 0 {
                path.push(';');
            }
            path.push_str(&part(name));
            let own = nodes.iter().filter_map(|&node| self.number(Some(node), false));
            if let Some(number) = number.into_iter().chain(own).reduce(u64::saturating_add) {
                writeln!(out, "{} {number}", guarded(path.clone()))?;
            }
            let others = nodes.iter().filter_map(|&node| self.number(Some(node), true));
            let others = others.reduce(u64::saturating_add);
            let callees = nodes.iter().flat_map(|&node| self.tree.children(node)).collect();
            self.add(path.len(), callees, others);
        }
        Ok(())
    }

    /// Returns the number of the stacks that end at a node, or of the smaller calls below it.
    fn number(&self, node: Option<NodeIndex>, is_other: bool) -> Option<u64> {
        let stacks = &self.rows.stacks;
        let found = stacks.binary_search_by_key(&(node, is_other), |row| (row.node, row.is_other));
        found.ok().map(|index| self.rows.event.stack_number(stacks[index].sum))
    }

    /// Adds the calls below a path of this length, and a call for the smaller ones.
    fn add(&mut self, above: usize, mut nodes: Vec<NodeIndex>, others: Option<u64>) {
        let tree = self.tree;
        let name = |node: NodeIndex| tree.function(node).name.as_str();
        nodes.retain(|&node| self.is_on_stack[node]);
        // Functions of the same name in several images share a line.
        nodes.sort_by_key(|&node| name(node));
        let calls = |nodes: &[NodeIndex]| Calls {
            name: name(nodes[0]),
            above,
            nodes: nodes.to_vec(),
            number: None,
        };
        let mut all: Vec<Calls<'a>> =
            nodes.chunk_by(|&a, &b| name(a) == name(b)).map(calls).collect();
        if others.is_some() {
            match all.binary_search_by(|calls| calls.name.cmp(OTHER)) {
                Ok(index) => all[index].number = others,
                Err(index) => {
                    let nodes = Vec::new();
                    all.insert(index, Calls { name: OTHER, above, nodes, number: others });
                }
            }
        }
        // The last one is taken first.
        self.pending.extend(all.into_iter().rev());
    }
}

/// Returns the functions of a path, joined by `;`. The command is part of it if the tree has one
/// root per command.
pub(crate) fn stack(tree: &Tree, leaf: NodeIndex) -> String {
    let mut parts: Vec<String> =
        with_callers(tree, leaf).map(|node| part(&tree.function(node).name)).collect();
    // A root without a command is not part of the path.
    parts.pop_if(|root| root.is_empty());
    parts.reverse();
    guarded(parts.join(";"))
}
