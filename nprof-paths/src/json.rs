//! Paths and trees as one JSON object: what the heading of a table says, and the paths or
//! nodes, one a line. A tree is a list of nodes that name their parents, for trees are deeper
//! than readers of nested JSON allow.

use anyhow::Context;
use nprof_format::escape::escaped;
use nprof_format::margin::Confidence;
use nprof_format::profile::Sum;
use nprof_format::summary::Summary;
use serde_json::{Map, Value, json};

use crate::args::Choice;
use crate::outline::{Kept, kept};
use crate::select::{Section, percent};
use crate::tree::Tree;

/// `tool`, `view`, the facts of the streams, `hidden_paths`, `paths`.
pub(crate) fn paths(
    tree: &Tree,
    sections: &[Section],
    summary: &Summary,
) -> anyhow::Result<Vec<u8>> {
    let hidden: usize = sections.iter().map(|s| s.dropped.paths + s.more.paths).sum();
    let rows = sections.iter().flat_map(|section| {
        let event = &summary.events[section.event];
        section.paths.iter().map(move |&leaf| {
            let own = tree.nodes[leaf].own;
            let margin = Confidence::default().margin(own.samples, event.sum.samples);
            let mut stack: Vec<_> = tree.stack(leaf).map(|node| tree.function(node)).collect();
            stack.reverse();
            json!({
                "event": escaped(&event.event.name),
                "samples": own.samples,
                "weight": own.weight,
                "percent": percent(own, event.sum),
                "margin": 100.0 * margin,
                "path": stack.iter().map(|function| &function.name[..]).collect::<Vec<_>>(),
                "images": stack.iter().map(|function| &function.image[..]).collect::<Vec<_>>(),
                "lines": lines(tree, leaf),
            })
        })
    });
    object(summary, "paths", hidden, rows)
}

fn lines(tree: &Tree, leaf: usize) -> Vec<Value> {
    let line = |(line, sum): &(String, Sum)| json!({ "line": line, "samples": sum.samples, "weight": sum.weight });
    tree.lines.get(&leaf).into_iter().flatten().map(line).collect()
}

/// `tool`, `view`, the facts of the streams, `hidden_nodes`, `nodes`.
pub(crate) fn tree(
    tree: &Tree,
    events: &[usize],
    summary: &Summary,
    choice: &Choice,
) -> anyhow::Result<Vec<u8>> {
    let whole = |event: usize| summary.events[event].sum;
    let keep = |&event: &usize| (event, kept(tree, event, whole(event), choice));
    let kept: Vec<(usize, Vec<Kept>)> = events.iter().map(keep).collect();
    let all: usize = events.iter().map(|&event| tree.in_order(event).len()).sum();
    let hidden = all - kept.iter().map(|(_, nodes)| nodes.len()).sum::<usize>();
    let rows = kept.iter().flat_map(|(event, nodes)| {
        let name = escaped(&summary.events[*event].event.name);
        nodes.iter().map(move |kept| {
            let node = &tree.nodes[kept.node];
            let function = tree.function(kept.node);
            json!({
                "event": name,
                "node": kept.number,
                "parent": kept.parent,
                "depth": kept.depth,
                "self_samples": node.own.samples,
                "total_samples": node.total.samples,
                "self": node.own.weight,
                "total": node.total.weight,
                "self_percent": percent(node.own, whole(*event)),
                "total_percent": percent(node.total, whole(*event)),
                "function": function.name,
                "image": function.image,
            })
        })
    });
    object(summary, "nodes", hidden, rows)
}

fn object(
    summary: &Summary,
    what: &str,
    hidden: usize,
    rows: impl Iterator<Item = Value>,
) -> anyhow::Result<Vec<u8>> {
    let mut object = Map::new();
    object.insert("tool".to_owned(), crate::TOOL.into());
    object.insert("view".to_owned(), if what == "nodes" { "tree" } else { "paths" }.into());
    object.extend(summary.facts());
    object.insert(format!("hidden_{what}"), hidden.into());
    let mut out = serde_json::to_vec(&object).context("writing JSON")?;
    // The rows go into the object as its last member; written one by one, they need not all
    // be held as values.
    out.pop();
    out.extend_from_slice(format!(",\"{what}\":[").as_bytes());
    let mut separator = "\n";
    for row in rows {
        out.extend_from_slice(separator.as_bytes());
        serde_json::to_writer(&mut out, &row).context("writing JSON")?;
        separator = ",\n";
    }
    out.extend_from_slice(b"\n]}\n");
    Ok(out)
}
