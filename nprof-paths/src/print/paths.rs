//! The view `paths` as a table: every distinct call path with its share, leaf first as in a
//! backtrace, and below the leaf its source lines.

use std::io::{self, Write};

use nprof_report::layout::Scale;
use nprof_report::profile::ReportedEvent;
use nprof_report::ratio::Per;
use nprof_report::ratio_scale::RatioScale;
use nprof_report::report::RowLimits;

use crate::print::context::PrintContext;
use crate::print::function_name::{bracket, printed_count, push_name, suffix};
use crate::print::omitted::Omitted;
use crate::rows::paths::PathRows;
use crate::rows::ratios::{RatioPath, RatioPaths};
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
        let printer = Printer { tree, event, scale: Scale::of(summary), width };
        for &leaf in &rows.paths {
            printer.path(&mut out, leaf, context.margin(tree.nodes[leaf].self_, &event));
            flush(&mut out, to)?;
        }
        let PathRows { event, dropped, not_shown, .. } = rows;
        let omitted = Omitted { event, noun: "path", of: "", dropped, not_shown };
        out.push_str(&footer(&omitted, &context.args.row_limits()));
    }
    to.write_all(out.as_bytes())
}

/// Prints the paths of the divisor of all events.
pub(crate) fn print_ratios(
    context: &PrintContext<'_>,
    events: &[RatioPaths],
    per: Per,
    to: &mut dyn Write,
) -> io::Result<()> {
    let confidence = context.args.options.confidence();
    let divisor = &context.summary.events[per.event];
    let name = context.summary.event_name(per.event);
    let percent = confidence.percent();
    let mut out = context.heading(&format!("± is the margin of error at {percent} % confidence"));
    for rows in events {
        let dividend = &context.summary.events[rows.event.event];
        if events.len() > 1 {
            out.push_str(&context.title(&rows.event));
        }
        let (tree, event, width) = (context.tree, rows.event, context.width);
        let (scale, of_divisor) = (Scale::of(dividend), Scale::of(divisor));
        let ratios = RatioScale::of(dividend, divisor);
        let divisor_unit = if per.counts_calls { &name } else { &of_divisor.unit };
        for RatioPath { leaf, ratio, .. } in &rows.paths {
            let [value, margin] = ratios.print(ratio, confidence);
            out.push_str(&format!(
                "\n{value} ± {margin} {}, {} / {} {divisor_unit}\n",
                ratios.unit,
                scale.print_with_unit(ratio.numerator.weight),
                of_divisor.print(ratio.denominator.weight),
            ));
            let printer = Printer { tree, event, scale: scale.clone(), width };
            printer.calls(&mut out, *leaf, false);
            flush(&mut out, to)?;
        }
        let RatioPaths { event, dropped, not_shown, .. } = rows;
        let omitted = Omitted { event, noun: "path", of: "", dropped, not_shown };
        out.push_str(&footer(&omitted, &context.args.row_limits()));
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
    width: Option<usize>,
}

impl Printer<'_> {
    /// Prints a path, which has this margin of error.
    fn path(&self, out: &mut String, leaf: NodeIndex, margin: Option<f64>) {
        let self_ = self.tree.nodes[leaf].self_;
        let margin = margin.map_or(String::new(), |margin| format!(" ± {margin:.2}"));
        out.push_str(&format!(
            "\n{:.2} %{margin}, {} sample{}, {}\n",
            self_.percent_of(self.event.whole),
            self_.samples,
            if self_.samples == 1 { "" } else { "s" },
            self.scale.print_with_unit(self_.weight),
        ));
        self.calls(out, leaf, true);
    }

    /// Prints the functions of a path, leaf first.
    fn calls(&self, out: &mut String, leaf: NodeIndex, has_lines: bool) {
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
                if has_lines && repetition.start + nth == 0 {
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
fn footer(omitted: &Omitted<'_>, limits: &RowLimits) -> String {
    let out = omitted.lines(limits);
    if out.is_empty() { out } else { format!("\n{out}") }
}
