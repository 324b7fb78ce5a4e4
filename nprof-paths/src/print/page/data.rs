//! The data of the page: facts, names, the call tree in depth-first order, and the samples of its paths by
//! thread and time.

use nprof_report::heading::{heading, marks};
use nprof_report::page::{Numbers, shorten, text_bytes};
use nprof_report::profile::ReportedEvent;
use nprof_stream::Measure;
use nprof_stream::escape::escaped;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::print::context::PrintContext;
use crate::print::page::code::code;
use crate::print::page::moment::{push_sum, weight_of_each};
use crate::tree::call_tree::{NodeIndex, Tree};

/// The length of a page that has room for its code.
const PAGE_BYTES: usize = 2_000_000;

/// The room for code beside the largest call tree, and beside the smallest.
const CODE_BYTES: [usize; 2] = [150_000, 1_000_000];

/// The length of style and script.
const SCRIPT_BYTES: usize = 100_000;

/// The least room for names of functions, beside the largest call tree.
const NAME_BYTES: usize = 300_000;

/// The length of all names of images, of threads, of facts and of notes, each.
const LIST_BYTES: usize = 100_000;

/// The length of the command in the title, and of the name of an event.
const TITLE_BYTES: usize = 2_000;

/// Returns the data. The file `assets/data.js` reads it.
pub(super) fn profile(context: &PrintContext<'_>) -> Value {
    let tree = context.tree;
    let order = order(tree, context.events);
    let (facts, mut notes) = facts(context);
    notes.extend(marks(context.events.iter().map(|event| &context.summary.events[event.event])));
    // Functions are many, images are few.
    let mut images: Vec<String> = Vec::new();
    let mut numbers: FxHashMap<&str, usize> = FxHashMap::default();
    let image_of: Vec<usize> = tree
        .functions
        .iter()
        .map(|function| {
            *numbers.entry(&function.image).or_insert_with(|| {
                images.push(function.image.to_string());
                images.len() - 1
            })
        })
        .collect();
    let mut names: Vec<String> =
        tree.functions.iter().map(|function| function.name.to_string()).collect();
    let mut threads = tree.moments.threads.clone();
    let confidence = context.args.options.confidence();
    let moments = &tree.moments;
    let (nodes, samples) = (nodes(tree, &order).text(), samples(context, &order).text());
    let mut shortened = shorten(&mut images, LIST_BYTES) + shorten(&mut threads, LIST_BYTES);
    let lists = [&images, &threads].map(|names| length(names)).iter().sum::<usize>();
    let used = nodes.len() + samples.len() + lists + SCRIPT_BYTES;
    let room = PAGE_BYTES.saturating_sub(used + CODE_BYTES[0]).max(NAME_BYTES);
    shortened += shorten(&mut names, room);
    if shortened > 0 {
        notes.push(format!("{shortened} long names are cut in the middle"));
    }
    let used = used + length(&names);
    let room = PAGE_BYTES.saturating_sub(used).clamp(CODE_BYTES[0], CODE_BYTES[1]);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "command": command(context),
        "confidence": confidence.percent(),
        "facts": facts,
        "notes": notes,
        "events": events(context),
        "names": names,
        "images": images,
        "image_of": image_of,
        "tracks": threads,
        "slice_ns": moments.slice_ns.max(1),
        // The script divides by both.
        "slices": moments.slices.max(1),
        "roots": roots(tree, context.events),
        "nodes": nodes,
        "moments": samples,
        "code": code(context, room),
    })
}

/// Returns the length of names in the page.
fn length(names: &[String]) -> usize {
    names.iter().map(|name| text_bytes(name)).sum()
}

/// Returns a text that is cut to a length.
fn short(text: String, bytes: usize) -> String {
    let mut text = [text];
    shorten(&mut text, bytes);
    text.concat()
}

/// Returns the command of the first run, and the number of others.
fn command(context: &PrintContext<'_>) -> String {
    let heads = context.summary.runs.iter().filter_map(|run| run.head.as_ref());
    // Runs of one command are mostly in a row.
    let mut commands: Vec<&[u8]> = heads.map(|head| &head.command[..]).collect();
    commands.dedup();
    match &commands[..] {
        [] => String::new(),
        [command] => short(escaped(command), TITLE_BYTES),
        [command, others @ ..] => {
            format!("{} and {} more", short(escaped(command), TITLE_BYTES), others.len())
        }
    }
}

/// Returns the facts of the heading as pairs of name and value, and its other lines.
fn facts(context: &PrintContext<'_>) -> (Vec<[String; 2]>, Vec<String>) {
    let (mut facts, mut values, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    let text = heading(context.summary, true, &context.counted(), None);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        // Sentences may have a colon, too, but no short name before it.
        match line.split_once(": ").filter(|(name, _)| name.len() <= 24) {
            Some((name, value)) => {
                facts.push(name.trim().to_owned());
                values.push(value.trim().to_owned());
            }
            None => notes.push(line.trim().to_owned()),
        }
    }
    let rules = context.args.rules();
    if !rules.is_empty() {
        facts.push("filters".to_owned());
        values.push(escaped(rules.join(" ").as_bytes()));
    }
    shorten(&mut values, LIST_BYTES);
    shorten(&mut notes, LIST_BYTES);
    (facts.into_iter().zip(values).map(|(name, value)| [name, value]).collect(), notes)
}

fn events(context: &PrintContext<'_>) -> Vec<Value> {
    let z = context.args.options.confidence().z();
    let object = |event: &ReportedEvent| {
        let summary = &context.summary.events[event.event];
        let recorded = &summary.event;
        let unit = match &recorded.measure {
            measure if measure.is_time() => "ns".to_owned(),
            Measure::Bytes => "bytes".to_owned(),
            _ => escaped(&recorded.unit),
        };
        json!({
            "name": short(context.event_name(event), TITLE_BYTES),
            "unit": unit,
            "each": weight_of_each(event.counted),
            "samples": event.counted.samples,
            // Estimates of another program have no margins; those of a complete event are 0.
            "z": summary.has_margins().then_some(if summary.is_complete() { 0.0 } else { z }),
        })
    };
    if context.events.is_empty() {
        // The page shows an event.
        return vec![json!({ "name": "no samples", "unit": "", "each": 0, "samples": 0, "z": z })];
    }
    context.events.iter().map(object).collect()
}

/// Returns the event of each root, as an index into the events of the page.
fn roots(tree: &Tree, events: &[ReportedEvent]) -> Vec<usize> {
    let of_event = |(index, event): (usize, &ReportedEvent)| {
        std::iter::repeat_n(index, tree.roots_of(event.event).count())
    };
    events.iter().enumerate().flat_map(of_event).collect()
}

/// Returns the nodes in depth-first order with their depths; each root before the nodes below it.
fn order(tree: &Tree, events: &[ReportedEvent]) -> Vec<(NodeIndex, u32)> {
    let mut order = Vec::new();
    let mut pending: Vec<(NodeIndex, u32)> = Vec::new();
    // A stack of its own: paths are too deep for recursion.
    for root in events.iter().flat_map(|event| tree.roots_of(event.event)) {
        pending.push((root, 0));
        while let Some((node, depth)) = pending.pop() {
            order.push((node, depth));
            pending.extend(tree.children(node).rev().map(|child| (child, depth + 1)));
        }
    }
    order
}

/// Returns two numbers a node: by how much its depth is below the deepest possible, and its function.
fn nodes(tree: &Tree, order: &[(NodeIndex, u32)]) -> Numbers {
    let mut numbers = Numbers::default();
    let mut deepest = 0;
    for &(node, depth) in order {
        numbers.push(u64::from(deepest - depth));
        numbers.push(tree.nodes[node].function as u64);
        deepest = depth + 1;
    }
    numbers
}

/// Returns for each moment the distance of its node from the last one, its thread, slice and sum.
fn samples(context: &PrintContext<'_>, order: &[(NodeIndex, u32)]) -> Numbers {
    let tree = context.tree;
    // By node, its place and event.
    let mut places = vec![None; tree.nodes.len()];
    let mut roots = roots(tree, context.events).into_iter();
    let mut event = None;
    for (place, &(node, depth)) in order.iter().enumerate() {
        if depth == 0 {
            event = roots.next().and_then(|event| context.events.get(event));
        }
        places[node] = event.map(|event| (place, event));
    }
    let mut placed = Vec::with_capacity(tree.moments.moments.len());
    for moment in &tree.moments.moments {
        placed.extend(places[moment.node].map(|(place, event)| (place, event, moment)));
    }
    // Distances are then small, and take a byte.
    placed.sort_by_key(|(place, _, moment)| (*place, moment.thread, moment.slice));
    let mut numbers = Numbers::default();
    let mut last = 0;
    for (place, event, moment) in placed {
        numbers.push((place - last) as u64);
        numbers.push(u64::from(moment.thread));
        numbers.push(u64::from(moment.slice));
        push_sum(&mut numbers, moment.sum, event);
        last = place;
    }
    numbers
}
