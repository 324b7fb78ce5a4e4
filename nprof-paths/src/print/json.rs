//! Paths, trees and graphs as one JSON object: what the heading of a table says, and the paths,
//! nodes or functions, one a line. A tree is a list of nodes that name their parents, for trees are
//! deeper than readers of nested JSON allow.

use std::io;

use nprof_report::machine;
use nprof_report::profile::Sum;
use serde_json::{Map, Value, json};

use crate::args::TOOL;
use crate::print::context::Input;
use crate::print::tree_text::{Kept, kept};
use crate::select::{Section, Shown};
use crate::tree::call_tree::At;
use crate::tree::cycles::Vertex;
use crate::tree::graph::{Chosen, Edge, Passing};

/// `paths` of all events.
pub(crate) fn paths(input: &Input<'_>, sections: &[Section]) -> io::Result<Vec<u8>> {
    let hidden: usize = sections.iter().map(|s| s.dropped.count + s.more.count).sum();
    let rows = sections.iter().flat_map(|section| {
        let of = |&leaf: &At| path(input, &section.shown, leaf);
        section.paths.iter().map(of)
    });
    object(input, "paths", hidden, rows)
}

fn path(input: &Input<'_>, shown: &Shown, leaf: At) -> Value {
    let tree = input.tree;
    let own = tree.nodes[leaf].own;
    let margin = input.args.options.confidence().margin(own.samples, shown.whole.samples);
    let mut stack: Vec<_> = tree.stack(leaf).map(|node| tree.function(node)).collect();
    stack.reverse();
    json!({
        "event": input.event_name(shown),
        "samples": own.samples,
        "weight": own.weight,
        "percent": own.percent_of(shown.whole),
        "margin": 100.0 * margin,
        "path": stack.iter().map(|function| &function.name[..]).collect::<Vec<_>>(),
        "images": stack.iter().map(|function| &function.image[..]).collect::<Vec<_>>(),
        "lines": lines(input, leaf),
    })
}

fn lines(input: &Input<'_>, leaf: At) -> Vec<Value> {
    let line = |(line, sum): &(String, Sum)| json!({ "line": line, "samples": sum.samples, "weight": sum.weight });
    input.tree.lines.get(&leaf).into_iter().flatten().map(line).collect()
}

/// `nodes` of all events.
pub(crate) fn tree(input: &Input<'_>) -> io::Result<Vec<u8>> {
    let choice = input.args.row_limits();
    let keep = |shown: &Shown| (*shown, kept(input.tree, shown, &choice));
    let kept: Vec<(Shown, Vec<Kept>)> = input.shown.iter().map(keep).collect();
    let all: usize = input.shown.iter().map(|shown| input.tree.in_order(shown.event).len()).sum();
    let hidden = all - kept.iter().map(|(_, nodes)| nodes.len()).sum::<usize>();
    let rows = kept.iter().flat_map(|(shown, nodes)| {
        let name = input.event_name(shown);
        nodes.iter().map(move |kept| {
            let node = &input.tree.nodes[kept.node];
            let function = input.tree.function(kept.node);
            json!({
                "event": name,
                "node": kept.number,
                "parent": kept.parent,
                "depth": kept.depth,
                "self_samples": node.own.samples,
                "total_samples": node.total.samples,
                "self": node.own.weight,
                "total": node.total.weight,
                "self_percent": node.own.percent_of(shown.whole),
                "total_percent": node.total.percent_of(shown.whole),
                "function": function.name,
                "image": function.image,
            })
        })
    });
    object(input, "nodes", hidden, rows)
}

/// `functions` of all events.
pub(crate) fn graph(input: &Input<'_>, graphs: &[Chosen]) -> io::Result<Vec<u8>> {
    let hidden: usize = graphs.iter().map(|chosen| chosen.dropped.count + chosen.more.count).sum();
    let rows = graphs
        .iter()
        .flat_map(|chosen| (0..chosen.count).map(move |entry| function(input, chosen, entry)));
    object(input, "functions", hidden, rows)
}

fn function(input: &Input<'_>, chosen: &Chosen, at: usize) -> Value {
    let entry = &chosen.graph.entries[at];
    let functions = &input.tree.functions;
    let mut value = vertex(input, chosen, at, &entry.passing);
    value.insert("event".to_owned(), input.event_name(&chosen.shown).into());
    let member = |&(member, own): &(usize, Sum)| {
        let function = &functions[member];
        json!({
            "function": function.name,
            "image": function.image,
            "self_samples": own.samples,
            "self": own.weight,
            "self_percent": own.percent_of(chosen.shown.whole),
        })
    };
    let cycle = match entry.vertex {
        Vertex::Function(_) => Value::Null,
        Vertex::Cycle(_) => entry.members.iter().map(member).collect(),
    };
    value.insert("cycle".to_owned(), cycle);
    let edge = |edge: &Edge| Value::Object(vertex(input, chosen, edge.other, &edge.passing));
    value.insert("callers".to_owned(), entry.callers.iter().map(edge).collect());
    value.insert("callees".to_owned(), entry.callees.iter().map(edge).collect());
    Value::Object(value)
}

fn vertex(input: &Input<'_>, chosen: &Chosen, at: usize, passing: &Passing) -> Map<String, Value> {
    let whole = chosen.shown.whole;
    let functions = &input.tree.functions;
    let members = [
        ("index", (at + 1).into()),
        ("function", chosen.graph.name(at, functions).into()),
        ("image", chosen.graph.image(at, functions).into()),
        ("self_samples", passing.own.samples.into()),
        ("total_samples", passing.total.samples.into()),
        ("self", passing.own.weight.into()),
        ("total", passing.total.weight.into()),
        ("self_percent", passing.own.percent_of(whole).into()),
        ("total_percent", passing.total.percent_of(whole).into()),
        ("paths", passing.paths.into()),
    ];
    members.map(|(name, value): (&str, Value)| (name.to_owned(), value)).into_iter().collect()
}

fn object(
    input: &Input<'_>,
    what: &str,
    hidden: usize,
    rows: impl Iterator<Item = Value>,
) -> io::Result<Vec<u8>> {
    let args = input.args;
    let mut object = Map::new();
    object.insert("tool".to_owned(), TOOL.into());
    object.insert("view".to_owned(), args.view.name().into());
    object.insert("confidence".to_owned(), args.options.confidence().percent().into());
    object.extend(input.summary.facts());
    object.insert("filters".to_owned(), args.rules().into());
    object.insert("rebase".to_owned(), args.options.rebase.into());
    let whole = |shown: &Shown| {
        let all = input.summary.events[shown.event].sum;
        json!({
            "event": input.event_name(shown),
            "samples": shown.whole.samples,
            "weight": shown.whole.weight,
            "uncounted_samples": shown.counted.rest_of(all).samples,
        })
    };
    object.insert("wholes".to_owned(), input.shown.iter().map(whole).collect());
    object.insert(format!("hidden_{what}"), hidden.into());
    machine::json(&object, what, rows)
}
