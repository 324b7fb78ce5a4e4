//! Paths and trees for scripts: a line each, after a line of column names, in full precision.
//! Columns are only ever added, at the end. Names are escaped, so that no field holds a tab or a
//! newline.

use std::borrow::Cow;

use anyhow::Context;
use nprof_format::escape::escaped;
use nprof_format::layout::csv_field;
use nprof_format::margin::Confidence;
use nprof_format::summary::Summary;

use crate::args::Choice;
use crate::folded;
use crate::outline::kept;
use crate::select::{Section, percent};
use crate::tree::Tree;

/// Lines of fields, the first one column names.
type Lines = Vec<Vec<String>>;

/// Tab-separated values.
pub(crate) fn tsv(lines: &Lines) -> Vec<u8> {
    let mut out = String::new();
    for line in lines {
        out.push_str(&line.join("\t"));
        out.push('\n');
    }
    out.into_bytes()
}

/// Comma-separated values as RFC 4180 has them, lines ended by a newline.
pub(crate) fn csv(lines: &Lines) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for line in lines {
        let fields = line.iter().map(|field| csv_field(field));
        writer.write_record(fields.map(Cow::into_owned)).context("writing CSV")?;
    }
    writer.into_inner().context("writing CSV")
}

fn head(columns: &str) -> Lines {
    vec![columns.split(' ').map(str::to_owned).collect()]
}

/// A line per path.
pub(crate) fn paths(tree: &Tree, sections: &[Section], summary: &Summary) -> Lines {
    let mut lines = head("event samples weight percent margin depth leaf image path");
    for section in sections {
        let event = &summary.events[section.event];
        for &leaf in &section.paths {
            let own = tree.nodes[leaf].own;
            let margin = Confidence::default().margin(own.samples, event.sum.samples);
            let function = tree.function(leaf);
            lines.push(vec![
                escaped(&event.event.name),
                own.samples.to_string(),
                own.weight.to_string(),
                percent(own, event.sum).to_string(),
                (100.0 * margin).to_string(),
                tree.stack(leaf).count().to_string(),
                function.name.clone(),
                function.image.clone(),
                folded::stack(tree, leaf),
            ]);
        }
    }
    lines
}

/// A line per node, callers first.
pub(crate) fn tree(tree: &Tree, events: &[usize], summary: &Summary, choice: &Choice) -> Lines {
    let mut lines = head(
        "event node parent depth self_samples total_samples self total self_percent \
         total_percent function image",
    );
    for &event in events {
        let (name, whole) = (escaped(&summary.events[event].event.name), summary.events[event].sum);
        for kept in kept(tree, event, whole, choice) {
            let node = &tree.nodes[kept.node];
            let function = tree.function(kept.node);
            lines.push(vec![
                name.clone(),
                kept.number.to_string(),
                kept.parent.to_string(),
                kept.depth.to_string(),
                node.own.samples.to_string(),
                node.total.samples.to_string(),
                node.own.weight.to_string(),
                node.total.weight.to_string(),
                percent(node.own, whole).to_string(),
                percent(node.total, whole).to_string(),
                function.name.clone(),
                function.image.clone(),
            ]);
        }
    }
    lines
}
