//! Rows of named values: as tab- or comma-separated lines, and as objects.

use std::io::{self, Write};

use nprof_format::layout::csv_field;
use serde_json::{Map, Value, json};

/// Prints a line of column names, then a row a line, separated by tabs.
pub(super) fn print_tsv(
    columns: &[String],
    rows: &[Vec<Value>],
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{}", columns.join("\t"))?;
    for row in rows {
        writeln!(out, "{}", row.iter().map(text).collect::<Vec<_>>().join("\t"))?;
    }
    Ok(())
}

/// Prints the same as CSV (RFC 4180). No text is taken for a formula by a spreadsheet.
pub(super) fn print_csv(
    columns: &[String],
    rows: &[Vec<Value>],
    out: &mut impl Write,
) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(columns)?;
    for row in rows {
        csv.write_record(row.iter().map(|value| match value {
            Value::String(name) => csv_field(name).into_owned(),
            value => text(value),
        }))?;
    }
    csv.flush()
}

/// An object a row.
pub(super) fn objects(columns: &[String], rows: Vec<Vec<Value>>) -> Vec<Map<String, Value>> {
    rows.into_iter().map(|row| columns.iter().cloned().zip(row).collect()).collect()
}

/// A share, or a difference of such, in points, to six digits behind the point.
pub(super) fn points(share: f64) -> Value {
    json!((share * 1e8).round() / 1e6 + 0.0)
}

/// A number to six significant digits.
pub(super) fn significant(number: f64) -> Value {
    json!(format!("{number:.5e}").parse::<f64>().unwrap_or(number))
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
