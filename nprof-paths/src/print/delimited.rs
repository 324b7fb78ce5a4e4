//! Paths, trees and graphs as lines of fields, for TSV and CSV: a line of column names, then a line
//! per row in full precision. New columns are only ever added, at the end. Names are escaped, so no
//! field contains a tab or a newline.

use nprof_report::machine_formats::Line;
use nprof_report::profile::{ReportedEvent, Sum};
use nprof_report::ratio::Ratio;

use crate::print::context::PrintContext;
use crate::print::folded;
use crate::rows::graph::GraphRows;
use crate::rows::paths::PathRows;
use crate::rows::ratios::RatioPaths;
use crate::rows::tree::{TreeRow, TreeRows};
use crate::tree::call_tree::NodeIndex;
use crate::tree::graph::{EdgeSums, Entry};

/// Returns the line of column names.
fn header(columns: &str) -> std::iter::Once<Line> {
    std::iter::once(columns.split_whitespace().map(str::to_owned).collect())
}

/// Returns a line per path.
pub(crate) fn paths<'a>(
    context: &'a PrintContext<'_>,
    events: &'a [PathRows],
) -> impl Iterator<Item = Line> + 'a {
    let header = header("event samples weight percent margin depth leaf image path");
    let of_event = move |rows: &'a PathRows| {
        let self_ = |leaf: NodeIndex| context.tree.nodes[leaf].self_;
        rows.paths.iter().map(move |&leaf| path(context, &rows.event, leaf, self_(leaf)))
    };
    header.chain(events.iter().flat_map(of_event))
}

/// Returns the line of a path with these samples.
fn path(context: &PrintContext<'_>, event: &ReportedEvent, leaf: NodeIndex, self_: Sum) -> Line {
    let (tree, whole) = (context.tree, event.whole);
    let function = tree.function(leaf);
    vec![
        context.event_name(event),
        self_.samples.to_string(),
        self_.weight.to_string(),
        self_.percent_of(whole).to_string(),
        context.margin(self_, event).map_or(String::new(), |margin| margin.to_string()),
        // Without the root, which is not a call.
        tree.stack(leaf).count().to_string(),
        function.name.clone(),
        function.image.to_string(),
        folded::stack(tree, leaf),
    ]
}

/// Returns a line per path of the divisor: the columns of [`paths`], and those of the ratio.
pub(crate) fn ratios<'a>(
    context: &'a PrintContext<'_>,
    events: &'a [RatioPaths],
) -> impl Iterator<Item = Line> + 'a {
    let header = header(
        "event samples weight percent margin depth leaf image path total per ratio ratio_margin",
    );
    let of_event = move |rows: &'a RatioPaths| {
        rows.paths.iter().map(move |path| {
            let self_ = path.node.map_or(Sum::default(), |node| context.tree.nodes[node].self_);
            let mut line = self::path(context, &rows.event, path.leaf, self_);
            line.push(path.ratio.numerator.weight.to_string());
            line.extend(ratio(context, &path.ratio));
            line
        })
    };
    header.chain(events.iter().flat_map(of_event))
}

/// Returns the divisor, the ratio and its margin; empty if unknown.
fn ratio(context: &PrintContext<'_>, ratio: &Ratio) -> [String; 3] {
    let margin = ratio.margin(context.args.options.confidence());
    let [value, margin] =
        [ratio.value(), margin].map(|number| number.map_or(String::new(), |n| n.to_string()));
    [ratio.denominator.weight.to_string(), value, margin]
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
pub(crate) fn tree<'a>(
    context: &'a PrintContext<'_>,
    events: &'a [TreeRows],
) -> impl Iterator<Item = Line> + 'a {
    let columns = "event node parent depth self_samples total_samples self total self_percent \
                   total_percent function image";
    // Appended, as all later columns.
    let ratios = if context.per.is_some() { " per ratio ratio_margin" } else { "" };
    let header = header(&format!("{columns}{ratios}"));
    let of_event = move |rows: &'a TreeRows| {
        let ratios = context.ratios(&rows.event);
        let line = move |(index, row): (usize, &TreeRow)| {
            let mut line = node(context, rows, index, row);
            if let Some(ratios) = &ratios {
                line.extend(ratio(context, &ratios.of(std::iter::once(row.node))));
            }
            line
        };
        rows.rows.iter().enumerate().map(line)
    };
    header.chain(events.iter().flat_map(of_event))
}

fn node(context: &PrintContext<'_>, rows: &TreeRows, index: usize, row: &TreeRow) -> Line {
    let node = &context.tree.nodes[row.node];
    let function = context.tree.function(row.node);
    let mut line = vec![
        context.event_name(&rows.event),
        (index + 1).to_string(),
        row.parent.map_or(0, |parent| parent + 1).to_string(),
        row.depth.to_string(),
    ];
    line.extend(numbers(node.self_, node.total, &rows.event));
    line.extend([function.name.clone(), function.image.to_string()]);
    line
}

/// Returns for each function a line, then one for each caller, callee and function of a cycle.
pub(crate) fn graph<'a>(
    context: &'a PrintContext<'_>,
    events: &'a [GraphRows],
) -> impl Iterator<Item = Line> + 'a {
    let header = header(
        "event index kind other self_samples total_samples self total self_percent \
         total_percent paths function image",
    );
    let of_event = |rows: &'a GraphRows| {
        let printer = GraphPrinter { context, rows };
        rows.entries().iter().enumerate().flat_map(move |(index, entry)| printer.all(index, entry))
    };
    header.chain(events.iter().flat_map(of_event))
}

#[derive(Clone, Copy)]
struct GraphPrinter<'a> {
    context: &'a PrintContext<'a>,
    rows: &'a GraphRows,
}

impl GraphPrinter<'_> {
    /// Returns the lines of an entry.
    fn all(&self, index: usize, entry: &Entry) -> Vec<Line> {
        let mut lines = vec![self.entry(index, index, "function", &entry.sums)];
        for edge in &entry.callers {
            lines.push(self.entry(index, edge.other, "caller", &edge.sums));
        }
        for edge in &entry.callees {
            lines.push(self.entry(index, edge.other, "callee", &edge.sums));
        }
        // The functions of a cycle have no entry of their own to refer to.
        for member in &entry.members {
            let sums = EdgeSums { self_: member.self_, total: member.self_, paths: 0 };
            let mut line = self.sums(index, index, "member", &sums);
            let function = &self.context.tree.functions[member.function];
            line.extend([function.name.clone(), function.image.to_string()]);
            lines.push(line);
        }
        lines
    }

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
