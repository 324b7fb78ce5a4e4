//! Rows as one JSON object: the facts of a table's heading, then one row per line.

use std::io::{self, Write};

use nprof_report::machine_formats;
use serde_json::{Map, Value};

use crate::args::TOOL;
use crate::print::context::{PrintContext, RowInEvent};

/// Prints the object that nprof-flat(1) describes.
pub(crate) fn print(context: &PrintContext<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (args, selected) = (context.args, context.selected);
    let mut object = Map::new();
    object.insert("tool".to_owned(), TOOL.into());
    object.insert("keys".to_owned(), context.columns.iter().map(|column| column.name()).collect());
    // Also events without a counted sample: no row shows that they were sampled.
    object.extend(args.options.facts(args.rules(), context.summary, &selected.all_events));
    if let Some(per) = selected.per {
        object.insert("per".to_owned(), context.summary.event_name(per.event).into());
    }
    let hidden = selected.dropped.rows + selected.not_shown.rows;
    object.insert("hidden_rows".to_owned(), hidden.into());
    if let Some(folded) = context.summary.folded(&selected.events, &selected.folded) {
        object.insert("folded".to_owned(), folded);
    }
    object.insert("uncounted_rows".to_owned(), selected.uncounted.rows.into());
    machine_formats::json(
        &object,
        "rows",
        context.rows_in_events().map(|found| row(context, found)),
        out,
    )
}

fn row(context: &PrintContext<'_>, found: RowInEvent<'_>) -> Value {
    let mut object = Map::new();
    object.insert("event".to_owned(), context.event_name(found.event).into());
    for (column, name) in context.columns.iter().zip(&found.row.names) {
        object.insert(column.name().to_owned(), name.to_string().into());
    }
    for (name, number) in context.number_names().into_iter().zip(context.numbers(found)) {
        object.insert(name.to_owned(), number);
    }
    let mean = context.selected.mean_total_percent(found.row);
    object.insert("mean_total_percent".to_owned(), mean.into());
    Value::Object(object)
}
