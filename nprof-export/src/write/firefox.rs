//! The Firefox Profiler: its processed profile format, version 60, which every later version of the
//! profiler upgrades. It is the first one in which threads share their tables.
//!
//! A thread of the format has samples of one event: each event of a thread is a thread of its own.
//! Addresses count from the first loaded byte of an image.

mod categories;
mod tables;

use std::io::{self, Write};

use nprof_stream::escape::escaped;
use nprof_stream::{Event, Measure};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use self::categories::{CATEGORIES, category_number};
use self::tables::Tables;
use crate::model::{Category, Image, Profile, Sample};

/// Writes a profile.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let libs: Vec<Value> = profile.images.iter().map(lib).collect();
    write!(out, "{{\"meta\":{},\"libs\":{},", meta(profile), json!(libs))?;
    write!(out, "\"pages\":[],\"profilerOverhead\":[],\"counters\":[],\"threads\":[")?;
    let mut samples = profile.samples.clone();
    // The sort is stable: samples of a group stay in the order of time.
    samples.sort_by_key(|sample| (sample.event, sample.thread));
    let processes = process_names(profile);
    let mut tables = Tables::new(profile);
    let is_same = |a: &Sample, b: &Sample| (a.event, a.thread) == (b.event, b.thread);
    for (index, group) in samples.chunk_by(is_same).enumerate() {
        let separator = if index == 0 { "" } else { "," };
        write!(
            out,
            "{separator}\n{}",
            thread(profile, &processes, group, index == 0, &mut tables)
        )?;
    }
    // The tables come last: they are known when all threads are written.
    write!(out, "],\"shared\":{{")?;
    tables.write(out)?;
    writeln!(out, "}}}}")
}

/// Returns a time in milliseconds since the beginning of the profile.
fn milliseconds(profile: &Profile, time: i64) -> f64 {
    time.saturating_sub(profile.facts.start) as f64 / 1e6
}

fn meta(profile: &Profile) -> Value {
    let facts = &profile.facts;
    let categories: Vec<Value> = CATEGORIES
        .iter()
        .map(|(_, name, color)| json!({"name": name, "color": color, "subcategories": ["Other"]}))
        .collect();
    let marker = |name: &str, cause: &str| {
        json!({
            "name": name,
            "display": ["marker-chart", "marker-table", "timeline-overview"],
            "tooltipLabel": "{marker.name}: {marker.data.count}",
            "tableLabel": "{marker.data.count}, {marker.data.cause}",
            "chartLabel": "{marker.data.count}, {marker.data.cause}",
            "fields": [
                {"key": "count", "label": "Samples", "format": "integer"},
                {"key": "cause", "label": cause, "format": "string"},
            ],
        })
    };
    json!({
        "preprocessedProfileVersion": 60,
        "version": 24,
        "product": facts.commands.first().map_or("nprof", String::as_str),
        "importedFrom": concat!("nprof-export ", env!("CARGO_PKG_VERSION")),
        "startTime": facts.start as f64 / 1e6,
        "interval": profile.events.first().map_or(1.0, interval),
        "processType": 0,
        "oscpu": facts.os,
        "CPUName": facts.cpu,
        "logicalCPUs": facts.cpus,
        "categories": categories,
        "markerSchema": [marker(LOST, "Cause"), marker(INCOMPLETE, "Reason")],
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs"},
        "debug": false,
        "extensions": {"length": 0, "baseURL": [], "id": [], "name": []},
        "pausedRanges": [],
        // Names are final: the profiler must not ask a server for symbols.
        "symbolicated": true,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
    })
}

/// Returns the time between two samples in milliseconds.
fn interval(event: &Event) -> f64 {
    match (event.frequency, event.period) {
        (Some(hertz), _) if hertz > 0 => 1000.0 / hertz as f64,
        (_, Some(period)) if event.measure.is_time() => period as f64 / 1e6,
        _ => 1.0,
    }
}

fn lib(image: &Image) -> Value {
    // The GUID of breakpad: 16 bytes of the build ID, the first three numbers little-endian, and an age.
    let bytes: Vec<&str> =
        (0..16).map(|i| image.build_id.get(2 * i..2 * i + 2).unwrap_or("00")).collect();
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let guid: String = order.iter().map(|&i| bytes[i]).collect();
    json!({
        "name": image.name,
        "path": image.path,
        "debugName": image.name,
        "debugPath": image.path,
        "breakpadId": format!("{}0", guid.to_uppercase()),
        "codeId": Some(&image.build_id).filter(|id| !id.is_empty()),
        "arch": null,
    })
}

/// The names of markers.
const LOST: &str = "Lost samples";
const INCOMPLETE: &str = "Incomplete stacks";

/// Returns the thread of samples of one thread and event. The first one has the losses.
fn thread(
    profile: &Profile,
    processes: &FxHashMap<u32, &str>,
    group: &[Sample],
    is_first: bool,
    tables: &mut Tables<'_>,
) -> Value {
    let event = &profile.events[group[0].event as usize];
    let of = &profile.threads[group[0].thread as usize];
    let stacks: Vec<Option<u32>> = group.iter().map(|sample| tables.stack(sample.stack)).collect();
    let mut name = of.name.to_string();
    if profile.events.len() > 1 {
        name.push_str(&format!(" ({})", escaped(&event.name)));
    }
    let markers = markers(profile, group, is_first, tables);
    let samples = samples(profile, event, group, &stacks);
    let times = [group[0].time.min(of.start.max(profile.facts.start)), group[group.len() - 1].time];
    let [start, end] = times.map(|time| milliseconds(profile, time));
    json!({
        "name": name,
        "processName": processes.get(&of.pid).copied().unwrap_or(&*of.name),
        "processType": "default",
        "isMainThread": of.pid == of.tid && group[0].event == 0,
        "pid": of.pid.to_string(),
        "tid": of.tid.to_string(),
        "processStartupTime": start,
        "processShutdownTime": null,
        "registerTime": start,
        "unregisterTime": end,
        "pausedRanges": [],
        "samples": samples,
        "markers": markers,
    })
}

/// Returns the names of the main threads, by process: the profiler groups threads by process, and shows
/// its name.
fn process_names(profile: &Profile) -> FxHashMap<u32, &str> {
    let mut names = FxHashMap::default();
    for thread in profile.threads.iter().filter(|thread| thread.tid == thread.pid) {
        names.entry(thread.pid).or_insert(&*thread.name);
    }
    names
}

fn samples(profile: &Profile, event: &Event, group: &[Sample], stacks: &[Option<u32>]) -> Value {
    let times: Vec<f64> = group.iter().map(|sample| milliseconds(profile, sample.time)).collect();
    // CPU time is in a column of its own.
    let is_waiting = event.measure.is_time() && event.measure != Measure::CpuTime;
    let weight = |sample: &Sample| match event.measure {
        _ if is_waiting => json!(sample.weight as f64 / 1e6),
        Measure::Bytes => json!(sample.weight),
        _ => json!(sample.count),
    };
    let weight_type = match event.measure {
        _ if is_waiting => "tracing-ms",
        Measure::Bytes => "bytes",
        _ => "samples",
    };
    let mut samples = json!({
        "length": group.len(),
        "stack": stacks,
        "time": times,
        "weight": group.iter().map(weight).collect::<Vec<Value>>(),
        "weightType": weight_type,
    });
    if event.measure == Measure::CpuTime {
        let microseconds: Vec<f64> =
            group.iter().map(|sample| sample.weight as f64 / 1e3).collect();
        samples["threadCPUDelta"] = json!(microseconds);
    }
    samples
}

/// A marker.
struct Marker {
    name: &'static str,
    start: i64,
    /// None for an instant.
    end: Option<i64>,
    count: u64,
    cause: String,
}

/// Returns the markers of a thread: a marker for each mark of incomplete stacks, and, in the first
/// thread, all losses.
fn markers(profile: &Profile, group: &[Sample], is_first: bool, tables: &mut Tables<'_>) -> Value {
    let mut spans: Vec<(u32, i64, i64, u64)> = Vec::new();
    for sample in group {
        let root = profile.frames_of(sample.stack).last();
        let Some(root) = root.filter(|root| root.category == Category::Mark) else { continue };
        let function = root.calls[0].function;
        match spans.iter_mut().find(|span| span.0 == function) {
            Some((_, _, end, count)) => {
                *end = sample.time;
                *count = count.saturating_add(sample.count);
            }
            None => spans.push((function, sample.time, sample.time, sample.count)),
        }
    }
    let mut rows = Vec::new();
    for (function, start, end, count) in spans {
        let cause = profile.functions[function as usize].name.to_string();
        rows.push(Marker { name: INCOMPLETE, start, end: Some(end), count, cause });
    }
    for loss in profile.losses.iter().filter(|_| is_first) {
        let cause = loss.cause.clone();
        rows.push(Marker { name: LOST, start: loss.time, end: None, count: loss.count, cause });
    }
    // The format stores tables by column.
    let column =
        |value: &mut dyn FnMut(&Marker) -> Value| rows.iter().map(value).collect::<Vec<Value>>();
    json!({
        "length": rows.len(),
        "name": column(&mut |row| json!(tables.string(row.name))),
        "category": column(&mut |_| json!(category_number(Category::Mark))),
        "startTime": column(&mut |row| json!(milliseconds(profile, row.start))),
        "endTime": column(&mut |row| json!(row.end.map(|end| milliseconds(profile, end)))),
        // 0 is an instant, 1 an interval.
        "phase": column(&mut |row| json!(u8::from(row.end.is_some()))),
        "data": column(&mut |row| {
            json!({"type": row.name, "count": row.count, "cause": row.cause})
        }),
    })
}
