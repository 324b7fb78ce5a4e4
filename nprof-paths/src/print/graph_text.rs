//! The view `graph` as a table: an entry per function, its callers above it and its callees below,
//! as gprof and IgProf print it.

use std::io::{self, Write};

use nprof_report::profile::Sum;
use nprof_report::report::RowLimits;

use crate::print::context::PrintContext;
use crate::print::function_name::{push_name, suffix};
use crate::print::omitted::Omitted;
use crate::rows::graph::GraphRows;
use crate::tree::call_tree::Function;
use crate::tree::graph::{Edge, Graph};

const LEGEND: &str = "
callers are above a function, callees below it; via is the share of the paths
through both, self the part of it that ends in the callee, paths their number";

/// Spaces before callers and callees.
const INDENT: &str = "    ";

/// Prints the graphs of all events.
pub(crate) fn print(
    context: &PrintContext<'_>,
    events: &[GraphRows],
    to: &mut dyn Write,
) -> io::Result<()> {
    let mut out = context.heading(LEGEND);
    for rows in events {
        out.push_str(&context.title(&rows.event));
        let printer = Printer {
            rows,
            limits: context.args.row_limits(),
            functions: &context.tree.functions,
            width: context.width,
            paths_width: paths_width(&rows.graph),
        };
        let columns = Columns { index: "index", total: "total %", via: "via %", self_: "self %" };
        out.push_str(&printer.cells(&columns, "paths"));
        out.push_str("function\n");
        for entry in 0..rows.reported {
            printer.entry(&mut out, entry);
            to.write_all(out.as_bytes())?;
            out.clear();
        }
        out.push_str(&footer(rows, context));
    }
    to.write_all(out.as_bytes())
}

/// Returns the width of the column `paths`: room for two numbers and a slash.
fn paths_width(graph: &Graph) -> usize {
    let most = graph.entries.iter().map(|entry| entry.sums.paths).max().unwrap_or(0);
    (2 * most.to_string().len() + 1).max("paths".len())
}

/// The first cells of a line; empty ones are blank.
#[derive(Default)]
struct Columns<'a> {
    index: &'a str,
    total: &'a str,
    via: &'a str,
    self_: &'a str,
}

/// Edges that are too small for a line each.
#[derive(Clone, Copy, Default)]
struct SmallEdges {
    count: usize,
    total: Sum,
}

struct Printer<'a> {
    rows: &'a GraphRows,
    limits: RowLimits,
    functions: &'a [Function],
    width: Option<usize>,
    paths_width: usize,
}

impl Printer<'_> {
    /// Returns the text of a line before the name.
    fn cells(&self, columns: &Columns<'_>, paths: &str) -> String {
        let Columns { index, total, via, self_ } = columns;
        let width = self.paths_width;
        format!("{index:<7} {total:>7} {via:>7} {self_:>7}  {paths:>width$}  ")
    }

    fn share(&self, sum: Sum) -> String {
        format!("{:.2}", sum.percent_of(self.rows.event.whole))
    }

    /// Prints an entry, with an empty line below.
    fn entry(&self, out: &mut String, index: usize) {
        let entry = &self.rows.graph.entries[index];
        let (callers, small) = self.split_edges(&entry.callers);
        self.small_edges(out, small);
        let image = self.rows.graph.image(index, self.functions);
        // Reversed, so that the largest caller is next to its function.
        callers.iter().rev().for_each(|edge| self.edge(out, edge, image));
        let (total, self_) = (self.share(entry.sums.total), self.share(entry.sums.self_));
        let columns =
            Columns { index: &format!("[{}]", index + 1), total: &total, via: "", self_: &self_ };
        out.push_str(&self.cells(&columns, &entry.sums.paths.to_string()));
        self.entry_name(out, index, "", "");
        for member in &entry.members {
            // A member has no total: paths through several members would count several times.
            let columns = Columns { self_: &self.share(member.self_), ..Columns::default() };
            out.push_str(&self.cells(&columns, ""));
            out.push_str("  ");
            push_name(out, &self.functions[member.function].name, "", self.width);
        }
        let (callees, small) = self.split_edges(&entry.callees);
        callees.iter().for_each(|edge| self.edge(out, edge, image));
        self.small_edges(out, small);
        out.push('\n');
    }

    /// Returns the edges that are large enough for a line, and the sum of the others.
    fn split_edges<'b>(&self, edges: &'b [Edge]) -> (Vec<&'b Edge>, SmallEdges) {
        let mut small = SmallEdges::default();
        let mut large: Vec<&Edge> = edges.iter().collect();
        large.retain(|edge| {
            let is_small = self.limits.is_small(edge.sums.total, self.rows.event.whole);
            if is_small {
                small.count += 1;
                small.total.add(edge.sums.total);
            }
            !is_small
        });
        (large, small)
    }

    /// Prints the line of a caller or callee of an entry in `entry_image`.
    fn edge(&self, out: &mut String, edge: &Edge, entry_image: &str) {
        let other = &self.rows.graph.entries[edge.other].sums;
        let columns = Columns {
            index: "",
            total: &self.share(other.total),
            via: &self.share(edge.sums.total),
            self_: &self.share(edge.sums.self_),
        };
        out.push_str(&self.cells(&columns, &format!("{}/{}", edge.sums.paths, other.paths)));
        out.push_str(INDENT);
        // Omitted entries have no line that an index could refer to.
        let index = if edge.other < self.rows.reported {
            format!(" [{}]", edge.other + 1)
        } else {
            String::new()
        };
        self.entry_name(out, edge.other, &index, entry_image);
    }

    /// Prints the line of the edges that are too small for a line each.
    fn small_edges(&self, out: &mut String, small: SmallEdges) {
        if small.count > 0 {
            let columns = Columns { via: &self.share(small.total), ..Columns::default() };
            out.push_str(&self.cells(&columns, ""));
            out.push_str(&format!("{INDENT}({} smaller)\n", small.count));
        }
    }

    /// Ends a line with the name of an entry, `index`, and its image unless it is `known_image`.
    fn entry_name(&self, out: &mut String, entry: usize, index: &str, known_image: &str) {
        let name = self.rows.graph.name(entry, self.functions);
        let image = self.rows.graph.image(entry, self.functions);
        let image = suffix(1, if image == known_image { "" } else { image }, &name);
        push_name(out, &name, &format!("{index}{image}"), self.width);
    }
}

/// Returns the lines below a graph: the omitted functions.
fn footer(rows: &GraphRows, context: &PrintContext<'_>) -> String {
    let (dropped, not_shown) = (&rows.dropped, &rows.not_shown);
    // Totals of several functions overlap, so only their self can be added up.
    let of = " of self";
    let omitted = Omitted { event: &rows.event, noun: "function", of, dropped, not_shown };
    omitted.lines(&context.args.row_limits())
}
