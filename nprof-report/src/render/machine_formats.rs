//! Reports for scripts: lines of fields, and a JSON object with the list of rows as its last member.
//!
//! Rows are written one by one as an iterator returns them: the rows of a report with their names
//! repeated can be many times larger than the report's own tables.

use std::io::{self, Write};

use csv::{Terminator, WriterBuilder};
use serde_json::{Map, Value};

use crate::render::layout::csv_field;

/// A line of fields.
pub type Line = Vec<String>;

/// Writes tab-separated values; the first line has the names of the columns. Fields must not contain
/// tabs or newlines; names are escaped.
///
/// # Errors
///
/// The error of the writer.
pub fn tsv(lines: impl Iterator<Item = Line>, out: &mut dyn Write) -> io::Result<()> {
    for line in lines {
        writeln!(out, "{}", line.join("\t"))?;
    }
    Ok(())
}

/// Writes comma-separated values by RFC 4180, with its line ends (CR LF). Fields that a spreadsheet
/// would execute begin with an apostrophe.
///
/// # Errors
///
/// The error of the writer, or if the lines differ in the number of fields.
pub fn csv(lines: impl Iterator<Item = Line>, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(out);
    for line in lines {
        let written = writer.write_record(line.iter().map(|field| csv_field(field).into_owned()));
        // A conversion by `?` loses the kind of the error, and with it that a pipe was closed.
        written.map_err(|error| match error.into_kind() {
            csv::ErrorKind::Io(error) => error,
            other => io::Error::other(format!("{other:?}")),
        })?;
    }
    writer.flush()
}

/// Writes one object: `members`, then the rows under `name`, each on its own line.
///
/// # Errors
///
/// The error of the writer, or if a value cannot be serialized.
pub fn json(
    members: &Map<String, Value>,
    name: &str,
    rows: impl Iterator<Item = Value>,
    mut out: &mut dyn Write,
) -> io::Result<()> {
    let mut members = serde_json::to_vec(members)?;
    // Reopen the object: drop its closing brace.
    // The closing brace: the rows are written as the last member.
    members.pop();
    out.write_all(&members)?;
    write!(out, ",\"{name}\":[")?;
    let mut separator = "\n";
    for row in rows {
        out.write_all(separator.as_bytes())?;
        serde_json::to_writer(&mut out, &row)?;
        separator = ",\n";
    }
    out.write_all(b"\n]}\n")
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
        let mut out = Vec::new();
        csv(lines.into_iter(), &mut out).unwrap();
        assert_eq!(out, b"\"a,b\",'=1\r\n\"\"\"\",-1.5e-3\r\n");
        assert!(csv([vec![], vec![String::new()]].into_iter(), &mut out).is_err());
    }

    #[test]
    fn closed_pipe_stays_one_in_every_format() {
        /// A pipe without a reader.
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let lines = || (0..10_000).map(|_| vec!["field".to_owned()]);
        let rows = (0..10_000).map(Value::from);
        let errors = [
            csv(lines(), &mut Closed),
            tsv(lines(), &mut Closed),
            json(&Map::new(), "rows", rows, &mut Closed),
        ];
        for error in errors {
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        }
    }

    #[test]
    fn json_rows_are_the_last_member() {
        let members = Map::from_iter([("n".to_owned(), 1.into())]);
        let rows = [1, 2].map(Value::from);
        let mut text = Vec::new();
        json(&members, "rows", rows.into_iter(), &mut text).unwrap();
        let object: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(object, serde_json::json!({"n": 1, "rows": [1, 2]}));
        assert_eq!(text, b"{\"n\":1,\"rows\":[\n1,\n2\n]}\n");
    }
}
