//! Reports for scripts: lines of fields, and a JSON object with the list of rows as its last member.

use std::io::{self, Write};

use csv::{Terminator, WriterBuilder};
use serde_json::{Map, Value};

use crate::render::layout::csv_field;

/// Lines of fields, the first one the names of the columns.
pub type Lines = Vec<Vec<String>>;

/// Returns tab-separated values. Fields must not contain tabs or newlines; names are escaped.
pub fn tsv(lines: &Lines) -> Vec<u8> {
    let mut out = String::new();
    for line in lines {
        out.push_str(&line.join("\t"));
        out.push('\n');
    }
    out.into_bytes()
}

/// Returns comma-separated values by RFC 4180, with its line ends (CR LF). Fields that a spreadsheet
/// would execute begin with an apostrophe.
///
/// # Errors
///
/// If the lines differ in the number of fields.
pub fn csv(lines: &Lines) -> io::Result<Vec<u8>> {
    let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
    for line in lines {
        writer.write_record(line.iter().map(|field| csv_field(field).into_owned()))?;
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

/// Returns one object: `members`, then the rows under `name`, each on its own line. Rows are written
/// one by one, so that a million of them are never in memory as JSON values.
///
/// # Errors
///
/// If a value cannot be serialized.
pub fn json(
    members: &Map<String, Value>,
    name: &str,
    rows: impl Iterator<Item = Value>,
) -> io::Result<Vec<u8>> {
    let mut out = serde_json::to_vec(members)?;
    // Reopen the object: drop its closing brace.
    // The closing brace: the rows are written as the last member.
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
    fn csv_follows_rfc_4180_and_escapes_formulas() {
        let lines = vec![
            vec!["a,b".to_owned(), "=1".to_owned()],
            vec!["\"".to_owned(), "-1.5e-3".to_owned()],
        ];
        assert_eq!(csv(&lines).unwrap(), b"\"a,b\",'=1\r\n\"\"\"\",-1.5e-3\r\n");
        assert!(csv(&vec![vec![], vec![String::new()]]).is_err());
    }

    #[test]
    fn json_rows_are_the_last_member() {
        let members = Map::from_iter([("n".to_owned(), 1.into())]);
        let rows = [1, 2].map(Value::from);
        let text = json(&members, "rows", rows.into_iter()).unwrap();
        let object: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(object, serde_json::json!({"n": 1, "rows": [1, 2]}));
        assert_eq!(text, b"{\"n\":1,\"rows\":[\n1,\n2\n]}\n");
    }
}
