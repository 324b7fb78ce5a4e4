//! pprof: profile.proto, compressed with gzip or not.
//!
//! The numbers of heap, mutex and block profiles are estimates that their writers have scaled up: they are
//! no numbers of observations, which margins of error follow from. Their events say so.

use std::io::{self, BufRead, Read, Write};
use std::rc::Rc;

use anyhow::{Context as _, bail};
use flate2::bufread::MultiGzDecoder;
use nprof_pprof::{Location, Profile, ValueType, decoded_bytes};
use nprof_stream::{
    Event, EventId, ExtrasBuilder, Head, Mark, Measure, RunId, Sample, Step, Writer,
};
use prost::Message;
use rustc_hash::FxHashMap;

use super::error::Error;
use super::whole;
use crate::output::{CallDef, ImageDef, Output, Place, TaskDef, plain_sample};

/// The longest profile after decompression.
const MAX_BYTES: u64 = 256 << 20;

/// The most memory of a decoded profile.
const MAX_DECODED_BYTES: usize = 1 << 30;

/// An event of a profile.
struct Value {
    event: Event,
    /// The index of its numbers of observations. None if they are unknown.
    count: Option<usize>,
    /// The index of its weights.
    weight: usize,
    /// Units of the stream in one of the profile.
    factor: u64,
}

/// Imports a profile as one segment.
///
/// # Errors
///
/// If it is malformed or has no samples, and if the output fails.
pub(crate) fn import<W: Write>(
    input: impl BufRead,
    is_compressed: bool,
    step: Step,
    writer: Writer<W>,
) -> anyhow::Result<Writer<W>> {
    let bytes = if is_compressed {
        let mut input = Counted { input, bytes: 0 };
        let bytes = whole::read(MultiGzDecoder::new(&mut input), MAX_BYTES);
        bytes.with_context(|| format!("byte {}", input.bytes))?
    } else {
        whole::read(input, MAX_BYTES)?
    };
    // Files that are no profile get the message of the decoder.
    if decoded_bytes(&bytes).is_some_and(|bytes| bytes > MAX_DECODED_BYTES) {
        bail!(
            "a profile that takes more than {MAX_DECODED_BYTES} bytes of memory is not supported"
        );
    }
    let (mut profile, mut rest) = (Profile::default(), &bytes[..]);
    let result = profile.merge(&mut rest);
    // They come first.
    if profile.sample_type.is_empty() {
        bail!(
            "it has no format that is read: perf.data, pprof, folded stacks, gperftools, heap profiles"
        );
    }
    result.map_err(|error| {
        let place = if is_compressed { " after decompression" } else { "" };
        Error::Malformed(format!("byte {}{place}: {error}", bytes.len() - rest.len()))
    })?;
    let run = whole::run_of(&bytes);
    // The decoded profile takes more memory than the bytes.
    drop(bytes);
    let strings = Strings(&profile.string_table);
    let values = values(&profile, strings);
    let mut reader = Importer::begin(&profile, strings, run, step, writer)?;
    let mut events = Vec::new();
    for value in &values {
        events.push(reader.output.event(value.event.clone())?);
    }
    reader.samples(&values, &events)?;
    let end = profile.time_nanos.saturating_add(profile.duration_nanos).max(0) as u64;
    Ok(reader.output.end_at(end)?)
}

/// An input, and the number of bytes that were read from it.
struct Counted<R> {
    input: R,
    bytes: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(buffer)?;
        self.bytes += length as u64;
        Ok(length)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, length: usize) {
        self.bytes += length as u64;
        self.input.consume(length);
    }
}

#[derive(Clone, Copy)]
struct Strings<'a>(&'a [String]);

impl<'a> Strings<'a> {
    fn get(self, index: i64) -> &'a str {
        usize::try_from(index).ok().and_then(|index| self.0.get(index)).map_or("", String::as_str)
    }
}

/// Returns the values of a profile.
fn values(profile: &Profile, strings: Strings<'_>) -> Vec<Value> {
    let named = |value: &ValueType| (strings.get(value.r#type), strings.get(value.unit));
    let types: Vec<(&str, &str)> = profile.sample_type.iter().map(named).collect();
    let mut values = Vec::new();
    // Numbers of observations come before the weights that they belong to.
    let is_count = |index: usize, of: &str| {
        let (name, unit) = types[index];
        unit == "count" && (name == "samples" || name.strip_suffix("_samples") == Some(of))
    };
    // So do estimated numbers of blocks and of delays: inuse_objects and inuse_space.
    let is_estimate = |index: usize| {
        let has_weight = types.get(index + 1).is_some_and(|next| next.1 != "count");
        types[index].1 == "count" && has_weight
    };
    for (index, &(name, unit)) in types.iter().enumerate() {
        let next = types.get(index + 1).map_or("", |next| next.0);
        if is_count(index, next) && index + 1 < types.len() || is_estimate(index) {
            continue;
        }
        let before = index.checked_sub(1);
        let observed = before.filter(|&before| is_count(before, name));
        // A number of samples without a weight is both.
        let observed = observed.or_else(|| is_count(index, "").then_some(index));
        let estimated = before.filter(|&before| is_estimate(before));
        // A number of a kind, such as goroutines, is both as well.
        let estimated = estimated.or_else(|| (unit == "count").then_some(index));
        let count = observed.or(estimated);
        let scaled = if observed.is_none() { b"yes".to_vec() } else { Vec::new() };
        let (measure, factor) = measure(name, unit);
        let period = profile.period_type.filter(|period| named(period) == (name, unit));
        let period = period.and_then(|_| u64::try_from(profile.period).ok());
        // Estimates have no distance between samples.
        let period = period.filter(|_| scaled.is_empty());
        let event = Event {
            name: name.as_bytes().to_vec(),
            unit: measure.unit().into(),
            measure,
            period: period.filter(|&period| period > 0).map(|period| period.saturating_mul(factor)),
            scaled,
            ..Event::default()
        };
        values.push(Value { event, count, weight: index, factor });
    }
    values
}

/// Returns the measure of a value, and the units of the stream in one of its own.
fn measure(name: &str, unit: &str) -> (Measure, u64) {
    let factor = match unit {
        "nanoseconds" => 1,
        "microseconds" => 1_000,
        "milliseconds" => 1_000_000,
        "seconds" => 1_000_000_000,
        "bytes" => return (Measure::Bytes, 1),
        "cycles" => return (Measure::Cycles, 1),
        _ => return (Measure::Count, 1),
    };
    // The time that goroutines wait for a mutex or a channel.
    if name == "delay" {
        return (Measure::WaitTime, factor);
    }
    let is_cpu = name == "cpu" || name.starts_with("cpu-clock") || name.starts_with("task-clock");
    (if is_cpu { Measure::CpuTime } else { Measure::WallTime }, factor)
}

struct Importer<'a, W: Write> {
    profile: &'a Profile,
    strings: Strings<'a>,
    output: Output<W>,
    locations: FxHashMap<u64, &'a Location>,
    functions: FxHashMap<u64, &'a nprof_pprof::Function>,
    mappings: FxHashMap<u64, &'a nprof_pprof::Mapping>,
    places: FxHashMap<u64, Option<Place>>,
    /// The numbers of texts, by their indices in the profile.
    texts: FxHashMap<i64, u32>,
    /// By the numbers of the path and the build ID.
    images: FxHashMap<(u32, u32), u32>,
    /// By process, thread, and the number of the name.
    tasks: FxHashMap<(u32, u32, u32), u32>,
    /// The name of the program, and its path.
    program: u32,
    exe: Rc<[u8]>,
    /// True if the labels of all samples name the same process, or none.
    has_one_process: bool,
}

impl<'a, W: Write> Importer<'a, W> {
    fn begin(
        profile: &'a Profile,
        strings: Strings<'a>,
        run: RunId,
        step: Step,
        writer: Writer<W>,
    ) -> anyhow::Result<Self> {
        let time = Some(profile.time_nanos.max(0) as u64).filter(|&time| time > 0);
        let program = profile.mapping.first().map_or("", |first| strings.get(first.filename));
        let command = profile
            .comment
            .iter()
            .find_map(|&comment| strings.get(comment).strip_prefix("command: "));
        let head = Head {
            run,
            clock: if time.is_some() { b"realtime".to_vec() } else { Vec::new() },
            time,
            utc: time,
            command: command.unwrap_or(program).as_bytes().to_vec(),
            ..Head::default()
        };
        let mut output = Output::begin(writer, head, step)?;
        let exe = program.as_bytes().into();
        let program = output.text(program.rsplit('/').next().unwrap_or_default().as_bytes());
        let locations = profile.location.iter().map(|location| (location.id, location)).collect();
        let functions = profile.function.iter().map(|function| (function.id, function)).collect();
        let mappings = profile.mapping.iter().map(|mapping| (mapping.id, mapping)).collect();
        let (places, texts, images, tasks) = Default::default();
        let mut pids = profile.sample.iter().map(|sample| label_number(sample, strings, "pid"));
        let first = pids.next();
        let has_one_process = pids.all(|pid| Some(pid) == first);
        Ok(Self {
            profile,
            strings,
            output,
            locations,
            functions,
            mappings,
            places,
            texts,
            images,
            tasks,
            program,
            exe,
            has_one_process,
        })
    }

    fn samples(&mut self, values: &[Value], events: &[EventId]) -> anyhow::Result<()> {
        let time = self.profile.time_nanos.max(0) as u64;
        let profile = self.profile;
        for sample in &profile.sample {
            // Leaf first.
            let mut stack: Vec<Place> =
                sample.location_id.iter().filter_map(|&id| self.place(id)).collect();
            stack.reverse();
            let task = self.task(sample);
            for (value, &event) in values.iter().zip(events) {
                let number = |index: usize| sample.value.get(index).copied().unwrap_or(0);
                let weight = number(value.weight);
                // Of an unknown number it is one.
                let count = value.count.map_or(i64::from(weight != 0), number);
                // Differences of profiles have negative values.
                if count < 0 || weight < 0 {
                    bail!("it has negative values: it is the difference of two profiles");
                }
                if count == 0 && weight == 0 {
                    continue;
                }
                let weight = (weight as u64).saturating_mul(value.factor);
                let count = count as u64;
                let mut extras = ExtrasBuilder::new();
                // Without a number of blocks, the bytes would be those of one.
                if !value.event.scaled.is_empty() && value.event.measure == Measure::Bytes {
                    extras.add_number("blocks", count);
                }
                let extras = extras.extras();
                let sample = Sample { time, count, extras, ..plain_sample(event, weight) };
                self.output.sample(sample, task, &stack)?;
            }
        }
        Ok(())
    }

    fn task(&mut self, sample: &nprof_pprof::Sample) -> u32 {
        let number = |key| label_number(sample, self.strings, key);
        let (pid, tid) = (number("pid"), number("tid"));
        let comm = label(sample, self.strings, "comm");
        let comm = comm.map_or(self.program, |label| self.text(label.str));
        *self.tasks.entry((pid, tid, comm)).or_insert_with(|| {
            // The first mapping is the program (profile.proto): of several processes, it is unknown of which.
            let has_exe = pid == tid && self.has_one_process;
            let exe = if has_exe { self.exe.clone() } else { Rc::default() };
            let comm = self.output.text_of(comm).clone();
            self.output.task(TaskDef { pid, tid, comm, exe, ..TaskDef::default() })
        })
    }

    /// Returns the number of a text of the profile.
    fn text(&mut self, index: i64) -> u32 {
        let new = || self.output.text(self.strings.get(index).as_bytes());
        *self.texts.entry(index).or_insert_with(new)
    }

    /// None for the place that nprof-export writes for a sample without a stack.
    fn place(&mut self, id: u64) -> Option<Place> {
        if let Some(&place) = self.places.get(&id) {
            return place;
        }
        let place = match self.locations.get(&id).copied() {
            Some(location) => self.new_place(location),
            // The profile does not define it.
            None => Some(Place { offset: id, ..Place::mark(Mark::None) }),
        };
        self.places.insert(id, place);
        place
    }

    fn new_place(&mut self, location: &'a Location) -> Option<Place> {
        let mut calls = Vec::new();
        for line in &location.line {
            let Some(&function) = self.functions.get(&line.function_id) else { continue };
            calls.push(CallDef {
                name: self.text(function.name),
                file: self.text(function.filename),
                line: u32::try_from(line.line).unwrap_or(0),
                start_line: u32::try_from(function.start_line).unwrap_or(0),
            });
        }
        // nprof-export writes the mark of an incomplete stack as a function.
        if let Some(call) = calls.first().filter(|_| location.mapping_id == 0) {
            let name = self.output.text_of(call.name);
            if **name == *b"[no stack]" {
                return None;
            }
            let word = name.strip_prefix(b"[incomplete:").and_then(|word| word.strip_suffix(b"]"));
            if let Some(mark) = word.and_then(Mark::from_word) {
                return Some(Place::mark(mark));
            }
        }
        let (image, offset) = self.image(location);
        let calls = if calls.is_empty() { 0 } else { self.output.calls(&calls) };
        Some(Place { calls, ..Place::in_image(image, offset) })
    }

    /// Returns the number of the image of a location, and the offset in it.
    fn image(&mut self, location: &Location) -> (u32, u64) {
        let mapping = self.mappings.get(&location.mapping_id).copied();
        let has_address = mapping.is_some() && location.address > 0;
        let offset = match mapping {
            Some(mapping) if has_address => location
                .address
                .wrapping_sub(mapping.memory_start)
                .wrapping_add(mapping.file_offset),
            // Profiles of interpreters have no addresses: the number of the location replaces it.
            _ => location.id,
        };
        let path = mapping.map_or(0, |mapping| self.text(mapping.filename));
        let build_id = mapping.map_or(0, |mapping| self.text(mapping.build_id));
        // Each segment of a file is a mapping.
        let image = *self.images.entry((path, build_id)).or_insert_with(|| {
            let path = if path == 0 { self.output.text(b"[pprof]") } else { path };
            let path = self.output.text_of(path).clone();
            let build_id = self.output.text_of(build_id);
            let build_id = hexadecimal(build_id).unwrap_or_default();
            self.output.image(ImageDef::file(build_id, path))
        });
        (image, offset)
    }
}

/// Returns a label of a sample.
fn label<'a>(
    sample: &'a nprof_pprof::Sample,
    strings: Strings<'_>,
    key: &str,
) -> Option<&'a nprof_pprof::Label> {
    sample.label.iter().find(|label| strings.get(label.key) == key)
}

/// Returns the number of a label; 0 without it.
fn label_number(sample: &nprof_pprof::Sample, strings: Strings<'_>, key: &str) -> u32 {
    label(sample, strings, key).and_then(|label| u32::try_from(label.num).ok()).unwrap_or(0)
}

/// Returns the bytes of hexadecimal digits. None for other text, such as Go's own build IDs.
fn hexadecimal(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |&byte: &u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let digits: Option<Vec<u8>> = text.iter().map(digit).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
