//! From the samples of a partition to the rows of its tables. Pure.

use std::collections::BTreeMap;

use nprof_stream::escape::escaped;
use parquet::data_type::ByteArray;

use super::id;
use super::partition::Partition;
use super::table::{Column, RUNS, Table};
use crate::model::{Frame, Profile, Run};

/// Returns the tables of a partition. `frame_ids` are the ids of the profile's frames.
pub(super) fn tables(
    profile: &Profile,
    frame_ids: &[i64],
    partition: &Partition<'_>,
) -> [Table; 5] {
    // By id, so that equal stacks of several images are one row.
    let mut stacks: BTreeMap<i64, Option<u32>> = BTreeMap::new();
    let mut stack_ids: BTreeMap<Option<u32>, i64> = BTreeMap::new();
    // Frames with equal ids are equal, apart from their names: a stream may have names for some only.
    let mut frames: BTreeMap<i64, &Frame> = BTreeMap::new();
    for sample in &partition.samples {
        stack_ids.entry(sample.stack).or_insert_with(|| {
            let mut ids = Vec::new();
            for number in profile.frame_numbers_of(sample.stack) {
                let (id, frame) = (frame_ids[number as usize], &profile.frames[number as usize]);
                let kept = frames.entry(id).or_insert(frame);
                if frame.is_named > kept.is_named {
                    *kept = frame;
                }
                ids.push(id);
            }
            let id = id::of_stack(&ids);
            stacks.insert(id, sample.stack);
            id
        });
    }
    [
        samples_table(profile, partition, &stack_ids),
        stacks_table(profile, &stacks, frame_ids),
        frames_table(profile, &frames),
        symbols_table(profile, &frames),
        runs_table(profile, partition),
    ]
}

/// Event, stack id, number of the host and version, name of the thread, time.
type RowKey = (u32, i64, u32, u32, i64);

/// The sum of some samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    event: u32,
    stack: i64,
    origin: u32,
    name: u32,
    samples: u64,
    weight: u64,
    time: i64,
}

/// Returns a text as a value.
fn text(value: &str) -> ByteArray {
    ByteArray::from(value)
}

/// Microseconds since 1970.
fn microseconds(ns: i64) -> i64 {
    ns.div_euclid(1000)
}

/// Returns a sum as the engines' widest number.
fn signed(sum: u64) -> i64 {
    i64::try_from(sum).unwrap_or(i64::MAX)
}

fn samples_table<'p>(
    profile: &'p Profile,
    partition: &Partition<'_>,
    stack_ids: &BTreeMap<Option<u32>, i64>,
) -> Table {
    // Runs of one host and version share rows.
    let mut origins: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let origin_of = |run: &'p Run| (run.host.as_str(), run.version.as_str());
    for run in &profile.runs {
        let next = origins.len() as u32;
        origins.entry(origin_of(run)).or_insert(next);
    }
    let mut sums: BTreeMap<RowKey, (u64, u64)> = BTreeMap::new();
    for sample in &partition.samples {
        // Every stack of the partition has an id.
        let stack = stack_ids.get(&sample.stack).copied().unwrap_or_default();
        let origin = origins[&origin_of(&profile.runs[sample.run as usize])];
        let key = (sample.event, stack, origin, sample.name, sample.time);
        let (samples, weight) = sums.entry(key).or_default();
        *samples = samples.saturating_add(sample.count);
        *weight = weight.saturating_add(sample.weight);
    }
    let row = |((event, stack, origin, name, time), (samples, weight))| Row {
        event,
        stack,
        origin,
        name,
        samples,
        weight,
        time,
    };
    let mut rows: Vec<Row> = sums.into_iter().map(row).collect();
    // Equal stacks are next to each other, and then equal numbers: only times differ in most rows, which
    // compresses best.
    rows.sort_unstable();
    let events: Vec<ByteArray> =
        profile.events.iter().map(|event| text(&escaped(&event.name))).collect();
    let mut hosts = vec![(ByteArray::default(), ByteArray::default()); origins.len()];
    for ((host, version), number) in origins {
        hosts[number as usize] = (text(host), text(version));
    }
    let names: Vec<ByteArray> = profile.names.iter().map(|name| text(name)).collect();
    let texts = |of: &dyn Fn(&Row) -> ByteArray| Column::Text(rows.iter().map(of).collect());
    let longs = |of: fn(&Row) -> i64| -> Vec<i64> { rows.iter().map(of).collect() };
    Table {
        name: "samples",
        times: &["time"],
        columns: vec![
            ("event", texts(&|row| events[row.event as usize].clone())),
            ("stack_id", Column::Distinct(longs(|row| row.stack))),
            ("time", Column::Long(longs(|row| microseconds(row.time)))),
            ("host", texts(&|row| hosts[row.origin as usize].0.clone())),
            ("version", texts(&|row| hosts[row.origin as usize].1.clone())),
            ("comm", texts(&|row| names[row.name as usize].clone())),
            ("samples", Column::Long(longs(|row| signed(row.samples)))),
            ("weight", Column::Long(longs(|row| signed(row.weight)))),
        ],
    }
}

fn stacks_table(
    profile: &Profile,
    stacks: &BTreeMap<i64, Option<u32>>,
    frame_ids: &[i64],
) -> Table {
    let (mut ids, mut positions, mut frames) = (Vec::new(), Vec::new(), Vec::new());
    for (&id, &stack) in stacks {
        // Leaf first.
        for (position, frame) in profile.frame_numbers_of(stack).enumerate() {
            ids.push(id);
            positions.push(position as i32);
            frames.push(frame_ids[frame as usize]);
        }
    }
    Table {
        name: "stacks",
        times: &[],
        columns: vec![
            ("stack_id", Column::Distinct(ids)),
            ("position", Column::Int(positions)),
            ("frame_id", Column::Long(frames)),
        ],
    }
}

fn frames_table(profile: &Profile, frames: &BTreeMap<i64, &Frame>) -> Table {
    let images: Vec<Option<&crate::model::Image>> = frames
        .values()
        .map(|frame| frame.image.map(|image| &profile.images[image as usize]))
        .collect();
    let of_image = |of: fn(&crate::model::Image) -> &str, none: &str| {
        Column::Text(images.iter().map(|image| text(image.map_or(none, of))).collect())
    };
    // Marks have no image, and a name of their own.
    let values = || frames.values();
    Table {
        name: "frames",
        times: &[],
        columns: vec![
            ("frame_id", Column::Distinct(frames.keys().copied().collect())),
            ("kind", of_image(|image| image.kind, "")),
            ("image", of_image(|image| &image.name, "[unknown]")),
            ("path", of_image(|image| &image.path, "[unknown]")),
            ("build_id", of_image(|image| &image.build_id, "")),
            // The bits of an offset: those of the kernel may have the highest.
            (
                "file_offset",
                Column::Distinct(values().map(|frame| frame.raw_offset() as i64).collect()),
            ),
            ("return_address", Column::Bool(values().map(|frame| frame.return_address).collect())),
            ("kernel", Column::Bool(values().map(|frame| frame.is_kernel()).collect())),
        ],
    }
}

fn symbols_table(profile: &Profile, frames: &BTreeMap<i64, &Frame>) -> Table {
    let (mut ids, mut namings, mut levels) = (Vec::new(), Vec::new(), Vec::new());
    let mut lines = Vec::new();
    let (mut functions, mut files, mut statuses) = (Vec::new(), Vec::new(), Vec::new());
    for (&id, frame) in frames {
        // Addresses are no names: those that no one has looked up are left to a later pass.
        let Some(is_named) = frame.is_named else { continue };
        let naming = id::of_names(profile, frame);
        for (level, call) in frame.calls.iter().enumerate() {
            let function = &profile.functions[call.function as usize];
            ids.push(id);
            namings.push(naming);
            levels.push(level as i32);
            functions.push(text(&function.name));
            files.push(text(&function.file));
            lines.push(i32::try_from(call.line).unwrap_or(0));
            statuses.push(text(if is_named { "named" } else { "unnamed" }));
        }
    }
    Table {
        name: "symbols",
        times: &[],
        columns: vec![
            ("frame_id", Column::Distinct(ids)),
            ("level", Column::Int(levels)),
            ("function", Column::Text(functions)),
            ("file", Column::Text(files)),
            ("line", Column::Int(lines)),
            ("status", Column::Text(statuses)),
            ("naming", Column::Distinct(namings)),
        ],
    }
}

fn runs_table(profile: &Profile, partition: &Partition<'_>) -> Table {
    let mut sums: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
    for sample in &partition.samples {
        let (samples, weight) = sums.entry((sample.run, sample.event)).or_default();
        *samples = samples.saturating_add(sample.count);
        *weight = weight.saturating_add(sample.weight);
    }
    sums.extend(partition.lost.iter().map(|&key| (key, (0, 0))));
    let run = |&(run, _): &(u32, u32)| &profile.runs[run as usize];
    let event = |&(_, event): &(u32, u32)| &profile.events[event as usize];
    let texts = |of: &dyn Fn(&(u32, u32)) -> String| {
        Column::Text(sums.keys().map(|key| text(&of(key))).collect())
    };
    let longs = |of: &dyn Fn(&(u32, u32)) -> i64| Column::Long(sums.keys().map(of).collect());
    let optional = |of: &dyn Fn(&(u32, u32)) -> Option<u64>| {
        Column::OptionalLong(sums.keys().map(|key| of(key).map(signed)).collect())
    };
    Table {
        name: RUNS,
        times: &["start", "end"],
        columns: vec![
            ("run", texts(&|key| format!("{:#x}", run(key).id))),
            ("host", texts(&|key| run(key).host.clone())),
            ("service", texts(&|_| partition.service.clone())),
            ("version", texts(&|key| run(key).version.clone())),
            ("command", texts(&|key| run(key).command.clone())),
            ("event", texts(&|key| escaped(&event(key).name))),
            ("unit", texts(&|key| escaped(&event(key).unit))),
            ("measure", texts(&|key| escaped(event(key).measure.word()))),
            ("period", optional(&|key| event(key).period)),
            ("frequency", optional(&|key| event(key).frequency)),
            ("start", longs(&|key| microseconds(run(key).span().0))),
            ("end", longs(&|key| microseconds(run(key).span().1))),
            ("samples", Column::Long(sums.values().map(|sum| signed(sum.0)).collect())),
            ("weight", Column::Long(sums.values().map(|sum| signed(sum.1)).collect())),
            ("lost", longs(&|key| signed(run(key).lost.get(&key.1).copied().unwrap_or(0)))),
            (
                "is_estimate",
                Column::Bool(sums.keys().map(|key| !event(key).scaled.is_empty()).collect()),
            ),
            ("is_complete", Column::Bool(sums.keys().map(|key| run(key).is_complete).collect())),
        ],
    }
}
