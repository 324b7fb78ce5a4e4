//! The call tree for people: top-down, small subtrees folded into one line.
//!
//! A function that is the only one worth printing under its caller stands right below it and
//! not further to the right, so that a deep stack stays on the screen; only where the tree
//! branches does the indent grow. A function that calls itself and nothing else is one line.

use nprof_report::layout::fit;
use nprof_report::profile::Sum;
use nprof_report::report::RowLimits;
use unicode_width::UnicodeWidthStr;

use crate::args::View;
use crate::print::context::Input;
use crate::print::paths::suffix;
use crate::select::{Shown, descending};
use crate::tree::call_tree::{At, Tree};
use crate::tree::recursion::{Block, blocks};

/// Where the tree branches more often than fits, only so much of the lines to the left is kept.
const GUIDES: usize = 32;

/// The whole report.
pub(crate) fn print(input: &Input<'_>) -> Vec<u8> {
    let is_inverted = input.args.view == View::Callers;
    let legend = match is_inverted {
        false => "",
        true => "below a function stand its callers",
    };
    let mut out = input.heading(legend);
    let choice = input.args.row_limits();
    for shown in input.shown {
        out.push_str(&input.title(shown));
        out.push_str(if is_inverted {
            "share %  function\n"
        } else {
            "total %  self %  function\n"
        });
        let mut outline = Outline::new(input.tree, shown.whole, &choice);
        outline.grow(shown.event);
        for line in &outline.lines {
            line.print(&mut out, shown.whole, is_inverted, input.width);
        }
        out.push_str(&footer(outline.left_out, &choice));
    }
    out.into_bytes()
}

fn footer(left_out: usize, choice: &RowLimits) -> String {
    if left_out == 0 {
        return String::new();
    }
    let s = if left_out == 1 { "" } else { "s" };
    format!("\n{left_out} smaller call{s} left out, with what they called ({})\n", choice.spelled())
}

/// A line of the tree.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    total: Sum,
    /// What fell on the function itself; `None` for a line of small subtrees.
    own: Option<Sum>,
    /// The tree to the left of the name.
    guides: String,
    name: String,
    suffix: String,
}

impl Line {
    fn print(&self, out: &mut String, whole: Sum, is_inverted: bool, width: Option<usize>) {
        let start = out.len();
        out.push_str(&format!("{:>7.2}  ", self.total.percent_of(whole)));
        if !is_inverted {
            let own = self.own.map_or(String::new(), |own| format!("{:.2}", own.percent_of(whole)));
            out.push_str(&format!("{own:>6}  "));
        }
        out.push_str(&self.guides);
        match width {
            None => out.extend([&*self.name, &self.suffix]),
            Some(width) => {
                let room = width.saturating_sub(out[start..].width());
                out.push_str(&fit(&self.name, &self.suffix, room));
            }
        }
        out.push('\n');
    }
}

/// Subtrees that are too small to print.
#[derive(Clone, Copy, Debug, Default)]
struct Small {
    subtrees: usize,
    sum: Sum,
}

impl Small {
    fn merge(&mut self, other: Small) {
        self.subtrees += other.subtrees;
        self.sum.add(other.sum);
    }

    fn line(self, guides: String) -> Line {
        let name = format!("({} smaller)", self.subtrees);
        Line { total: self.sum, own: None, guides, name, suffix: String::new() }
    }
}

/// What is still to be printed.
enum Open<'a> {
    Call {
        node: usize,
        /// What stands left of it, and left of what it calls.
        guides: String,
        below: String,
        /// The caller's image.
        image: &'a str,
    },
    Small(Small, String),
}

/// The lines of a tree, as they grow.
struct Outline<'a> {
    tree: &'a Tree,
    whole: Sum,
    choice: &'a RowLimits,
    lines: Vec<Line>,
    /// What is to come, the next one last.
    open: Vec<Open<'a>>,
    /// How many small subtrees there are.
    left_out: usize,
}

impl<'a> Outline<'a> {
    fn new(tree: &'a Tree, whole: Sum, choice: &'a RowLimits) -> Self {
        Self { tree, whole, choice, lines: Vec::new(), open: Vec::new(), left_out: 0 }
    }

    fn grow(&mut self, event: usize) {
        let tree = self.tree;
        for top in tree.tops.iter().filter(|top| top.event == event) {
            let (visible, small) = children(tree, top.node, self.whole, self.choice);
            self.branch(&visible, small, "", "");
        }
        while let Some(next) = self.open.pop() {
            match next {
                Open::Call { node, guides, below, image } => {
                    self.chain(node, &guides, &below, image);
                }
                Open::Small(small, guides) => self.lines.push(small.line(guides)),
            }
        }
    }

    /// The lines of a call and of those below it, down to where the tree branches.
    fn chain(&mut self, first: At, guides: &str, below: &str, caller_image: &'a str) {
        let tree = self.tree;
        let (mut links, mut beside) = (vec![first], Vec::new());
        let mut last = first;
        let visible = loop {
            let (visible, small) = children(tree, last, self.whole, self.choice);
            beside.push(small);
            let [only] = visible[..] else {
                break visible;
            };
            last = only;
            links.push(last);
        };
        let functions: Vec<usize> = links.iter().map(|&at| tree.nodes[at].function).collect();
        let mut image = caller_image;
        for block in blocks(&functions) {
            for nth in 0..block.period {
                let is_first = block.start + nth == 0;
                let left = if is_first { guides } else { below };
                image = self.link(&links, block, nth, left, image);
            }
            let end = block.start + block.period * block.times;
            let mut small = Small::default();
            beside[block.start..end].iter().for_each(|beside| small.merge(*beside));
            if end < links.len() {
                self.small_below(small, below);
            } else {
                self.branch(&visible, small, below, image);
            }
        }
    }

    /// The line of a call, as often as it comes in a block; gives its image.
    fn link(
        &mut self,
        links: &[At],
        block: Block,
        nth: usize,
        guides: &str,
        caller_image: &str,
    ) -> &'a str {
        let tree = self.tree;
        let node = links[block.start + nth];
        let function = tree.function(node);
        let mut own = Sum::default();
        block.places(nth).for_each(|place| own.add(tree.nodes[links[place]].own));
        let image = if function.image == caller_image { "" } else { &function.image };
        self.lines.push(Line {
            total: tree.nodes[node].total,
            own: Some(own),
            guides: format!("{guides}{}", block.bracket(nth)),
            name: function.name.clone(),
            suffix: suffix(block.times_at(nth), image, &function.name),
        });
        &function.image
    }

    /// A line for small subtrees beside a single child, if together they are not small. It comes
    /// before the child, which may go on for long.
    fn small_below(&mut self, small: Small, below: &str) {
        self.left_out += small.subtrees;
        let has_line = small.subtrees > 0 && !self.choice.is_small(small.sum, self.whole);
        self.lines.extend(has_line.then(|| small.line(below.to_owned())));
    }

    /// Notes what hangs below a call to be printed next.
    fn branch(&mut self, visible: &[usize], small: Small, below: &str, image: &'a str) {
        if let [] | [_] = visible {
            self.small_below(small, below);
            self.open.extend(visible.iter().map(|&node| Open::Call {
                node,
                guides: below.to_owned(),
                below: below.to_owned(),
                image,
            }));
            return;
        }
        self.left_out += small.subtrees;
        let has_line = small.subtrees > 0 && !self.choice.is_small(small.sum, self.whole);
        if has_line {
            self.open.push(Open::Small(small, deeper(below, "└ ")));
        }
        for (i, &node) in visible.iter().enumerate().rev() {
            let last = i + 1 == visible.len() && !has_line;
            let (marker, bar) = if last { ("└ ", "  ") } else { ("├ ", "│ ") };
            let (guides, below) = (deeper(below, marker), deeper(below, bar));
            self.open.push(Open::Call { node, guides, below, image });
        }
    }
}

/// Adds a step to what stands left of a call; where that becomes too long, its beginning goes.
fn deeper(guides: &str, step: &str) -> String {
    let all = format!("{guides}{step}");
    let length = all.chars().count();
    if length <= GUIDES {
        return all;
    }
    format!("…{}", all.chars().skip(length + 1 - GUIDES).collect::<String>())
}

/// The children of a node worth printing, the largest first, and the others.
fn children(tree: &Tree, node: usize, whole: Sum, choice: &RowLimits) -> (Vec<usize>, Small) {
    let mut small = Small::default();
    let mut visible = Vec::new();
    for &child in &tree.nodes[node].children {
        let total = tree.nodes[child].total;
        if choice.is_small(total, whole) {
            small.subtrees += 1;
            small.sum.add(total);
        } else {
            visible.push(child);
        }
    }
    visible.sort_by(|&a, &b| descending(tree.nodes[a].total, tree.nodes[b].total));
    (visible, small)
}

/// A node that is not left out, as scripts get it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Index into the tree's nodes.
    pub(crate) node: usize,
    /// Its number, from 1, callers first.
    pub(crate) number: usize,
    /// Its caller's number, 0 for a root.
    pub(crate) parent: usize,
    /// How many callers it has.
    pub(crate) depth: usize,
}

/// The nodes of an event that are not left out, each right before what it calls, the largest
/// first.
pub(crate) fn kept(tree: &Tree, shown: &Shown, choice: &RowLimits) -> Vec<Kept> {
    let mut nodes = Vec::new();
    let mut open = Vec::new();
    let tops = tree.tops.iter().filter(|top| top.event == shown.event);
    open.extend(tops.map(|top| (top.node, 0, None)));
    while let Some((node, parent, depth)) = open.pop() {
        let mut number = 0;
        if let Some(depth) = depth {
            number = nodes.len() + 1;
            nodes.push(Kept { node, number, parent, depth });
        }
        let below = Some(depth.map_or(0, |depth| depth + 1));
        let (visible, _) = children(tree, node, shown.whole, choice);
        open.extend(visible.into_iter().rev().map(|child| (child, number, below)));
    }
    nodes
}

#[cfg(test)]
mod tests;
