//! Values of rows, as the lines of tsv and csv and the objects of JSON have them.

use std::io;

use nprof_report::machine::{self, Lines};
use nprof_report::summary::Summary;
use serde_json::{Map, Value, json};

use crate::compare::observed::SideTotals;
use crate::input::side::Side;

/// The names of the columns, then a row a line.
pub(super) fn lines(columns: Vec<String>, rows: Vec<Vec<Value>>) -> Lines {
    let rows = rows.into_iter().map(|row| row.iter().map(text).collect());
    std::iter::once(columns).chain(rows).collect()
}

/// The object of these members, and of one for each row.
pub(super) fn json(
    members: &Value,
    columns: &[String],
    rows: Vec<Vec<Value>>,
) -> io::Result<Vec<u8>> {
    let object = |row: Vec<Value>| Value::Object(columns.iter().cloned().zip(row).collect());
    let members = members.as_object().cloned().unwrap_or_default();
    machine::json(&members, "rows", rows.into_iter().map(object))
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

pub(super) fn side(side: &Side, whole: SideTotals) -> Value {
    let recordings: Vec<Map<String, Value>> = side.summaries().map(Summary::facts).collect();
    json!({
        "runs": whole.runs,
        "samples": whole.sum.samples,
        "weight": whole.sum.weight,
        "recordings": recordings,
    })
}
