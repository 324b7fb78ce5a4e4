//! The path profile for people: every distinct call path with its share, leaf first as in a
//! backtrace, and under the leaf the lines that were hit in it.

use nprof_report::layout::{Scale, fit};
use nprof_report::margin::Confidence;
use nprof_report::report::RowLimits;
use unicode_width::UnicodeWidthStr;

use crate::print::context::Input;
use crate::select::{Hidden, Section, Shown};
use crate::tree::call_tree::{At, Tree};
use crate::tree::recursion::blocks;

/// How many lines of a leaf are printed when there are many.
const LINES: usize = 8;

/// How far functions stand from the margin.
const INDENT: usize = 4;

/// The whole report.
pub(crate) fn print(input: &Input<'_>, sections: &[Section]) -> Vec<u8> {
    let confidence = input.args.options.confidence();
    let legend = format!(
        "± is the margin of error at {} % confidence;\n\
         a path is printed leaf first, with the samples on each line of the leaf",
        confidence.percent()
    );
    let mut out = input.heading(&legend);
    for section in sections {
        let event = &input.summary.events[section.shown.event];
        if sections.len() > 1 {
            out.push_str(&input.title(&section.shown));
        }
        let (tree, shown, width) = (input.tree, section.shown, input.width);
        let printer = Printer { tree, shown, scale: Scale::of(event), confidence, width };
        for &leaf in &section.paths {
            printer.path(&mut out, leaf);
        }
        out.push_str(&footer(section, &input.args.row_limits()));
    }
    out.into_bytes()
}

struct Printer<'a> {
    tree: &'a Tree,
    shown: Shown,
    scale: Scale,
    confidence: Confidence,
    width: Option<usize>,
}

impl Printer<'_> {
    fn path(&self, out: &mut String, leaf: At) {
        let own = self.tree.nodes[leaf].own;
        let margin = self.confidence.margin(own.samples, self.shown.whole.samples);
        out.push_str(&format!(
            "\n{:.2} % ± {:.2}, {} sample{}, {} {}\n",
            own.percent_of(self.shown.whole),
            100.0 * margin,
            own.samples,
            if own.samples == 1 { "" } else { "s" },
            self.scale.print(own.weight),
            self.scale.unit,
        ));
        let stack: Vec<usize> =
            self.tree.stack(leaf).map(|node| self.tree.nodes[node].function).collect();
        let mut image = "";
        for block in blocks(&stack) {
            for nth in 0..block.period {
                let function = &self.tree.functions[stack[block.start + nth]];
                let shown = if function.image == image { "" } else { &function.image };
                let suffix = suffix(block.times_at(nth), shown, &function.name);
                let name = format!("{}{}", block.bracket(nth), function.name);
                self.name(out, INDENT, &name, &suffix);
                image = &function.image;
                if block.start + nth == 0 {
                    self.lines(out, leaf);
                }
            }
        }
    }

    fn lines(&self, out: &mut String, leaf: At) {
        let lines = self.tree.lines.get(&leaf).map_or(&[][..], |lines| lines);
        if matches!(lines, [(only, _)] if *only == self.tree.function(leaf).name) {
            return;
        }
        for (line, sum) in lines.iter().take(LINES) {
            let count = format!("{:>8}  ", sum.samples);
            out.push_str(&" ".repeat(INDENT));
            out.push_str(&count);
            self.name(out, 0, line, "");
        }
        if lines.len() > LINES {
            let rest: u64 = lines[LINES..].iter().map(|(_, sum)| sum.samples).sum();
            let (indent, more) = (" ".repeat(INDENT), lines.len() - LINES);
            out.push_str(&format!("{indent}{rest:>8}  in {more} other places\n"));
        }
    }

    /// A name and what follows it, as far to the right as `indent`.
    fn name(&self, out: &mut String, indent: usize, name: &str, suffix: &str) {
        let before = out.rsplit('\n').next().map_or(0, UnicodeWidthStr::width);
        out.push_str(&" ".repeat(indent));
        match self.width {
            None => out.extend([name, suffix]),
            Some(width) => {
                out.push_str(&fit(name, suffix, width.saturating_sub(before + indent)));
            }
        }
        out.push('\n');
    }
}

/// What follows the name of a function: how often it called itself, and its image.
pub(crate) fn suffix(times: usize, image: &str, name: &str) -> String {
    let mut suffix = String::new();
    if times > 1 {
        suffix.push_str(&format!("  ×{times}"));
    }
    // Names of marks and of places without a symbol tell their image.
    if !image.is_empty() && !name.starts_with(image) {
        let bracketed = image.starts_with('[');
        suffix.push_str(&if bracketed { format!("  {image}") } else { format!("  ({image})") });
    }
    suffix
}

fn footer(section: &Section, choice: &RowLimits) -> String {
    let line = |hidden: &Hidden, what: &str, why: &str| {
        let s = if hidden.count == 1 { "" } else { "s" };
        let (paths, share) = (hidden.count, hidden.sum.percent_of(section.shown.whole));
        format!("{paths} path{s} {what}, {share:.2} % ({why})\n")
    };
    let mut out = String::new();
    if section.dropped.count > 0 {
        out.push_str(&line(&section.dropped, "dropped", &choice.spelled()));
    }
    if section.more.count > 0 {
        out.push_str(&line(&section.more, "not shown", "-n 0 prints all"));
    }
    if out.is_empty() { out } else { format!("\n{out}") }
}
