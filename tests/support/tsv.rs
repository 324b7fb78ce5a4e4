//! A report's machine form: tab-separated values under a line of column names.

use std::collections::HashMap;

/// A row of a report.
#[derive(Clone, Debug)]
pub struct Row(HashMap<String, String>);

/// Parses a report in `--format tsv`.
///
/// # Panics
///
/// If the number of fields of a line differs from the number of columns.
pub fn rows(tsv: &str) -> Vec<Row> {
    let mut lines = tsv.lines().map(|line| line.split('\t').map(str::to_owned));
    let columns: Vec<String> = lines.next().map(Iterator::collect).unwrap_or_default();
    lines
        .map(|fields| {
            let fields: Vec<String> = fields.collect();
            assert_eq!(fields.len(), columns.len(), "{fields:?}");
            Row(columns.iter().cloned().zip(fields).collect())
        })
        .collect()
}

impl Row {
    /// Returns a field.
    ///
    /// # Panics
    ///
    /// If there is no such column.
    #[track_caller]
    pub fn text(&self, column: &str) -> &str {
        match self.0.get(column) {
            Some(field) => field,
            None => panic!("no column {column} in {:?}", self.0.keys()),
        }
    }

    /// Returns a field that is a number.
    ///
    /// # Panics
    ///
    /// If there is no such column, or the field is not a number.
    #[track_caller]
    pub fn number(&self, column: &str) -> f64 {
        let field = self.text(column);
        field.parse().unwrap_or_else(|_| panic!("{column}: {field} is not a number"))
    }
}
