//! The data of the page: facts, names, the call tree in depth-first order, and the samples of its paths by
//! thread and time. Pure.

use nprof_report::heading::{heading, marks};
use nprof_report::profile::{ReportedEvent, Sum};
use nprof_stream::Measure;
use nprof_stream::escape::escaped;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::print::context::PrintContext;
use crate::print::page::encode::Numbers;
use crate::tree::call_tree::{NodeIndex, Tree};

/// The parts in which the script has effective sample sizes.
const EFFECTIVE_PARTS: f64 = 1024.0;

/// Returns the data. The file `assets/data.js` reads it.
pub(super) fn profile(context: &PrintContext<'_>) -> Value {
    let tree = context.tree;
    let order = order(tree, context.events);
    let (facts, mut notes) = facts(context);
    notes.extend(marks(context.events.iter().map(|event| &context.summary.events[event.event])));
    // Functions are many, images are few.
    let mut images: Vec<&str> = Vec::new();
    let mut numbers: FxHashMap<&str, usize> = FxHashMap::default();
    let image_of: Vec<usize> = tree
        .functions
        .iter()
        .map(|function| {
            *numbers.entry(&function.image).or_insert_with(|| {
                images.push(&function.image);
                images.len() - 1
            })
        })
        .collect();
    let names: Vec<&str> = tree.functions.iter().map(|function| &function.name[..]).collect();
    let confidence = context.args.options.confidence();
    let moments = &tree.moments;
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
        "tracks": moments.threads,
        "slice_ns": moments.slice_ns.max(1),
        // The script divides by both.
        "slices": moments.slices.max(1),
        "roots": roots(tree, context.events),
        "nodes": nodes(tree, &order).text(),
        "moments": samples(context, &order).text(),
    })
}

/// Returns the command of the first run, and the number of others.
fn command(context: &PrintContext<'_>) -> String {
    let heads = context.summary.runs.iter().filter_map(|run| run.head.as_ref());
    // Runs of one command are mostly in a row.
    let mut commands: Vec<&[u8]> = heads.map(|head| &head.command[..]).collect();
    commands.dedup();
    match &commands[..] {
        [] => String::new(),
        [command] => escaped(command),
        [command, others @ ..] => format!("{} and {} more", escaped(command), others.len()),
    }
}

/// Returns the facts of the heading as pairs of name and value, and its other lines.
fn facts(context: &PrintContext<'_>) -> (Vec<[String; 2]>, Vec<String>) {
    let (mut facts, mut notes) = (Vec::new(), Vec::new());
    let text = heading(context.summary, true, &context.counted(), None);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        // Sentences may have a colon, too, but no short name before it.
        match line.split_once(": ").filter(|(name, _)| name.len() <= 24) {
            Some((name, value)) => facts.push([name.trim(), value.trim()].map(str::to_owned)),
            None => notes.push(line.trim().to_owned()),
        }
    }
    let rules = context.args.rules();
    if !rules.is_empty() {
        facts.push(["filters".to_owned(), escaped(rules.join(" ").as_bytes())]);
    }
    (facts, notes)
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
            "name": context.event_name(event),
            "unit": unit,
            "each": weight_of_each(event.counted),
            "samples": event.counted.samples,
            // Estimates of another program have no margins.
            "z": summary.has_margins().then_some(z),
        })
    };
    if context.events.is_empty() {
        // The page shows an event.
        return vec![json!({ "name": "no samples", "unit": "", "each": 0, "samples": 0, "z": z })];
    }
    context.events.iter().map(object).collect()
}

/// Returns the weight of a sample if all weigh the same. None if not.
fn weight_of_each(sum: Sum) -> Option<u64> {
    // A sum that has saturated is no multiple of its samples.
    let each = sum.weight.checked_div(sum.samples).unwrap_or(0);
    (sum.is_uniform() && each.checked_mul(sum.samples) == Some(sum.weight)).then_some(each)
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

/// Returns for each moment the distance of its node from the last one, its thread, slice and samples; if
/// samples weigh differently, then their weight and effective sample size.
fn samples(context: &PrintContext<'_>, order: &[(NodeIndex, u32)]) -> Numbers {
    let tree = context.tree;
    let mut places = vec![None; tree.nodes.len()];
    let mut is_uniform = vec![true; tree.nodes.len()];
    let mut roots = roots(tree, context.events).into_iter();
    let mut of_root = true;
    for (place, &(node, depth)) in order.iter().enumerate() {
        if depth == 0 {
            let event = roots.next().and_then(|event| context.events.get(event));
            of_root = event.is_none_or(|event| weight_of_each(event.counted).is_some());
        }
        places[node] = Some(place);
        is_uniform[node] = of_root;
    }
    let moments = tree.moments.moments.iter();
    let mut placed: Vec<_> =
        moments.filter_map(|moment| Some((places[moment.node]?, moment))).collect();
    // Distances are then small, and take a byte.
    placed.sort_by_key(|(place, moment)| (*place, moment.thread, moment.slice));
    let mut numbers = Numbers::default();
    let mut last = 0;
    for (place, moment) in placed {
        numbers.push((place - last) as u64);
        numbers.push(u64::from(moment.thread));
        numbers.push(u64::from(moment.slice));
        numbers.push(moment.sum.samples);
        if !is_uniform[moment.node] {
            numbers.push(moment.sum.weight);
            let effective = moment.sum.samples_of_equal_weight() * EFFECTIVE_PARTS;
            numbers.push(effective.round() as u64);
        }
        last = place;
    }
    numbers
}
