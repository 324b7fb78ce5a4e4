//! The report for scripts: a row a line, after a line of column names, in full precision.
//!
//! Columns are only ever added, at the end. In CSV a field that a spreadsheet would take for a
//! formula begins with an apostrophe.

use std::borrow::Cow;

use anyhow::Context;
use nprof_format::escape::escaped;
use nprof_format::layout::csv_field;
use nprof_format::margin::Confidence;
use nprof_format::summary::Summary;

use crate::key::Column;
use crate::select::{Section, percent};

/// The columns of numbers, after the event and the names.
pub(crate) const NUMBERS: [&str; 8] = [
    "self_samples",
    "total_samples",
    "self",
    "total",
    "self_percent",
    "self_margin",
    "total_percent",
    "total_margin",
];

/// Tab-separated values. Names are escaped, so that no field holds a tab or a newline.
pub(crate) fn tsv(
    columns: &[Column],
    sections: &[Section],
    summary: &Summary,
    confidence: Confidence,
) -> Vec<u8> {
    let mut out = String::new();
    for line in records(columns, sections, summary, confidence) {
        out.push_str(&line.join("\t"));
        out.push('\n');
    }
    out.into_bytes()
}

/// Comma-separated values as RFC 4180 has them, lines ended by a newline.
pub(crate) fn csv(
    columns: &[Column],
    sections: &[Section],
    summary: &Summary,
    confidence: Confidence,
) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records(columns, sections, summary, confidence) {
        let fields = record.iter().map(|field| csv_field(field));
        writer.write_record(fields.map(Cow::into_owned)).context("writing CSV")?;
    }
    writer.into_inner().context("writing CSV")
}

fn records(
    columns: &[Column],
    sections: &[Section],
    summary: &Summary,
    confidence: Confidence,
) -> Vec<Vec<String>> {
    let names = columns.iter().map(|column| column.name());
    let head = ["event"].into_iter().chain(names).chain(NUMBERS);
    let mut records = vec![head.map(str::to_owned).collect()];
    for section in sections {
        let event = &summary.events[section.event];
        for row in &section.rows {
            let mut record = vec![escaped(&event.event.name)];
            record.extend(row.names.iter().cloned());
            record.push(row.own.samples.to_string());
            record.push(row.total.samples.to_string());
            record.push(row.own.weight.to_string());
            record.push(row.total.weight.to_string());
            for sum in [row.own, row.total] {
                let margin = 100.0 * confidence.margin(sum.samples, event.sum.samples);
                record.push(percent(sum, event.sum).to_string());
                record.push(margin.to_string());
            }
            records.push(record);
        }
    }
    records
}
