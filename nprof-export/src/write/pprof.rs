//! pprof: profile.proto, compressed with gzip.
//!
//! Programs that read it join functions of one name in several images. The program has the addresses at which it
//! is linked, other images made-up ones that do not overlap: a frame has one offset in its image, but another
//! address in every process.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use nprof_pprof as proto;
use nprof_stream::LoadSegment;
use prost::Message;

use crate::model::{Image, Interner, Profile, Sample, count_name, unit_name, value_name};

/// The first addresses of mappings are multiples of this: above the largest page size of an ELF file, and
/// it leaves address 0 unused.
const ALIGNMENT: u64 = 1 << 21;

/// The end of the addresses of programs.
const USER_SPACE: u64 = 1 << 47;

/// The page size of most machines: the kernel maps whole pages.
const PAGE: u64 = 4096;

/// The number of samples in one part of the output.
const PART: usize = 4096;

/// Writes a profile.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    // Without name and time in the header, equal profiles have equal bytes.
    let mut out = GzEncoder::new(out, Compression::default());
    let mut strings = Strings::new();
    let mut part = head(profile, &mut strings);
    let mappings = mappings(profile, &mut strings, &mut part);
    locations(profile, &mappings, &mut strings, &mut part);
    emit(&mut part, &mut out)?;
    for samples in sorted(profile).chunk_by(|a, b| row(a) == row(b)) {
        let sample = sample_of(profile, samples, &mut strings);
        part.sample.push(sample);
        if part.sample.len() == PART {
            emit(&mut part, &mut out)?;
        }
    }
    // All strings are known only now; parts may come in any order.
    part.string_table = strings.0.values().to_vec();
    emit(&mut part, &mut out)?;
    out.finish()?;
    Ok(())
}

/// Writes a part: encoded messages may be concatenated.
fn emit(part: &mut proto::Profile, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&std::mem::take(part).encode_to_vec())
}

/// The string table.
struct Strings(Interner<String>);

impl Strings {
    fn new() -> Self {
        let mut strings = Self(Interner::default());
        // The format requires it to be the first.
        strings.index("");
        strings
    }

    fn index(&mut self, text: &str) -> i64 {
        i64::from(self.0.number(text.to_owned()))
    }
}

/// Returns the types of values and the facts of the recording.
fn head(profile: &Profile, strings: &mut Strings) -> proto::Profile {
    let mut head = proto::Profile::default();
    let is_only = profile.events.len() == 1;
    for event in &profile.events {
        let count = strings.index(&count_name(event, is_only));
        let value = strings.index(&value_name(event, is_only));
        // By convention the count comes first.
        let (count_unit, unit) = (strings.index("count"), strings.index(&unit_name(event)));
        head.sample_type.push(proto::ValueType { r#type: count, unit: count_unit });
        head.sample_type.push(proto::ValueType { r#type: value, unit });
    }
    // The event with the most samples is the one of interest; pprof would show the last one.
    let first = most_sampled(profile);
    if let Some(event) = profile.events.get(first) {
        let shown = head.sample_type[2 * first + 1];
        head.default_sample_type = shown.r#type;
        head.period_type = Some(shown);
        head.period = period(profile, first, event);
    }
    let facts = &profile.facts;
    head.time_nanos = facts.start.max(0);
    head.duration_nanos = facts.end.saturating_sub(facts.start).max(0);
    let mut comments: Vec<String> =
        facts.commands.iter().map(|command| format!("command: {command}")).collect();
    if !facts.host.is_empty() {
        comments.push(format!("host: {}", facts.host));
    }
    if facts.lost > 0 {
        comments.push(format!("lost samples: {}", facts.lost));
    }
    head.comment = comments.iter().map(|comment| strings.index(comment)).collect();
    head
}

/// Returns the index of the event with the most observations; the first of several.
fn most_sampled(profile: &Profile) -> usize {
    let mut counts = vec![0_u64; profile.events.len()];
    for sample in &profile.samples {
        let count = &mut counts[sample.event as usize];
        *count = count.saturating_add(sample.count);
    }
    let most = counts.iter().max().copied().unwrap_or_default();
    counts.iter().position(|&count| count == most).unwrap_or_default()
}

/// Returns the units between two samples, never 0: servers refuse a profile without a period.
fn period(profile: &Profile, index: usize, event: &nprof_stream::Event) -> i64 {
    let by_frequency = || {
        let hertz = event.frequency.filter(|&hertz| hertz > 0 && event.measure.is_time());
        hertz.map(|hertz| 1_000_000_000 / hertz)
    };
    let mean = || {
        let samples = profile.samples.iter().filter(|sample| sample.event as usize == index);
        let sum = |(count, weight): (u64, u64), sample: &Sample| {
            (count.saturating_add(sample.count), weight.saturating_add(sample.weight))
        };
        let (count, weight) = samples.fold((0, 0), sum);
        weight / count.max(1)
    };
    number(event.period.or_else(by_frequency).unwrap_or_else(mean)).max(1)
}

/// A mapping: a segment of an image among the made-up addresses.
struct Mapped {
    id: u64,
    /// The offset of its first byte in the image.
    first: u64,
    /// The address of that byte.
    start: u64,
}

/// The mappings of an image by segment; None is the part of the file that is in no known segment.
type Mappings = BTreeMap<Option<usize>, Mapped>;

/// Adds the mappings of each image: its segments with frames, in whole pages as the kernel maps them. Two
/// segments of a file may share a page, and have addresses of their own.
fn mappings(profile: &Profile, strings: &mut Strings, part: &mut proto::Profile) -> Vec<Mappings> {
    let mut has_lines = vec![false; profile.images.len()];
    // The offsets of the first and the last frame of each segment.
    let mut segments: Vec<BTreeMap<Option<usize>, (u64, u64)>> = Vec::new();
    segments.resize_with(profile.images.len(), BTreeMap::new);
    for frame in &profile.frames {
        let Some(index) = frame.image.map(|image| image as usize) else { continue };
        has_lines[index] |= frame.calls.iter().any(|call| call.line > 0);
        let segment = profile.images[index].segment_of(frame.offset);
        let (first, last) = segments[index].entry(segment).or_insert((frame.offset, frame.offset));
        (*first, *last) = ((*first).min(frame.offset), (*last).max(frame.offset));
    }
    let mut all = Vec::with_capacity(profile.images.len());
    // go tool pprof disassembles code only at the addresses at which it is linked.
    let linked = profile.images.first().and_then(|program| linked_end(program, &segments[0]));
    let mut next = linked.unwrap_or(ALIGNMENT);
    for ((image, has_lines), segments) in profile.images.iter().zip(has_lines).zip(segments) {
        let mut of_image = Mappings::new();
        let is_linked = linked.is_some() && all.is_empty();
        for (segment, (first, last)) in segments {
            let known = segment.map(|index| image.segments[index]);
            let (first, length) = pages(known, first, last);
            let start = match known.filter(|_| is_linked) {
                Some(known) => known.address - (known.offset - first),
                None => {
                    let after = next.checked_add(length);
                    let after = after.and_then(|after| after.checked_next_multiple_of(ALIGNMENT));
                    // Anonymous memory has addresses of its own, which may take all there are.
                    let start = if after.is_some() { next } else { first };
                    next = after.unwrap_or(next);
                    start
                }
            };
            let id = part.mapping.len() as u64 + 1;
            of_image.insert(segment, Mapped { id, first, start });
            part.mapping.push(proto::Mapping {
                id,
                memory_start: start,
                memory_limit: start.saturating_add(length),
                file_offset: first,
                filename: strings.index(&image.path),
                build_id: strings.index(&image.build_id),
                // Otherwise pprof would look for the symbols on its own machine.
                has_functions: image.is_symbolized,
                has_filenames: image.is_symbolized && has_lines,
                has_line_numbers: image.is_symbolized && has_lines,
                has_inline_frames: image.is_symbolized,
            });
        }
        all.push(of_image);
    }
    all
}

/// Returns the offset of the first page of a segment in its file, and the length of its pages. Of an unknown
/// segment, the pages of its first to its last frame.
fn pages(segment: Option<LoadSegment>, first: u64, last: u64) -> (u64, u64) {
    let (first, end) = match segment {
        Some(segment) => (segment.offset, segment.offset.saturating_add(segment.size)),
        None => (first, last.saturating_add(1)),
    };
    let first = first / PAGE * PAGE;
    (first, end.checked_next_multiple_of(PAGE).unwrap_or(end) - first)
}

/// Returns an address after all segments of a program where it is linked. None if a segment is unknown, or the
/// segments overlap there.
fn linked_end(program: &Image, segments: &BTreeMap<Option<usize>, (u64, u64)>) -> Option<u64> {
    let mut ranges = Vec::new();
    for (&segment, &(first, last)) in segments {
        let known = program.segments[segment?];
        let (page, length) = pages(Some(known), first, last);
        let start = known.address.checked_sub(known.offset - page)?;
        ranges.push((start, start.checked_add(length)?));
    }
    ranges.sort_unstable();
    let overlap = ranges.windows(2).any(|pair| pair[0].1 > pair[1].0);
    let &(_, end) = ranges.last().filter(|_| !overlap)?;
    end.checked_next_multiple_of(ALIGNMENT).filter(|&end| end < USER_SPACE)
}

/// Adds a location for each frame, and the functions.
fn locations(
    profile: &Profile,
    mappings: &[Mappings],
    strings: &mut Strings,
    part: &mut proto::Profile,
) {
    for (function, id) in profile.functions.iter().zip(1..) {
        let name = strings.index(&function.name);
        let filename = strings.index(&function.file);
        part.function.push(proto::Function {
            id,
            name,
            // pprof takes a name that equals the name of the system for mangled, and removes all that is in
            // brackets: <u32 as Add>::add would be ::add.
            system_name: 0,
            filename,
            start_line: i64::from(function.start_line),
        });
    }
    for (frame, id) in profile.frames.iter().zip(1..) {
        let place = frame.image.map(|image| {
            let segment = profile.images[image as usize].segment_of(frame.offset);
            // Every frame of an image is in one of its mappings.
            let Some(mapped) = mappings[image as usize].get(&segment) else { return (0, 0) };
            (mapped.id, mapped.start.saturating_add(frame.offset - mapped.first))
        });
        let (mapping_id, address) = place.unwrap_or((0, frame.offset));
        let line = |call: &crate::model::CallSite| proto::Line {
            function_id: u64::from(call.function) + 1,
            line: i64::from(call.line),
        };
        part.location.push(proto::Location {
            id,
            mapping_id,
            address,
            line: frame.calls.iter().map(line).collect(),
            // Streams do not state it.
            is_folded: false,
        });
    }
}

/// Returns the properties that the samples of all events in one row share.
fn row(sample: &Sample) -> (u32, u32, Option<u32>) {
    (sample.thread, sample.name, sample.stack)
}

fn sorted(profile: &Profile) -> Vec<Sample> {
    let mut samples = profile.samples.clone();
    samples.sort_by_key(|sample| (row(sample), sample.event));
    samples
}

/// Returns the samples of one row.
fn sample_of(profile: &Profile, samples: &[Sample], strings: &mut Strings) -> proto::Sample {
    let first = samples[0];
    let mut value = vec![0_i64; 2 * profile.events.len()];
    for sample in samples {
        let at = 2 * sample.event as usize;
        value[at] = value[at].saturating_add(number(sample.count));
        value[at + 1] = value[at + 1].saturating_add(number(sample.weight));
    }
    let stacks = std::iter::successors(first.stack, |&at| profile.stacks[at as usize].parent);
    let location = |stack: u32| u64::from(profile.stacks[stack as usize].frame) + 1;
    // No key may have both strings and numbers.
    let thread = &profile.threads[first.thread as usize];
    let mut number_label = |key: &str, num: u32| proto::Label {
        key: strings.index(key),
        num: i64::from(num),
        ..proto::Label::default()
    };
    let mut label = vec![number_label("pid", thread.pid), number_label("tid", thread.tid)];
    let comm = strings.index(&profile.names[first.name as usize]);
    label.push(proto::Label { key: strings.index("comm"), str: comm, ..proto::Label::default() });
    proto::Sample { location_id: stacks.map(location).collect(), value, label }
}

/// Returns a number as the format has it: signed.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
