//! Parts of functions for programs: a line or an object per part and event, in full precision. New columns
//! are only ever added, at the end.

use std::io::{self, Write};
use std::sync::Arc;

use nprof_report::machine_formats::{self, Line};
use nprof_report::profile::ReportedEvent;
use serde_json::{Map, Value};

use crate::args::{By, TOOL};
use crate::print::context::PrintContext;
use crate::rows::annotation::FunctionSums;
use crate::rows::parts::{Part, PartKind, parts};
use crate::rows::select::sum_of;

/// The numbers of a part.
const NUMBERS: [&str; 4] = ["self_samples", "self", "self_percent", "self_margin"];

/// Returns the names of the properties of parts.
fn names(by: By) -> &'static [&'static str] {
    match by {
        By::Instruction => &["address", "instruction", "callee", "jump", "inlined", "file", "line"],
        By::Line => &["file", "line", "inlined_samples", "inlined"],
        By::Block | By::Loop => {
            &["address", "end", "instructions", "loop", "depth", "first_line", "last_line"]
        }
    }
}

/// Returns the properties of a part, in the order of their names.
fn values(found: PartInEvent<'_>) -> Vec<Value> {
    let start = found.function.function.start;
    let address = |offset: u32| Value::from(format!("{:#x}", start.wrapping_add(offset.into())));
    let optional = |name: &Option<Arc<str>>| name.as_deref().map_or(Value::Null, Value::from);
    let known = |line: u32| if line == 0 { Value::Null } else { line.into() };
    match &found.part.kind {
        PartKind::Instruction(it) => vec![
            address(it.offset),
            it.text.as_str().into(),
            match &it.called[..] {
                [] => optional(&it.callee),
                called => called.join(" | ").into(),
            },
            it.target.map_or(Value::Null, address),
            optional(&it.inlined),
            optional(&it.file),
            known(it.line),
        ],
        PartKind::Line(it) => {
            let inlined = sum_of(&it.inlined, found.event.event);
            vec![optional(&it.file), known(it.line), inlined.samples.into(), inlined.weight.into()]
        }
        PartKind::Block(it) => vec![
            address(it.start),
            address(it.end),
            it.instructions.into(),
            it.in_loop.map_or(Value::Null, address),
            it.depth.map_or(Value::Null, Value::from),
            known(it.lines.0),
            known(it.lines.1),
        ],
    }
}

/// A part of a function in an event.
#[derive(Clone, Copy)]
struct PartInEvent<'a> {
    event: &'a ReportedEvent,
    function: &'a FunctionSums,
    part: &'a Part,
}

/// Returns what `print` makes of each part for every event in which its function has samples. Parts are
/// computed function by function: those of all may be many.
fn each_part<'a, T>(
    context: PrintContext<'a>,
    print: fn(PrintContext<'a>, PartInEvent<'_>) -> T,
) -> impl Iterator<Item = T> + use<'a, T> {
    let of_function = move |function: &'a FunctionSums| {
        let parts = parts(function, context.args.by);
        let has_samples = |event: &&ReportedEvent| sum_of(&function.total, event.event).samples > 0;
        let events = context.selected.events.iter().filter(has_samples);
        let in_event = |event| {
            let found = |part| PartInEvent { event, function, part };
            parts.iter().map(move |part| print(context, found(part))).collect::<Vec<T>>()
        };
        events.flat_map(in_event).collect::<Vec<T>>()
    };
    context.selected.functions.iter().flat_map(of_function)
}

fn numbers(context: PrintContext<'_>, found: PartInEvent<'_>) -> [Value; 4] {
    let sum = sum_of(&found.part.sums, found.event.event);
    [
        sum.samples.into(),
        sum.weight.into(),
        sum.percent_of(found.event.whole).into(),
        context.margin(sum, found.event).into(),
    ]
}

/// Returns a line of column names, then a line per part and event.
pub(crate) fn lines(context: PrintContext<'_>) -> impl Iterator<Item = Line> {
    let header = ["event", "function", "image"];
    let header = header.iter().chain(names(context.args.by)).chain(&NUMBERS);
    let header: Line = header.map(|&name| name.to_owned()).collect();
    std::iter::once(header).chain(each_part(context, line))
}

fn line(context: PrintContext<'_>, found: PartInEvent<'_>) -> Line {
    let field = |value: Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        number => number.to_string(),
    };
    let function = &found.function.function;
    let mut line = vec![
        context.event_name(found.event),
        function.name.to_string(),
        function.image.to_string(),
    ];
    line.extend(values(found).into_iter().map(field));
    line.extend(numbers(context, found).map(field));
    line
}

/// Prints the object that nprof-annotate(1) describes.
pub(crate) fn json(context: PrintContext<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (args, selected) = (context.args, context.selected);
    let mut object = Map::new();
    object.insert("tool".to_owned(), TOOL.into());
    object.insert("by".to_owned(), args.by.name().into());
    object.extend(args.options.facts(args.rules(), context.summary, &selected.all_events));
    let hidden = selected.dropped.rows + selected.not_shown.rows;
    object.insert("hidden_functions".to_owned(), hidden.into());
    object.insert("uncounted_functions".to_owned(), selected.uncounted.rows.into());
    object.insert("functions_without_code".to_owned(), selected.without_code.rows.into());
    let without_code = selected.all_events.iter().map(|event| {
        let mut of_event = Map::new();
        of_event.insert("event".to_owned(), context.event_name(event).into());
        let sum = selected.without_code.sum(event.event);
        of_event.insert("samples".to_owned(), sum.samples.into());
        of_event.insert("weight".to_owned(), sum.weight.into());
        Value::Object(of_event)
    });
    object.insert("without_code".to_owned(), without_code.collect());
    machine_formats::json(&object, "rows", each_part(context, row), out)
}

fn row(context: PrintContext<'_>, found: PartInEvent<'_>) -> Value {
    let mut object = Map::new();
    object.insert("event".to_owned(), context.event_name(found.event).into());
    object.insert("function".to_owned(), (&*found.function.function.name).into());
    object.insert("image".to_owned(), (&*found.function.function.image).into());
    let names = names(context.args.by).iter().chain(&NUMBERS);
    for (name, value) in names.zip(values(found).into_iter().chain(numbers(context, found))) {
        object.insert((*name).to_owned(), value);
    }
    Value::Object(object)
}
