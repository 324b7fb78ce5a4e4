//! Reports for scripts: lines of fields, and a JSON object whose last member is a list of rows.

use std::io::{self, Write};

use csv::{Terminator, WriterBuilder};
use serde_json::{Map, Value};

use crate::render::layout::csv_field;

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

/// Comma-separated values as RFC 4180 has them, its line ends (CR LF) included. A field that a
/// spreadsheet would take for a formula begins with an apostrophe.
///
/// # Errors
///
/// When the lines have not all as many fields.
pub fn csv(lines: &Lines) -> io::Result<Vec<u8>> {
    let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_is_that_of_the_standard_and_runs_no_formula() {
        let lines = vec![
            vec!["a,b".to_owned(), "=1".to_owned()],
            vec!["\"".to_owned(), "-1.5e-3".to_owned()],
        ];
        assert_eq!(csv(&lines).unwrap(), b"\"a,b\",'=1\r\n\"\"\"\",-1.5e-3\r\n");
        assert!(csv(&vec![vec![], vec![String::new()]]).is_err());
    }

    #[test]
    fn rows_are_the_last_member() {
        let members = Map::from_iter([("n".to_owned(), 1.into())]);
        let rows = [1, 2].map(Value::from);
        let text = json(&members, "rows", rows.into_iter()).unwrap();
        let object: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(object, serde_json::json!({"n": 1, "rows": [1, 2]}));
        assert_eq!(text, b"{\"n\":1,\"rows\":[\n1,\n2\n]}\n");
    }
}
