//! The call tree for people: top-down, small subtrees folded into one line.
//!
//! A function that is the only one worth printing under its caller stands right below it and
//! not further to the right, so that a deep stack stays on the screen; only where the tree
//! branches does the indent grow. A function that calls itself and nothing else is one line.

use nprof_format::layout::cut;
use nprof_format::profile::Sum;
use nprof_format::report::Choice;
use unicode_width::UnicodeWidthStr;

use crate::args::View;
use crate::paths::suffix;
use crate::repeats::{Block, blocks};
use crate::select::{Shown, descending};
use crate::tree::{At, Tree};
use crate::view::Input;

/// Where the tree branches more often than fits, only so much of the lines to the left is kept.
const GUIDES: usize = 32;

/// The whole report.
pub(crate) fn print(input: &Input<'_>) -> Vec<u8> {
    let is_inverted = input.args.view() == View::Callers;
    let legend = match is_inverted {
        false => "",
        true => "; below a function stand its callers, with what came by them",
    };
    let mut out = input.heading(legend);
    let choice = input.args.choice();
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

fn footer(left_out: usize, choice: &Choice) -> String {
    if left_out == 0 {
        return String::new();
    }
    let s = if left_out == 1 { "" } else { "s" };
    format!("\n{left_out} smaller call{s} left out, with what they called ({})\n", choice.why())
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
            None => out.push_str(&self.name),
            Some(width) => {
                let used = out[start..].width() + self.suffix.width();
                out.push_str(&cut(&self.name, width.saturating_sub(used).max(12)));
            }
        }
        out.push_str(&self.suffix);
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
    choice: &'a Choice,
    lines: Vec<Line>,
    /// What is to come, the next one last.
    open: Vec<Open<'a>>,
    /// How many small subtrees there are.
    left_out: usize,
}

impl<'a> Outline<'a> {
    fn new(tree: &'a Tree, whole: Sum, choice: &'a Choice) -> Self {
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
fn children(tree: &Tree, node: usize, whole: Sum, choice: &Choice) -> (Vec<usize>, Small) {
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
pub(crate) fn kept(tree: &Tree, shown: &Shown, choice: &Choice) -> Vec<Kept> {
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
mod tests {
    use super::*;
    use crate::tree::{Function, Node, Top};

    const ONE_PERCENT: Choice = Choice { limit: None, min_percent: 1.0, rows: None };

    /// A tree of calls: the number of the caller (0 for a root, else a place in the list, from
    /// 1), the function, its samples.
    fn tree(calls: &[(usize, &str, u64)]) -> Tree {
        let mut names: Vec<&str> = calls.iter().map(|call| call.1).chain([""]).collect();
        names.sort_unstable();
        names.dedup();
        let node = |parent, name: &str, samples| Node {
            parent,
            function: names.iter().position(|&other| other == name).unwrap(),
            own: Sum { samples, weight: samples },
            total: Sum { samples, weight: samples },
            children: Vec::new(),
        };
        let mut nodes = vec![node(None, "", 0)];
        nodes
            .extend(calls.iter().map(|&(parent, name, samples)| node(Some(parent), name, samples)));
        for at in (1..nodes.len()).rev() {
            let (parent, total) = (calls[at - 1].0, nodes[at].total);
            nodes[parent].total.add(total);
            nodes[parent].children.insert(0, at);
        }
        let function = |name: &&str| Function {
            name: (*name).to_owned(),
            image: "p".to_owned(),
            bytes: Box::default(),
        };
        let functions = names.iter().map(function).collect();
        Tree { functions, nodes, tops: vec![Top { event: 0, node: 0 }], ..Tree::default() }
    }

    fn shown(tree: &Tree, choice: &Choice) -> Vec<String> {
        let whole = tree.nodes[0].total;
        let mut outline = Outline::new(tree, whole, choice);
        outline.grow(0);
        let line = |line: &Line| format!("{}{}{}", line.guides, line.name, line.suffix);
        outline.lines.iter().map(line).collect()
    }

    #[test]
    fn only_branches_are_indented() {
        let calls = [(0, "start", 0), (1, "main", 0), (2, "b", 30), (2, "a", 50), (4, "c", 20)];
        assert_eq!(
            shown(&tree(&calls), &ONE_PERCENT),
            ["start  (p)", "main", "├ a", "│ c", "└ b"],
            "the largest total first, a chain straight down"
        );
    }

    #[test]
    fn small_subtrees_are_one_line_where_they_matter() {
        let mut calls = vec![(0, "main", 100), (1, "big", 50)];
        calls.extend([(1, "s1", 1), (1, "s2", 1), (2, "t", 1)]);
        // 153 samples: s1 and s2 are 1.3 % together, t alone is less than 1 %.
        assert_eq!(shown(&tree(&calls), &ONE_PERCENT), ["main  (p)", "(2 smaller)", "big"]);
        calls.push((1, "other", 40));
        assert_eq!(
            shown(&tree(&calls), &ONE_PERCENT),
            ["main  (p)", "├ big", "├ other", "└ (2 smaller)"]
        );
        let all = Choice { min_percent: 0.0, ..ONE_PERCENT };
        assert_eq!(shown(&tree(&calls), &all).len(), 6);
    }

    #[test]
    fn recursion_is_one_line_and_deep_branches_stay_on_the_screen() {
        let calls = [(0, "f", 1), (1, "f", 1), (2, "f", 1), (3, "g", 1), (4, "f", 1)];
        assert_eq!(shown(&tree(&calls), &ONE_PERCENT), ["f  ×3  (p)", "g", "f"]);
        let mut calls = Vec::new();
        for level in 0..100 {
            let caller = if level == 0 { 0 } else { 2 * level - 1 };
            calls.extend([(caller, "f", 0), (caller, "g", 1)]);
        }
        let all = Choice { min_percent: 0.0, ..ONE_PERCENT };
        let lines = shown(&tree(&calls), &all);
        assert_eq!(lines.len(), 199 + 1);
        assert!(lines.iter().all(|line| line.width() <= GUIDES + 6), "{lines:#?}");
    }

    #[test]
    fn functions_that_call_each_other_are_told_once() {
        let calls =
            [(0, "main", 0), (1, "a", 1), (2, "b", 1), (3, "a", 1), (4, "b", 1), (5, "c", 1)];
        let tree = tree(&calls);
        assert_eq!(shown(&tree, &ONE_PERCENT), ["main  (p)", "╭ a  ×2", "╰ b", "c"]);
        let mut outline = Outline::new(&tree, tree.nodes[0].total, &ONE_PERCENT);
        outline.grow(0);
        let own: Vec<u64> =
            outline.lines.iter().filter_map(|line| Some(line.own?.samples)).collect();
        assert_eq!(own, [0, 2, 2, 1], "what fell on them is that of all times");
    }

    #[test]
    fn scripts_get_callers_first() {
        let calls = [(0, "main", 0), (1, "b", 1), (1, "a", 2), (3, "c", 1)];
        let tree = tree(&calls);
        let whole = tree.nodes[0].total;
        let kept = kept(&tree, &Shown { event: 0, whole, counted: whole }, &ONE_PERCENT);
        let line = |kept: &Kept| (tree.function(kept.node).name.clone(), kept.parent, kept.depth);
        let lines: Vec<_> = kept.iter().map(line).collect();
        let expected = [("main", 0, 0), ("a", 1, 1), ("c", 2, 2), ("b", 1, 1)];
        assert_eq!(lines, expected.map(|(name, parent, depth)| (name.to_owned(), parent, depth)));
    }
}
