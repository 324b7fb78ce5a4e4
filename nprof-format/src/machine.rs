//! Reports for scripts: lines of fields, and a JSON object whose last member is a list of rows.

use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::layout::csv_field;

/// Lines of fields, the first one the names of the columns.
pub type Lines = Vec<Vec<String>>;

/// Tab-separated values. No field may hold a tab or a newline: names are escaped.
pub fn tsv(lines: &Lines) -> Vec<u8> {
    let mut out = String::new();
    for line in lines {
        out.push_str(&line.join("\t"));
        out.push('\n');
    }
    out.into_bytes()
}

/// Comma-separated values as RFC 4180 has them, lines ended by a newline. A field that a
/// spreadsheet would take for a formula begins with an apostrophe.
///
/// # Errors
///
/// When the lines have not all as many fields.
pub fn csv(lines: &Lines) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for line in lines {
        writer.write_record(line.iter().map(|field| csv_field(field).into_owned()))?;
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

/// One object: `members`, then the rows, each on a line of its own. They are written one by one
/// and need not all be held as values.
///
/// # Errors
///
/// When a value cannot be spelled.
pub fn json(
    members: &Map<String, Value>,
    name: &str,
    rows: impl Iterator<Item = Value>,
) -> io::Result<Vec<u8>> {
    let mut out = serde_json::to_vec(members)?;
    out.pop();
    write!(out, ",\"{name}\":[")?;
    let mut separator = "\n";
    for row in rows {
        out.extend_from_slice(separator.as_bytes());
        serde_json::to_writer(&mut out, &row)?;
        separator = ",\n";
    }
    out.extend_from_slice(b"\n]}\n");
    Ok(out)
}
