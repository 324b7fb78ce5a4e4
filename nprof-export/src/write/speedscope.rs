//! speedscope: its JSON file format, one sampled profile for each thread and event.
//!
//! A frame is a function: speedscope groups by frame, and lines would divide its functions. Samples of
//! one stack that follow each other are one entry, so that the order of time stays.

use std::io::{self, Write};

use nprof_stream::Measure;
use serde_json::{Value, json};

use crate::model::{Interner, Profile, Sample, unit_name};

/// Writes a profile.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let schema = json!("https://www.speedscope.app/file-format-schema.json");
    let exporter = json!(concat!("nprof-export@", env!("CARGO_PKG_VERSION")));
    let name = json!(profile.facts.commands.join("; "));
    write!(out, "{{\"$schema\":{schema},\"exporter\":{exporter},\"name\":{name},")?;
    write!(out, "\"activeProfileIndex\":0,\"profiles\":[")?;
    // The frames come last: they are known when all stacks are written.
    let mut frames = Interner::default();
    for (index, group) in groups(profile).iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        writeln!(out, "{separator}")?;
        entry(profile, group, &mut frames, out)?;
    }
    write!(out, "],\"shared\":{{\"frames\":[")?;
    for (index, &function) in frames.values().iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        write!(out, "{separator}\n{}", frame(profile, function))?;
    }
    writeln!(out, "]}}}}")
}

/// Returns the samples of each thread and event, the heaviest group of an event first.
fn groups(profile: &Profile) -> Vec<Vec<Sample>> {
    let mut samples = profile.samples.clone();
    // The sort is stable: samples of a group stay in the order of time.
    samples.sort_by_key(|sample| (sample.event, sample.thread));
    let is_same = |a: &Sample, b: &Sample| (a.event, a.thread) == (b.event, b.thread);
    let mut groups: Vec<Vec<Sample>> = samples.chunk_by(is_same).map(<[Sample]>::to_vec).collect();
    groups.sort_by_key(|group| (group[0].event, std::cmp::Reverse(weight(group))));
    groups
}

fn weight(samples: &[Sample]) -> u64 {
    samples.iter().fold(0, |sum, sample| sum.saturating_add(sample.weight))
}

/// Writes the profile of a group.
fn entry(
    profile: &Profile,
    group: &[Sample],
    frames: &mut Interner<u32>,
    out: &mut impl Write,
) -> io::Result<()> {
    let event = &profile.events[group[0].event as usize];
    let thread = &profile.threads[group[0].thread as usize];
    let mut weights: Vec<u64> = Vec::new();
    let mut last = None;
    // A thread can have millions of deep stacks, so they are written one by one.
    write!(out, "{{\"samples\":[")?;
    for sample in group {
        // Nothing else ran between the two.
        if last == Some(sample.stack) {
            if let Some(weight) = weights.last_mut() {
                *weight = weight.saturating_add(sample.weight);
            }
            continue;
        }
        last = Some(sample.stack);
        let calls = profile.frames_of(sample.stack).flat_map(|frame| &frame.calls);
        let mut stack: Vec<u32> = calls.map(|call| frames.number(call.function)).collect();
        // Root first.
        stack.reverse();
        if !weights.is_empty() {
            write!(out, ",")?;
        }
        serde_json::to_writer(&mut *out, &stack)?;
        weights.push(sample.weight);
    }
    // speedscope knows six units; the word of others is not allowed.
    let unit = match event.measure {
        Measure::Bytes => "bytes".to_owned(),
        ref time if time.is_time() => unit_name(event),
        _ => "none".to_owned(),
    };
    let mut name = format!("{} {}/{}", thread.name, thread.pid, thread.tid);
    if profile.events.len() > 1 {
        name.push_str(&format!(" ({})", nprof_stream::escape::escaped(&event.name)));
    }
    write!(out, "],\"weights\":")?;
    serde_json::to_writer(&mut *out, &weights)?;
    let end = weights.iter().fold(0_u64, |sum, &weight| sum.saturating_add(weight));
    let (name, unit) = (json!(name), json!(unit));
    write!(out, ",\"type\":\"sampled\",\"name\":{name},\"unit\":{unit}")?;
    write!(out, ",\"startValue\":0,\"endValue\":{end}}}")
}

fn frame(profile: &Profile, function: u32) -> Value {
    let function = &profile.functions[function as usize];
    let image = function.image.map(|image| profile.images[image as usize].path.as_str());
    // Without a source file, the image explains the place of the function.
    let file = if function.file.is_empty() { image } else { Some(&*function.file) };
    match file {
        Some(file) => json!({"name": &*function.name, "file": file}),
        None => json!({"name": &*function.name}),
    }
}
