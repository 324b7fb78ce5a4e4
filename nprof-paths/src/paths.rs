//! The path profile for people: every distinct call path with its share, leaf first as in a
//! backtrace, and under the leaf the lines that were hit in it.

use nprof_format::escape::escaped;
use nprof_format::layout::{Scale, cut};
use nprof_format::margin::Confidence;
use nprof_format::summary::{EventSummary, Summary};
use unicode_width::UnicodeWidthStr;

use crate::args::Choice;
use crate::select::{Hidden, Section, percent};
use crate::tree::Tree;
use crate::view::heading;

/// How many lines of a leaf are printed when there are many.
const LINES: usize = 8;

/// How far functions stand from the margin.
const INDENT: usize = 4;

/// The whole report. `width` is the terminal's, if it goes to one.
pub(crate) fn print(
    tree: &Tree,
    sections: &[Section],
    summary: &Summary,
    choice: &Choice,
    width: Option<usize>,
) -> Vec<u8> {
    let legend = "100 % is all samples of the event; ± is the margin of error at 95 % confidence;\n\
                  a path is printed leaf first, with the samples on each line of the leaf";
    let mut out = heading(summary, legend);
    for section in sections {
        let event = &summary.events[section.event];
        if sections.len() > 1 {
            out.push_str(&format!("\n{}:\n", escaped(&event.event.name)));
        }
        let printer = Printer { tree, event, scale: Scale::of(event), width };
        for &leaf in &section.paths {
            printer.path(&mut out, leaf);
        }
        out.push_str(&footer(section, event, choice));
    }
    out.into_bytes()
}

struct Printer<'a> {
    tree: &'a Tree,
    event: &'a EventSummary,
    scale: Scale,
    width: Option<usize>,
}

impl Printer<'_> {
    fn path(&self, out: &mut String, leaf: usize) {
        let own = self.tree.nodes[leaf].own;
        let margin = Confidence::default().margin(own.samples, self.event.sum.samples);
        out.push_str(&format!(
            "\n{:.2} % ± {:.2}, {} sample{}, {} {}\n",
            percent(own, self.event.sum),
            100.0 * margin,
            own.samples,
            if own.samples == 1 { "" } else { "s" },
            self.scale.print(own.weight),
            self.scale.unit,
        ));
        let mut stack = self.tree.stack(leaf).peekable();
        let mut image = "";
        let mut is_leaf = true;
        while let Some(node) = stack.next() {
            let function = self.tree.nodes[node].function;
            let mut times = 1;
            while stack.next_if(|&next| self.tree.nodes[next].function == function).is_some() {
                times += 1;
            }
            let function = &self.tree.functions[function];
            let shown = if function.image == image { "" } else { &function.image };
            self.name(out, INDENT, &function.name, &suffix(times, shown, &function.name));
            image = &function.image;
            if std::mem::take(&mut is_leaf) {
                self.lines(out, leaf);
            }
        }
    }

    fn lines(&self, out: &mut String, leaf: usize) {
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
            None => out.push_str(name),
            Some(width) => {
                let room = width.saturating_sub(before + indent + suffix.width());
                out.push_str(&cut(name, room.max(12)));
            }
        }
        out.push_str(suffix);
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

fn footer(section: &Section, event: &EventSummary, choice: &Choice) -> String {
    let line = |hidden: &Hidden, what: &str, why: &str| {
        let s = if hidden.paths == 1 { "" } else { "s" };
        let (paths, share) = (hidden.paths, percent(hidden.sum, event.sum));
        format!("{paths} path{s} {what}, {share:.2} % ({why})\n")
    };
    let mut out = String::new();
    if section.dropped.paths > 0 {
        out.push_str(&line(&section.dropped, "dropped", &choice.why()));
    }
    if section.more.paths > 0 {
        out.push_str(&line(&section.more, "not shown", "-n 0 prints all"));
    }
    if out.is_empty() { out } else { format!("\n{out}") }
}
