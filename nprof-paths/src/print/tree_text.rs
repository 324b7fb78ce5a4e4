//! The views `tree` and `callers` as a table, with omitted subtrees folded into one line.
//!
//! If only one child of a function is large enough to be printed, it is printed directly below the
//! function without more indentation. Only branches are indented, so deep stacks fit on the
//! screen. A function that calls only itself takes one line.

use std::io::{self, Write};

use nprof_report::profile::Sum;
use nprof_report::ratio::Ratio;
use nprof_report::report::RowLimits;

use crate::args::View;
use crate::print::context::PrintContext;
use crate::print::function_name::{bracket, printed_count, push_name, suffix};
use crate::print::ratio_columns::RatioColumns;
use crate::rows::ratios::CallRatios;
use crate::rows::tree::{OmittedSubtrees, TreeRows};
use crate::tree::call_tree::Tree;
use crate::tree::recursion::{Repetition, repetitions};

/// Maximum width of the branch lines before a name; the outer ones are cut off.
const MAX_GUIDES: usize = 32;

/// Prints the trees of all events.
pub(crate) fn print(
    context: &PrintContext<'_>,
    events: &[TreeRows],
    to: &mut dyn Write,
) -> io::Result<()> {
    let is_inverted = context.args.view == View::Callers;
    let (legend, head) = if is_inverted {
        ("the callers of a function are below it", "share %  ")
    } else {
        ("", "total %  self %  ")
    };
    let mut out = context.heading(legend);
    let limits = context.args.row_limits();
    for rows in events {
        out.push_str(&context.title(&rows.event));
        out.push_str(head);
        let mut outline = Outline::new(context.tree, rows, &limits);
        outline.ratios = context.ratios(&rows.event);
        outline.add_all();
        let columns = context.per.map(|per| {
            RatioColumns::new(
                context,
                &rows.event,
                per,
                outline.lines.iter().map(|line| line.ratio),
            )
        });
        out.push_str(&columns.as_ref().map_or(String::new(), RatioColumns::head));
        out.push_str("function\n");
        for (index, line) in outline.lines.iter().enumerate() {
            let ratio = columns.as_ref().map_or(String::new(), |columns| columns.line(index));
            line.print(&mut out, rows.event.whole, is_inverted, &ratio, context.width);
            to.write_all(out.as_bytes())?;
            out.clear();
        }
        out.push_str(&footer(rows.omitted_subtrees(), &limits));
    }
    to.write_all(out.as_bytes())
}

/// Returns the line below a tree: the omitted subtrees.
fn footer(omitted: usize, limits: &RowLimits) -> String {
    if omitted == 0 {
        return String::new();
    }
    let s = if omitted == 1 { "" } else { "s" };
    let (kind, options) = (kind_of_omitted(limits), limits.spelled_all());
    format!("\n{omitted} {kind} call{s} omitted, with their callees ({options})\n")
}

/// Returns the adjective of omitted subtrees. A subtree of many paths can be larger than one that is on
/// the heaviest paths.
fn kind_of_omitted(limits: &RowLimits) -> &'static str {
    if limits.rows.is_some() { "other" } else { "smaller" }
}

/// A line of the tree.
#[derive(Debug, PartialEq)]
struct Line {
    total: Sum,
    /// None for a line of omitted subtrees.
    self_: Option<Sum>,
    /// The total, divided. None for a line of omitted subtrees, and without `--per`.
    ratio: Option<Ratio>,
    /// The branch lines before the name.
    guides: String,
    name: String,
    suffix: String,
}

impl Line {
    /// Prints the line, with the cells of its ratio before the name.
    fn print(
        &self,
        out: &mut String,
        whole: Sum,
        is_inverted: bool,
        ratio: &str,
        width: Option<usize>,
    ) {
        out.push_str(&format!("{:>7.2}  ", self.total.percent_of(whole)));
        if !is_inverted {
            let self_ =
                self.self_.map_or(String::new(), |self_| format!("{:.2}", self_.percent_of(whole)));
            out.push_str(&format!("{self_:>6}  "));
        }
        out.push_str(ratio);
        out.push_str(&self.guides);
        push_name(out, &self.name, &self.suffix, width);
    }

    /// Creates the line of omitted subtrees.
    fn of_omitted(omitted: OmittedSubtrees, limits: &RowLimits, guides: String) -> Self {
        let name = format!("({} {})", omitted.count, kind_of_omitted(limits));
        let total = omitted.total;
        Self { total, self_: None, ratio: None, guides, name, suffix: String::new() }
    }
}

/// A part of the tree that is still to be added.
enum Pending<'a> {
    Call {
        /// Index of the row.
        row: usize,
        /// The branch lines before the call, and before its callees.
        guides: String,
        below: String,
        caller_image: &'a str,
    },
    Omitted(OmittedSubtrees, String),
}

/// Turns the rows of a tree into lines.
struct Outline<'a> {
    tree: &'a Tree,
    rows: &'a TreeRows,
    limits: &'a RowLimits,
    ratios: Option<CallRatios<'a>>,
    lines: Vec<Line>,
    /// The next part is the last element.
    pending: Vec<Pending<'a>>,
}

impl<'a> Outline<'a> {
    fn new(tree: &'a Tree, rows: &'a TreeRows, limits: &'a RowLimits) -> Self {
        Self { tree, rows, limits, ratios: None, lines: Vec::new(), pending: Vec::new() }
    }

    fn add_all(&mut self) {
        let rows = self.rows;
        self.branch(&rows.outermost, rows.omitted, "", "");
        while let Some(next) = self.pending.pop() {
            match next {
                Pending::Call { row, guides, below, caller_image } => {
                    self.chain(row, &guides, &below, caller_image);
                }
                Pending::Omitted(omitted, guides) => {
                    self.lines.push(Line::of_omitted(omitted, self.limits, guides));
                }
            }
        }
    }

    /// Adds the lines of a call and of the calls below it, down to where the tree branches.
    fn chain(&mut self, first: usize, guides: &str, below: &str, caller_image: &'a str) {
        let rows = &self.rows.rows;
        // A chain ends at a leaf, or where several children are large enough for a row.
        let mut chain = vec![first];
        let mut last = &rows[first];
        while let [only] = last.children[..] {
            chain.push(only);
            last = &rows[only];
        }
        let functions: Vec<usize> =
            chain.iter().map(|&row| self.tree.nodes[rows[row].node].function).collect();
        let mut image = caller_image;
        for repetition in repetitions(&functions) {
            for nth in 0..repetition.period {
                let is_first = repetition.start + nth == 0;
                let left = if is_first { guides } else { below };
                image = self.call(&chain, repetition, nth, left, image);
            }
            let end = repetition.end();
            let mut omitted = OmittedSubtrees::default();
            chain[repetition.start..end].iter().for_each(|&row| omitted.merge(rows[row].omitted));
            if end < chain.len() {
                self.omitted_before_child(omitted, below);
            } else {
                self.branch(&last.children, omitted, below, image);
            }
        }
    }

    /// Adds the line of a call of a repetition; returns its image.
    fn call(
        &mut self,
        chain: &[usize],
        repetition: Repetition,
        nth: usize,
        guides: &str,
        caller_image: &str,
    ) -> &'a str {
        let (tree, rows) = (self.tree, &self.rows.rows);
        // The first occurrence is the outermost one: its total includes the others.
        let node = rows[chain[repetition.start + nth]].node;
        let function = tree.function(node);
        // Own samples of the occurrences are disjoint, so they add up.
        let mut self_ = Sum::default();
        for index in repetition.occurrences(nth) {
            self_.add(tree.nodes[rows[chain[index]].node].self_);
        }
        let image = if *function.image == *caller_image { "" } else { &function.image };
        let occurrences = repetition.occurrences(nth).map(|index| rows[chain[index]].node);
        self.lines.push(Line {
            total: tree.nodes[node].total,
            self_: Some(self_),
            ratio: self.ratios.as_ref().map(|ratios| ratios.of(occurrences)),
            guides: format!("{guides}{}", bracket(repetition, nth)),
            name: function.name.clone(),
            suffix: suffix(printed_count(repetition, nth), image, &function.name),
        });
        &function.image
    }

    /// True if omitted subtrees together are large enough for a line.
    fn has_line(&self, omitted: OmittedSubtrees) -> bool {
        omitted.count > 0 && !self.limits.is_small(omitted.total, self.rows.event.whole)
    }

    /// Adds a line for omitted siblings of an only child. It comes before the child: the
    /// subtree of the child can be long.
    fn omitted_before_child(&mut self, omitted: OmittedSubtrees, below: &str) {
        if self.has_line(omitted) {
            self.lines.push(Line::of_omitted(omitted, self.limits, below.to_owned()));
        }
    }

    /// Schedules the children of a call.
    fn branch(
        &mut self,
        children: &[usize],
        omitted: OmittedSubtrees,
        below: &str,
        image: &'a str,
    ) {
        if let [] | [_] = children {
            self.omitted_before_child(omitted, below);
            self.pending.extend(children.iter().map(|&row| Pending::Call {
                row,
                guides: below.to_owned(),
                below: below.to_owned(),
                caller_image: image,
            }));
            return;
        }
        // Parts are pushed in reverse: the last one pushed is added first.
        // The line of omitted subtrees is the last branch.
        let has_line = self.has_line(omitted);
        if has_line {
            self.pending.push(Pending::Omitted(omitted, deeper(below, "└ ")));
        }
        for (i, &row) in children.iter().enumerate().rev() {
            let is_last = i + 1 == children.len() && !has_line;
            let (corner, bar) = if is_last { ("└ ", "  ") } else { ("├ ", "│ ") };
            let (guides, below) = (deeper(below, corner), deeper(below, bar));
            self.pending.push(Pending::Call { row, guides, below, caller_image: image });
        }
    }
}

/// Appends a step to the branch lines; cuts off their beginning if they become too wide.
fn deeper(guides: &str, step: &str) -> String {
    let all = format!("{guides}{step}");
    let length = all.chars().count();
    if length <= MAX_GUIDES {
        return all;
    }
    format!("…{}", all.chars().skip(length + 1 - MAX_GUIDES).collect::<String>())
}

#[cfg(test)]
mod tests;
