//! Rows as lines of fields, for TSV and CSV: a line of column names, then a line per row and event
//! in full precision. New columns are only ever added, at the end.

use nprof_report::machine_formats::Lines;

use crate::print::context::{NUMBERS, PrintContext};

/// Returns a line per row and event.
pub(crate) fn lines(context: &PrintContext<'_>) -> Lines {
    let names = context.columns.iter().map(|column| column.name());
    let header = ["event"].into_iter().chain(names).chain(NUMBERS);
    let mut lines = vec![header.map(str::to_owned).collect()];
    for found in context.rows_in_events() {
        let mut line = vec![context.event_name(found.event)];
        line.extend(found.row.names.iter().cloned());
        line.extend(context.numbers(found).map(|number| number.to_string()));
        lines.push(line);
    }
    lines
}
