//! Rows as one JSON object: the facts of a table's heading, then one row per line.

use std::io;

use nprof_report::machine_formats;
use nprof_report::profile::ReportedEvent;
use serde_json::{Map, Value, json};

use crate::args::TOOL;
use crate::print::context::{NUMBERS, PrintContext, RowInEvent};

/// Prints the object that nprof-flat(1) describes.
pub(crate) fn print(context: &PrintContext<'_>) -> io::Result<Vec<u8>> {
    let (args, selected) = (context.args, context.selected);
    let mut object = Map::new();
    object.insert("tool".to_owned(), TOOL.into());
    object.insert("keys".to_owned(), context.columns.iter().map(|column| column.name()).collect());
    object.insert("confidence".to_owned(), args.options.confidence().percent().into());
    object.extend(context.summary.facts());
    object.insert("filters".to_owned(), args.rules().into());
    object.insert("rebase".to_owned(), args.options.rebase.into());
    // Also events without a counted sample: no row shows that they were sampled.
    let wholes = selected.all_events.iter().map(|event| whole(context, event)).collect();
    object.insert("wholes".to_owned(), wholes);
    let hidden = selected.dropped.rows + selected.not_shown.rows;
    object.insert("hidden_rows".to_owned(), hidden.into());
    object.insert("uncounted_rows".to_owned(), selected.uncounted.rows.into());
    machine_formats::json(
        &object,
        "rows",
        context.rows_in_events().map(|found| row(context, found)),
    )
}

fn row(context: &PrintContext<'_>, found: RowInEvent<'_>) -> Value {
    let mut object = Map::new();
    object.insert("event".to_owned(), context.event_name(found.event).into());
    for (column, name) in context.columns.iter().zip(&found.row.names) {
        object.insert(column.name().to_owned(), name.clone().into());
    }
    for (name, number) in NUMBERS.into_iter().zip(context.numbers(found)) {
        object.insert(name.to_owned(), number);
    }
    let mean = context.selected.mean_total_percent(found.row);
    object.insert("mean_total_percent".to_owned(), mean.into());
    Value::Object(object)
}

/// Returns the samples that are 100 % of an event.
fn whole(context: &PrintContext<'_>, event: &ReportedEvent) -> Value {
    let all = context.summary.events[event.event].sum;
    json!({
        "event": context.event_name(event),
        "samples": event.whole.samples,
        "weight": event.whole.weight,
        "uncounted_samples": event.counted.rest_of(all).samples,
    })
}
