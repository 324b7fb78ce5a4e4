//! The report for scripts: a row and event a line, in full precision. Columns are only ever added,
//! at the end.

use nprof_report::key::Key;
use nprof_report::machine::{self, Lines};
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;
use serde_json::{Map, Value, json};

use crate::args::{Args, TOOL};
use crate::rows::flat::{Row, Tally};
use crate::rows::select::{Selected, Shown};

/// The columns of numbers, after the event and the names.
const NUMBERS: [&str; 8] = [
    "self_samples",
    "total_samples",
    "self",
    "total",
    "self_percent",
    "self_margin",
    "total_percent",
    "total_margin",
];

/// The numbers of a row in one event, in the order of [`NUMBERS`].
fn numbers(tally: &Tally, whole: &Shown, args: &Args) -> [Value; 8] {
    let margin = |samples| 100.0 * args.options.confidence().margin(samples, whole.whole.samples);
    [
        tally.own.samples.into(),
        tally.total.samples.into(),
        tally.own.weight.into(),
        tally.total.weight.into(),
        tally.own.percent_of(whole.whole).into(),
        margin(tally.own.samples).into(),
        tally.total.percent_of(whole.whole).into(),
        margin(tally.total.samples).into(),
    ]
}

/// The rows with each of the events they have anything in.
fn pairs<'a>(selected: &'a Selected) -> impl Iterator<Item = (&'a Row, &'a Shown, &'a Tally)> {
    selected.rows.iter().flat_map(|row| {
        let of = move |shown: &'a Shown| (row, shown, &row.tallies[shown.event]);
        selected.events.iter().map(of).filter(|(_, _, tally)| tally.total.samples > 0)
    })
}

/// Lines of fields.
pub(crate) fn lines(columns: &[Key], selected: &Selected, summary: &Summary, args: &Args) -> Lines {
    let names = columns.iter().map(|column| column.name());
    let head = ["event"].into_iter().chain(names).chain(NUMBERS);
    let mut lines = vec![head.map(str::to_owned).collect()];
    for (row, shown, tally) in pairs(selected) {
        let mut line = vec![escaped(&summary.events[shown.event].event.name)];
        line.extend(row.names.iter().cloned());
        line.extend(numbers(tally, shown, args).map(|number| number.to_string()));
        lines.push(line);
    }
    lines
}

/// One object, as the manual page describes it.
pub(crate) fn json(
    columns: &[Key],
    selected: &Selected,
    summary: &Summary,
    args: &Args,
) -> std::io::Result<Vec<u8>> {
    let mut object = Map::new();
    object.insert("tool".to_owned(), TOOL.into());
    object.insert("keys".to_owned(), columns.iter().map(|column| column.name()).collect());
    object.insert("confidence".to_owned(), args.options.confidence().percent().into());
    object.extend(summary.facts());
    let rules = [args.options.sample_rules(), args.options.filter().spelled(true)].concat();
    object.insert("filters".to_owned(), rules.into());
    object.insert("rebase".to_owned(), args.options.rebase.into());
    object.insert(
        "wholes".to_owned(),
        selected.all.iter().map(|shown| whole(shown, summary)).collect(),
    );
    object.insert("hidden_rows".to_owned(), (selected.dropped.rows + selected.more.rows).into());
    object.insert("uncounted_rows".to_owned(), selected.uncounted.rows.into());
    machine::json(
        &object,
        "rows",
        pairs(selected).map(|(row, shown, tally)| {
            let mut object = Map::new();
            let name = &summary.events[shown.event].event.name;
            object.insert("event".to_owned(), escaped(name).into());
            for (column, name) in columns.iter().zip(&row.names) {
                object.insert(column.name().to_owned(), name.clone().into());
            }
            for (name, number) in NUMBERS.into_iter().zip(numbers(tally, shown, args)) {
                object.insert(name.to_owned(), number);
            }
            object.insert("weight".to_owned(), selected.weight(row).into());
            Value::Object(object)
        }),
    )
}

/// What 100 % of an event is.
fn whole(shown: &Shown, summary: &Summary) -> Value {
    json!({
        "event": escaped(&summary.events[shown.event].event.name),
        "samples": shown.whole.samples,
        "weight": shown.whole.weight,
        "uncounted_samples": shown.uncounted.samples,
    })
}
