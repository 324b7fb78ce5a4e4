//! The view `paths` as a table: every distinct call path with its share, leaf first as in a
//! backtrace, and below the leaf its source lines.

use std::io::{self, Write};

use nprof_report::layout::Scale;
use nprof_report::margin::Confidence;
use nprof_report::profile::ReportedEvent;
use nprof_report::report::RowLimits;

use crate::print::context::PrintContext;
use crate::print::function_name::{bracket, printed_count, push_name, suffix};
use crate::print::omitted::Omitted;
use crate::rows::paths::PathRows;
use crate::tree::call_tree::{LineSum, NodeIndex, Tree};
use crate::tree::recursion::repetitions;

/// Maximum number of source lines printed for a leaf.
const MAX_LINES: usize = 8;

/// Spaces before functions and source lines.
const INDENT: &str = "    ";

/// Prints the paths of all events.
pub(crate) fn print(
    context: &PrintContext<'_>,
    events: &[PathRows],
    to: &mut dyn Write,
) -> io::Result<()> {
    let confidence = context.args.options.confidence();
    let legend = format!(
        "± is the margin of error at {} % confidence;\n\
         a path is printed leaf first, with the samples on each line of the leaf",
        confidence.percent()
    );
    let mut out = context.heading(&legend);
    for rows in events {
        let summary = &context.summary.events[rows.event.event];
        // Each path begins with an empty line, so a single event needs no title line.
        if events.len() > 1 {
            out.push_str(&context.title(&rows.event));
        }
        let (tree, event, width) = (context.tree, rows.event, context.width);
        let printer = Printer { tree, event, scale: Scale::of(summary), confidence, width };
        for &leaf in &rows.paths {
            printer.path(&mut out, leaf);
            flush(&mut out, to)?;
        }
        out.push_str(&footer(rows, &context.args.row_limits()));
    }
    to.write_all(out.as_bytes())
}

/// Writes the lines that have accumulated: all paths together can be far larger than the tree.
fn flush(lines: &mut String, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(lines.as_bytes())?;
    lines.clear();
    Ok(())
}

struct Printer<'a> {
    tree: &'a Tree,
    event: ReportedEvent,
    scale: Scale,
    confidence: Confidence,
    width: Option<usize>,
}

impl Printer<'_> {
    fn path(&self, out: &mut String, leaf: NodeIndex) {
        let self_ = self.tree.nodes[leaf].self_;
        let margin = self.confidence.margin(self_, self.event.whole);
        out.push_str(&format!(
            "\n{:.2} % ± {:.2}, {} sample{}, {} {}\n",
            self_.percent_of(self.event.whole),
            100.0 * margin,
            self_.samples,
            if self_.samples == 1 { "" } else { "s" },
            self.scale.print(self_.weight),
            self.scale.unit,
        ));
        let stack: Vec<usize> =
            self.tree.stack(leaf).map(|node| self.tree.nodes[node].function).collect();
        // The image is printed where it changes: most of a stack is in a few images.
        let mut image = "";
        for repetition in repetitions(&stack) {
            for nth in 0..repetition.period {
                let function = &self.tree.functions[stack[repetition.start + nth]];
                let new_image = if *function.image == *image { "" } else { &function.image };
                let suffix = suffix(printed_count(repetition, nth), new_image, &function.name);
                out.push_str(INDENT);
                let name = format!("{}{}", bracket(repetition, nth), function.name);
                push_name(out, &name, &suffix, self.width);
                image = &function.image;
                if repetition.start + nth == 0 {
                    self.lines(out, leaf);
                }
            }
        }
    }

    /// Prints the source lines of a leaf.
    fn lines(&self, out: &mut String, leaf: NodeIndex) {
        let lines = self.tree.lines(leaf);
        // A mark or an address without a symbol is its own only line.
        if matches!(lines, [only] if *only.line == self.tree.function(leaf).name) {
            return;
        }
        for LineSum { line, sum, .. } in lines.iter().take(MAX_LINES) {
            out.push_str(&format!("{INDENT}{:>8}  ", sum.samples));
            push_name(out, line, "", self.width);
        }
        if lines.len() > MAX_LINES {
            let rest: u64 = lines[MAX_LINES..].iter().map(|line| line.sum.samples).sum();
            let more = lines.len() - MAX_LINES;
            out.push_str(&format!("{INDENT}{rest:>8}  in {more} other places\n"));
        }
    }
}

/// Returns the lines below the paths of an event: the omitted paths.
fn footer(rows: &PathRows, limits: &RowLimits) -> String {
    let (dropped, not_shown) = (&rows.dropped, &rows.not_shown);
    let omitted = Omitted { event: &rows.event, noun: "path", of: "", dropped, not_shown };
    let out = omitted.lines(limits);
    if out.is_empty() { out } else { format!("\n{out}") }
}
