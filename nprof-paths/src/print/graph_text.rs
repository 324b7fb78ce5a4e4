//! The call graph for people: an entry for each function, its callers above it and what it called
//! below, as gprof and IgProf print it.

use nprof_report::layout::fit;
use nprof_report::profile::Sum;
use nprof_report::report::RowLimits;
use unicode_width::UnicodeWidthStr;

use crate::print::context::Input;
use crate::print::paths::suffix;
use crate::select::Hidden;
use crate::tree::call_tree::Function;
use crate::tree::graph::{Chosen, Edge, Graph};

const LEGEND: &str = "
callers stand above a function, what it called below it; via is what came by
both, self what of it fell on the one that was called, paths how many paths";

/// How far callers and callees stand from the functions.
const INDENT: usize = 4;

/// The whole report.
pub(crate) fn print(input: &Input<'_>, graphs: &[Chosen]) -> Vec<u8> {
    let mut out = input.heading(LEGEND);
    for chosen in graphs {
        out.push_str(&input.title(&chosen.shown));
        let functions = &input.tree.functions;
        let paths = paths_width(&chosen.graph);
        let choice = input.args.row_limits();
        let printer = Printer { chosen, choice, functions, width: input.width, paths };
        let head = line(["index", "total %", "via %", "self %"].map(str::to_owned), "paths", paths);
        out.push_str(&format!("{head}function\n"));
        for entry in 0..chosen.count {
            printer.entry(&mut out, entry);
        }
        out.push_str(&footer(chosen, input));
    }
    out.into_bytes()
}

/// How wide the numbers of paths are.
fn paths_width(graph: &Graph) -> usize {
    let most = graph.entries.iter().map(|entry| entry.passing.paths).max().unwrap_or(0);
    (2 * most.to_string().len() + 1).max("paths".len())
}

fn line(numbers: [String; 4], paths: &str, paths_width: usize) -> String {
    let [index, total, via, own] = numbers;
    format!("{index:<7} {total:>7} {via:>7} {own:>7}  {paths:>paths_width$}  ")
}

struct Printer<'a> {
    chosen: &'a Chosen,
    choice: RowLimits,
    functions: &'a [Function],
    width: Option<usize>,
    paths: usize,
}

impl Printer<'_> {
    fn share(&self, sum: Sum) -> String {
        format!("{:.2}", sum.percent_of(self.chosen.shown.whole))
    }

    /// An entry, with an empty line below.
    fn entry(&self, out: &mut String, at: usize) {
        let entry = &self.chosen.graph.entries[at];
        let (callers, few) = self.large(&entry.callers);
        self.few(out, few);
        // The most important caller stands next to its function.
        let image = self.chosen.graph.image(at, self.functions);
        callers.iter().rev().for_each(|edge| self.edge(out, edge, image));
        let passing = &entry.passing;
        let (total, own) = (self.share(passing.total), self.share(passing.own));
        let numbers = [format!("[{}]", at + 1), total, String::new(), own];
        let before = line(numbers, &passing.paths.to_string(), self.paths);
        self.vertex(out, &before, at, "", "");
        for &(member, own) in &entry.members {
            let numbers = [String::new(), String::new(), String::new(), self.share(own)];
            let before = format!("{}  ", line(numbers, "", self.paths));
            self.name(out, &before, &self.functions[member].name, "");
        }
        let (callees, few) = self.large(&entry.callees);
        callees.iter().for_each(|edge| self.edge(out, edge, image));
        self.few(out, few);
        out.push('\n');
    }

    /// The edges that are worth a line, and what the others come to.
    fn large<'b>(&self, edges: &'b [Edge]) -> (Vec<&'b Edge>, Hidden) {
        let mut few = Hidden::default();
        let mut large: Vec<&Edge> = edges.iter().collect();
        large.retain(|edge| {
            let is_small = self.choice.is_small(edge.passing.total, self.chosen.shown.whole);
            if is_small {
                few.add(edge.passing.total);
            }
            !is_small
        });
        (large, few)
    }

    /// A line for what stands next to an entry of this image.
    fn edge(&self, out: &mut String, edge: &Edge, image: &str) {
        let other = &self.chosen.graph.entries[edge.other].passing;
        let (total, via) = (self.share(other.total), self.share(edge.passing.total));
        let numbers = [String::new(), total, via, self.share(edge.passing.own)];
        let paths = format!("{}/{}", edge.passing.paths, other.paths);
        let index = match edge.other < self.chosen.count {
            true => format!(" [{}]", edge.other + 1),
            false => String::new(),
        };
        let before = format!("{}{:INDENT$}", line(numbers, &paths, self.paths), "");
        self.vertex(out, &before, edge.other, &index, image);
    }

    /// A line for edges that are too small for one each.
    fn few(&self, out: &mut String, few: Hidden) {
        if few.count > 0 {
            let numbers = [String::new(), String::new(), self.share(few.sum), String::new()];
            let before = line(numbers, "", self.paths);
            out.push_str(&format!("{before}{:INDENT$}({} smaller)\n", "", few.count));
        }
    }

    /// A line that names a vertex, and its image if that is another than `near`.
    fn vertex(&self, out: &mut String, before: &str, at: usize, index: &str, near: &str) {
        let graph = &self.chosen.graph;
        let name = graph.name(at, self.functions);
        let image = Some(graph.image(at, self.functions)).filter(|image| *image != near);
        let image = suffix(1, image.unwrap_or_default(), &name);
        self.name(out, before, &name, &format!("{index}{image}"));
    }

    fn name(&self, out: &mut String, before: &str, name: &str, after: &str) {
        out.push_str(before);
        match self.width {
            None => out.extend([name, after]),
            Some(width) => out.push_str(&fit(name, after, width.saturating_sub(before.width()))),
        }
        out.push('\n');
    }
}

fn footer(chosen: &Chosen, input: &Input<'_>) -> String {
    let mut out = String::new();
    let mut line = |hidden: &Hidden, what: &str, why: &str| {
        if hidden.count > 0 {
            let (s, count) = (if hidden.count == 1 { "" } else { "s" }, hidden.count);
            let share = hidden.sum.percent_of(chosen.shown.whole);
            out.push_str(&format!("{count} function{s} {what}, {share:.2} % of self ({why})\n"));
        }
    };
    line(&chosen.dropped, "dropped", &input.args.row_limits().spelled());
    line(&chosen.more, "not shown", "-n 0 prints all");
    out
}
