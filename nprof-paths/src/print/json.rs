//! Paths, trees and graphs as one JSON object: the facts of a table's heading, then one row per
//! line. A tree is a list of nodes that name their parents: call trees are deeper than parsers of
//! nested JSON allow.

use nprof_report::profile::{ReportedEvent, Sum};
use nprof_report::ratio::Ratio;
use std::io::{self, Write};

use nprof_report::machine_formats;
use serde_json::{Map, Value, json};

use crate::args::TOOL;
use crate::print::context::PrintContext;
use crate::rows::graph::GraphRows;
use crate::rows::paths::PathRows;
use crate::rows::ratios::RatioPaths;
use crate::rows::tree::{TreeRow, TreeRows};
use crate::tree::call_tree::{LineSum, NodeIndex};
use crate::tree::cycles::Vertex;
use crate::tree::graph::{Edge, EdgeSums, Member};

/// Prints the paths of all events, as `paths`.
pub(crate) fn paths(
    context: &PrintContext<'_>,
    events: &[PathRows],
    out: &mut dyn Write,
) -> io::Result<()> {
    let hidden: usize = events.iter().map(|rows| rows.dropped.rows + rows.not_shown.rows).sum();
    let rows = events.iter().flat_map(|rows| {
        let self_ = |leaf: NodeIndex| context.tree.nodes[leaf].self_;
        rows.paths.iter().map(move |&leaf| path(context, &rows.event, leaf, self_(leaf)))
    });
    object(context, "paths", hidden, rows, out)
}

/// Prints the paths of the divisor, as `paths`.
pub(crate) fn ratios(
    context: &PrintContext<'_>,
    events: &[RatioPaths],
    out: &mut dyn Write,
) -> io::Result<()> {
    let hidden: usize = events.iter().map(|rows| rows.dropped.rows + rows.not_shown.rows).sum();
    let rows = events.iter().flat_map(|rows| {
        rows.paths.iter().map(|path| {
            let self_ = path.node.map_or(Sum::default(), |node| context.tree.nodes[node].self_);
            let mut value = self::path(context, &rows.event, path.leaf, self_);
            value["total"] = path.ratio.numerator.weight.into();
            add_ratio(context, &path.ratio, &mut value);
            value
        })
    });
    object(context, "paths", hidden, rows, out)
}

/// Adds the divisor, the ratio and its margin to a row.
fn add_ratio(context: &PrintContext<'_>, ratio: &Ratio, row: &mut Value) {
    row["per"] = ratio.denominator.weight.into();
    row["ratio"] = ratio.value().into();
    row["ratio_margin"] = ratio.margin(context.args.options.confidence()).into();
}

/// Returns a path with these samples.
fn path(context: &PrintContext<'_>, event: &ReportedEvent, leaf: NodeIndex, self_: Sum) -> Value {
    let tree = context.tree;
    let mut stack: Vec<_> = tree.stack(leaf).map(|node| tree.function(node)).collect();
    // Outermost function first, as in folded stacks.
    stack.reverse();
    let lines = tree.lines(leaf).iter();
    json!({
        "event": context.event_name(event),
        "samples": self_.samples,
        "weight": self_.weight,
        "percent": self_.percent_of(event.whole),
        "margin": context.margin(self_, event),
        "path": stack.iter().map(|function| &function.name[..]).collect::<Vec<_>>(),
        "images": stack.iter().map(|function| &*function.image).collect::<Vec<_>>(),
        "lines": lines.map(line).collect::<Vec<_>>(),
    })
}

fn line(line: &LineSum) -> Value {
    json!({ "line": &*line.line, "samples": line.sum.samples, "weight": line.sum.weight })
}

/// Prints the nodes of all events, as `nodes`.
pub(crate) fn tree(
    context: &PrintContext<'_>,
    events: &[TreeRows],
    out: &mut dyn Write,
) -> io::Result<()> {
    let hidden =
        |rows: &TreeRows| context.tree.depth_first(rows.event.event).len() - rows.rows.len();
    let hidden = events.iter().map(hidden).sum();
    let rows = events.iter().flat_map(|rows| {
        let name = context.event_name(&rows.event);
        let ratios = context.ratios(&rows.event);
        let nodes = rows.rows.iter().enumerate();
        nodes.map(move |(index, row)| {
            let mut value = node(context, rows, &name, index, row);
            if let Some(ratios) = &ratios {
                add_ratio(context, &ratios.of(std::iter::once(row.node)), &mut value);
            }
            value
        })
    });
    object(context, "nodes", hidden, rows, out)
}

fn node(
    context: &PrintContext<'_>,
    rows: &TreeRows,
    event: &str,
    index: usize,
    row: &TreeRow,
) -> Value {
    let node = &context.tree.nodes[row.node];
    let function = context.tree.function(row.node);
    json!({
        "event": event,
        "node": index + 1,
        "parent": row.parent.map_or(0, |parent| parent + 1),
        "depth": row.depth,
        "self_samples": node.self_.samples,
        "total_samples": node.total.samples,
        "self": node.self_.weight,
        "total": node.total.weight,
        "self_percent": node.self_.percent_of(rows.event.whole),
        "total_percent": node.total.percent_of(rows.event.whole),
        "function": function.name,
        "image": &*function.image,
    })
}

/// Prints the functions of all events, as `functions`.
pub(crate) fn graph(
    context: &PrintContext<'_>,
    events: &[GraphRows],
    out: &mut dyn Write,
) -> io::Result<()> {
    let hidden: usize = events.iter().map(|rows| rows.dropped.rows + rows.not_shown.rows).sum();
    let rows = events
        .iter()
        .flat_map(|rows| (0..rows.reported).map(move |index| function(context, rows, index)));
    object(context, "functions", hidden, rows, out)
}

/// Returns an entry of the graph with its callers and callees.
fn function(context: &PrintContext<'_>, rows: &GraphRows, index: usize) -> Value {
    let entry = &rows.graph.entries[index];
    let mut value = vertex(context, rows, index, &entry.sums);
    value.insert("event".to_owned(), context.event_name(&rows.event).into());
    let cycle = match entry.vertex {
        // Every function has the member, so that readers need no test for it.
        Vertex::Function(_) => Value::Null,
        Vertex::Cycle(_) => entry.members.iter().map(|of| member(context, rows, of)).collect(),
    };
    value.insert("cycle".to_owned(), cycle);
    let edge = |edge: &Edge| Value::Object(vertex(context, rows, edge.other, &edge.sums));
    value.insert("callers".to_owned(), entry.callers.iter().map(edge).collect());
    value.insert("callees".to_owned(), entry.callees.iter().map(edge).collect());
    Value::Object(value)
}

/// Returns a function of a cycle.
fn member(context: &PrintContext<'_>, rows: &GraphRows, member: &Member) -> Value {
    let function = &context.tree.functions[member.function];
    json!({
        "function": function.name,
        "image": &*function.image,
        "self_samples": member.self_.samples,
        "self": member.self_.weight,
        "self_percent": member.self_.percent_of(rows.event.whole),
    })
}

/// Returns the members that entries, callers and callees have in common.
fn vertex(
    context: &PrintContext<'_>,
    rows: &GraphRows,
    index: usize,
    sums: &EdgeSums,
) -> Map<String, Value> {
    let whole = rows.event.whole;
    let functions = &context.tree.functions;
    let members = [
        ("index", (index + 1).into()),
        ("function", rows.graph.name(index, functions).into()),
        ("image", rows.graph.image(index, functions).into()),
        ("self_samples", sums.self_.samples.into()),
        ("total_samples", sums.total.samples.into()),
        ("self", sums.self_.weight.into()),
        ("total", sums.total.weight.into()),
        ("self_percent", sums.self_.percent_of(whole).into()),
        ("total_percent", sums.total.percent_of(whole).into()),
        ("paths", sums.paths.into()),
    ];
    members.map(|(name, value): (&str, Value)| (name.to_owned(), value)).into_iter().collect()
}

/// Prints the object: the facts of the streams, the options, and the rows as member `name`.
fn object(
    context: &PrintContext<'_>,
    name: &str,
    hidden: usize,
    rows: impl Iterator<Item = Value>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let args = context.args;
    let mut object = Map::new();
    object.insert("tool".to_owned(), TOOL.into());
    object.insert("view".to_owned(), args.view.name().into());
    object.extend(args.options.facts(args.rules(), context.summary, context.events));
    if let Some(per) = context.per {
        object.insert("per".to_owned(), context.summary.event_name(per.event).into());
    }
    object.insert(format!("hidden_{name}"), hidden.into());
    if let Some(folded) = context.summary.folded(context.events, context.folded) {
        object.insert("folded".to_owned(), folded);
    }
    machine_formats::json(&object, name, rows, out)
}
