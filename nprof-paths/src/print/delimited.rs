//! Paths, trees and graphs as lines of fields, for TSV and CSV: a line of column names, then a line
//! per row in full precision. New columns are only ever added, at the end. Names are escaped, so no
//! field contains a tab or a newline.

use nprof_report::machine_formats::Lines;
use nprof_report::profile::{ReportedEvent, Sum};

use crate::print::context::PrintContext;
use crate::print::folded::{self, PathOrder};
use crate::rows::graph::GraphRows;
use crate::rows::paths::PathRows;
use crate::rows::tree::TreeRows;
use crate::tree::graph::EdgeSums;

/// Returns the line of column names.
fn header(columns: &str) -> Lines {
    vec![columns.split_whitespace().map(str::to_owned).collect()]
}

/// Returns a line per path.
pub(crate) fn paths(context: &PrintContext<'_>, events: &[PathRows]) -> Lines {
    let tree = context.tree;
    let mut lines = header("event samples weight percent margin depth leaf image path");
    for rows in events {
        let whole = rows.event.whole;
        for &leaf in &rows.paths {
            let self_ = tree.nodes[leaf].self_;
            let margin = context.args.options.confidence().margin(self_.samples, whole.samples);
            let function = tree.function(leaf);
            lines.push(vec![
                context.event_name(&rows.event),
                self_.samples.to_string(),
                self_.weight.to_string(),
                self_.percent_of(whole).to_string(),
                (100.0 * margin).to_string(),
                // Without the root, which is not a call.
                tree.stack(leaf).count().to_string(),
                function.name.clone(),
                function.image.clone(),
                folded::stack(tree, leaf, PathOrder::RootFirst),
            ]);
        }
    }
    lines
}

/// Returns samples, weights and shares of self and total.
fn numbers(self_: Sum, total: Sum, event: &ReportedEvent) -> [String; 6] {
    [
        self_.samples.to_string(),
        total.samples.to_string(),
        self_.weight.to_string(),
        total.weight.to_string(),
        self_.percent_of(event.whole).to_string(),
        total.percent_of(event.whole).to_string(),
    ]
}

/// Returns a line per node, parents before their children. Nodes are numbered from 1; the parent of
/// an outermost function is 0.
pub(crate) fn tree(context: &PrintContext<'_>, events: &[TreeRows]) -> Lines {
    let mut lines = header(
        "event node parent depth self_samples total_samples self total self_percent \
         total_percent function image",
    );
    for rows in events {
        for (index, row) in rows.rows.iter().enumerate() {
            let node = &context.tree.nodes[row.node];
            let function = context.tree.function(row.node);
            let mut line = vec![
                context.event_name(&rows.event),
                (index + 1).to_string(),
                row.parent.map_or(0, |parent| parent + 1).to_string(),
                row.depth.to_string(),
            ];
            line.extend(numbers(node.self_, node.total, &rows.event));
            line.extend([function.name.clone(), function.image.clone()]);
            lines.push(line);
        }
    }
    lines
}

/// Returns for each function a line, then one for each caller, callee and function of a cycle.
pub(crate) fn graph(context: &PrintContext<'_>, events: &[GraphRows]) -> Lines {
    let mut lines = header(
        "event index kind other self_samples total_samples self total self_percent \
         total_percent paths function image",
    );
    for rows in events {
        let printer = GraphPrinter { context, rows };
        for (index, entry) in rows.entries().iter().enumerate() {
            lines.push(printer.entry(index, index, "function", &entry.sums));
            for edge in &entry.callers {
                lines.push(printer.entry(index, edge.other, "caller", &edge.sums));
            }
            for edge in &entry.callees {
                lines.push(printer.entry(index, edge.other, "callee", &edge.sums));
            }
            // The functions of a cycle have no entry of their own to refer to.
            for member in &entry.members {
                let sums = EdgeSums { self_: member.self_, total: member.self_, paths: 0 };
                let mut line = printer.sums(index, index, "member", &sums);
                let function = &context.tree.functions[member.function];
                line.extend([function.name.clone(), function.image.clone()]);
                lines.push(line);
            }
        }
    }
    lines
}

struct GraphPrinter<'a> {
    context: &'a PrintContext<'a>,
    rows: &'a GraphRows,
}

impl GraphPrinter<'_> {
    /// Returns a line about the entry `other`, as part of the entry `index`.
    fn entry(&self, index: usize, other: usize, kind: &str, sums: &EdgeSums) -> Vec<String> {
        let functions = &self.context.tree.functions;
        let mut line = self.sums(index, other, kind, sums);
        line.push(self.rows.graph.name(other, functions));
        line.push(self.rows.graph.image(other, functions).to_owned());
        line
    }

    /// Returns the fields of a line up to the name.
    fn sums(&self, index: usize, other: usize, kind: &str, sums: &EdgeSums) -> Vec<String> {
        let event = self.context.event_name(&self.rows.event);
        let mut line = vec![event, (index + 1).to_string(), kind.to_owned()];
        line.push((other + 1).to_string());
        line.extend(numbers(sums.self_, sums.total, &self.rows.event));
        line.push(sums.paths.to_string());
        line
    }
}
