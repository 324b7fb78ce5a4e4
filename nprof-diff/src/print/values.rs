//! Values for programs: cells of tsv and csv, members of JSON objects.

use std::io::{self, Write};

use nprof_report::machine_formats::{self, Line};
use nprof_report::summary::Summary;
use serde_json::{Map, Value, json};

use crate::compare::observed::SideTotals;
use crate::input::event::{AmountUnit, ComparedEvent};
use crate::input::row_kind::RowKind;
use crate::input::side::Side;

/// Returns the names of the columns, then one line per row.
pub(super) fn lines(
    columns: Vec<String>,
    rows: impl Iterator<Item = Vec<Value>>,
) -> impl Iterator<Item = Line> {
    let rows = rows.map(|row| row.iter().map(text).collect());
    std::iter::once(columns).chain(rows)
}

/// Writes the object of a report: the members that all reports begin with, then `members`, then one
/// object per row under `rows`.
pub(super) fn json(
    report: &str,
    row_kind: RowKind,
    event: Option<&ComparedEvent>,
    members: Value,
    columns: &[String],
    rows: impl Iterator<Item = Vec<Value>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut object = Map::new();
    object.insert("report".to_owned(), report.into());
    object.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
    object.insert("by".to_owned(), row_kind.name().into());
    object.insert("event".to_owned(), event.map(ComparedEvent::name).into());
    object.insert("unit".to_owned(), event.map(ComparedEvent::unit).into());
    if let Value::Object(members) = members {
        object.extend(members);
    }
    let rows = rows.map(|row| Value::Object(columns.iter().cloned().zip(row).collect()));
    machine_formats::json(&object, "rows", rows, out)
}

/// Returns a share in per cent, or a difference of shares in points, to six decimals.
pub(super) fn points(share: f64) -> Value {
    // Adding 0 turns -0 into 0.
    json!((share * 1e8).round() / 1e6 + 0.0)
}

/// Returns an amount of a run: times and bytes as whole numbers, counts to three decimals.
pub(super) fn amount(unit: AmountUnit, amount: f64) -> Value {
    match unit {
        // Fractions of a nanosecond and of a byte are noise.
        AmountUnit::Ns | AmountUnit::Bytes => json!(amount.round() as i64),
        // A mean over runs, that may be small. Adding 0 turns -0 into 0.
        AmountUnit::Count => json!((amount * 1e3).round() / 1e3 + 0.0),
    }
}

/// Returns a number to six significant digits.
pub(super) fn significant(number: f64) -> Value {
    json!(format!("{number:.5e}").parse::<f64>().unwrap_or(number))
}

/// Returns the object of a side.
pub(super) fn side(side: &Side, totals: SideTotals) -> Value {
    let streams: Vec<Map<String, Value>> = side.summaries().map(Summary::facts).collect();
    json!({
        "runs": totals.runs,
        "samples": totals.sum.samples,
        "weight": totals.sum.weight,
        "streams": streams,
    })
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
