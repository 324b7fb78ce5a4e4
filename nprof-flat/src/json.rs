//! The report as one JSON object: what the heading of a table says, and the rows, one a line.

use anyhow::Context;
use nprof_format::escape::escaped;
use nprof_format::margin::Confidence;
use nprof_format::summary::Summary;
use serde_json::{Map, Value, json};

use crate::key::Column;
use crate::select::{Section, percent};

/// `tool`, `keys`, `confidence`, the facts of the streams, `hidden_rows`, `rows`. Each row has
/// the members a tsv file has as columns.
pub(crate) fn print(
    columns: &[Column],
    sections: &[Section],
    summary: &Summary,
    confidence: Confidence,
) -> anyhow::Result<Vec<u8>> {
    let hidden: usize = sections.iter().map(|s| s.dropped.rows + s.more.rows).sum();
    let mut object = Map::new();
    object.insert("tool".to_owned(), crate::TOOL.into());
    object.insert("keys".to_owned(), columns.iter().map(|column| column.name()).collect());
    object.insert("confidence".to_owned(), confidence.percent().into());
    object.extend(summary.facts());
    object.insert("hidden_rows".to_owned(), hidden.into());
    let mut out = serde_json::to_vec(&object).context("writing JSON")?;
    // The rows go into the object as its last member; written one by one, they need not all
    // be held as values.
    out.pop();
    out.extend_from_slice(b",\"rows\":[");
    let mut separator = "\n";
    for section in sections {
        for row in rows(columns, section, summary, confidence) {
            out.extend_from_slice(separator.as_bytes());
            serde_json::to_writer(&mut out, &row).context("writing JSON")?;
            separator = ",\n";
        }
    }
    out.extend_from_slice(b"\n]}\n");
    Ok(out)
}

fn rows(
    columns: &[Column],
    section: &Section,
    summary: &Summary,
    confidence: Confidence,
) -> impl Iterator<Item = Map<String, Value>> {
    let event = &summary.events[section.event];
    section.rows.iter().map(move |row| {
        let margin = |samples| 100.0 * confidence.margin(samples, event.sum.samples);
        let mut object = Map::new();
        object.insert("event".to_owned(), escaped(&event.event.name).into());
        for (column, name) in columns.iter().zip(&row.names) {
            object.insert(column.name().to_owned(), json!(name));
        }
        object.insert("self_samples".to_owned(), row.own.samples.into());
        object.insert("total_samples".to_owned(), row.total.samples.into());
        object.insert("self".to_owned(), row.own.weight.into());
        object.insert("total".to_owned(), row.total.weight.into());
        object.insert("self_percent".to_owned(), percent(row.own, event.sum).into());
        object.insert("self_margin".to_owned(), margin(row.own.samples).into());
        object.insert("total_percent".to_owned(), percent(row.total, event.sum).into());
        object.insert("total_margin".to_owned(), margin(row.total.samples).into());
        object
    })
}
