//! Rows as lines of fields, for TSV and CSV: a line of column names, then a line per row and event
//! in full precision. New columns are only ever added, at the end.

use nprof_report::machine_formats::Line;
use serde_json::Value;

use crate::print::context::PrintContext;

/// Returns a line per row and event.
pub(crate) fn lines(context: &PrintContext<'_>) -> impl Iterator<Item = Line> {
    let names = context.columns.iter().map(|column| column.name());
    let header = ["event"].into_iter().chain(names).chain(context.number_names());
    let rows = context.rows_in_events().map(|found| {
        let mut line = vec![context.event_name(found.event)];
        line.extend(found.row.names.iter().map(ToString::to_string));
        line.extend(context.numbers(found).iter().map(|number| match number {
            Value::Null => String::new(),
            number => number.to_string(),
        }));
        line
    });
    std::iter::once(header.map(str::to_owned).collect()).chain(rows)
}
