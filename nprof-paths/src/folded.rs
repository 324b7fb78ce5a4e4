//! Folded stacks: the text that FlameGraph, inferno and speedscope read.
//!
//! A line is `command;root;...;leaf N`, N the samples. Names are escaped as in text streams, and
//! further: a `;` is `\x3b`; a space or `#` at the beginning of the line is `\x20` or `\x23`; and
//! a space before digits at the end of the leaf is `\x20`, for readers take a number there for
//! the first of two counts.

use std::collections::BTreeMap;

use crate::select::Section;
use crate::tree::{At, Tree};

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
        out.push_str(&tree.function(node).name.replace(';', "\\x3b"));
    }
    protect_beginning(&mut out);
    protect_end(&mut out);
    out
}

fn protect_beginning(line: &mut String) {
    let escape = match line.bytes().next() {
        Some(b' ') => "\\x20",
        Some(b'#') => "\\x23",
        _ => return,
    };
    line.replace_range(..1, escape);
}

fn protect_end(line: &mut String) {
    let Some(space) = line.rfind(' ') else {
        return;
    };
    if line[space + 1..].bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        line.replace_range(space..=space, "\\x20");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected(line: &str) -> String {
        let mut line = line.to_owned();
        protect_beginning(&mut line);
        protect_end(&mut line);
        line
    }

    #[test]
    fn what_readers_take_for_something_else_is_escaped() {
        assert_eq!(protected("a;operator\"\" 12"), "a;operator\"\"\\x2012");
        assert_eq!(protected("a;f 1.5"), "a;f\\x201.5");
        assert_eq!(protected("a;f "), "a;f\\x20");
        assert_eq!(protected("# b;f"), "\\x23 b;f");
        assert_eq!(protected(" b;f"), "\\x20b;f");
        assert_eq!(protected("a b;f(int) const"), "a b;f(int) const");
        assert_eq!(protected("a 1;main"), "a 1;main");
    }
}
