//! Heap profiles in text: `heap_v2` of jemalloc, and `heap profile:` of tcmalloc and Go. The text of
//! /proc/self/maps follows the stacks.
//!
//! A profiler samples bytes at random: a stack is seen with the probability 1 - exp(-size / interval). pprof
//! and jeprof divide by it, and so does this module: the numbers are estimates, without margins of error.

use std::io::{Read, Write};

use nprof_stream::{Event, EventId, ExtrasBuilder, Head, Measure, Sample, Step, Writer, limits};

use super::error::Error;
use super::mapped::MappedFiles;
use super::whole;
use crate::output::{Output, Place, TaskDef, plain_sample};

/// The longest profile. Its mappings come last, so that all of it is read before the first sample. The rows of
/// shortest lines take five times their bytes.
const MAX_BYTES: u64 = 128 << 20;

/// The line before the mappings.
const MAPPINGS: &[u8] = b"MAPPED_LIBRARIES:";

/// The first line of jemalloc's profiles, up to the sampling interval.
const JEMALLOC: &[u8] = b"heap_v2/";

/// The first line of other profiles, up to the sums.
const TCMALLOC: &[u8] = b"heap profile:";

/// Blocks and bytes.
type Sum = (u64, u64);

/// True if this is the beginning of a heap profile.
pub(crate) fn is_heap_profile(start: &[u8]) -> bool {
    start.starts_with(JEMALLOC) || start.starts_with(TCMALLOC)
}

/// Imports a profile as one segment.
///
/// # Errors
///
/// If it is malformed, and if the output fails.
pub(crate) fn import<W: Write>(
    input: impl Read,
    step: Step,
    writer: Writer<W>,
) -> anyhow::Result<Writer<W>> {
    let bytes = whole::read(input, MAX_BYTES)?;
    let profile = Profile::parse(&bytes)?;
    let mut files = MappedFiles::parse(profile.maps);
    let command = files.program().to_vec();
    let head = Head { run: whole::run_of(&bytes), command: command.clone(), ..Head::default() };
    let mut output = Output::begin(writer, head, step)?;
    // In the order of pprof, which calls them so.
    let allocated = profile.has_allocated.then(|| event("alloc_space"));
    let allocated = allocated.map(|event| output.event(event)).transpose()?;
    let live = output.event(event("inuse_space"))?;
    let comm = command.rsplit(|&byte| byte == b'/').next().unwrap_or_default().into();
    let task = output.task(TaskDef { comm, exe: command.into(), ..TaskDef::default() });
    for Row { addresses, sums } in &profile.rows {
        // The allocator walks its own stack: each address is one to which a call returns.
        let mut stack: Vec<Place> =
            addresses.iter().map(|&address| files.place(address, true, &mut output)).collect();
        stack.reverse();
        for (event, sum) in [(allocated, sums[1]), (Some(live), sums[0])] {
            if let Some(event) = event.filter(|_| sum != (0, 0)) {
                write_sample(&mut output, event, profile.scaled(sum), task, &stack)?;
            }
        }
    }
    Ok(output.end(true)?)
}

fn event(name: &str) -> Event {
    Event {
        name: name.as_bytes().to_vec(),
        unit: Measure::Bytes.unit().into(),
        measure: Measure::Bytes,
        scaled: b"yes".to_vec(),
        ..Event::default()
    }
}

fn write_sample<W: Write>(
    output: &mut Output<W>,
    event: EventId,
    (blocks, bytes): Sum,
    task: u32,
    stack: &[Place],
) -> anyhow::Result<()> {
    let mut extras = ExtrasBuilder::new();
    // Otherwise the bytes would be those of one block.
    extras.add_number("blocks", blocks);
    let extras = extras.extras();
    let sample = Sample { count: blocks, extras, ..plain_sample(event, bytes) };
    Ok(output.sample(sample, task, stack)?)
}

/// The contents of a profile.
struct Profile<'a> {
    /// The mean number of bytes between two samples. None if every block is recorded.
    interval: Option<u64>,
    /// True if it has the sums of all blocks, not only of those that live.
    has_allocated: bool,
    rows: Vec<Row>,
    /// The text of /proc/self/maps.
    maps: &'a [u8],
}

/// A stack.
struct Row {
    /// Leaf first.
    addresses: Vec<u64>,
    /// Of live blocks, and of all that were allocated.
    sums: [Sum; 2],
}

impl<'a> Profile<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut lines = Lines { rest: bytes, number: 0 };
        let first = lines.next().unwrap_or_default();
        match first.strip_prefix(JEMALLOC) {
            Some(interval) => Self::parse_jemalloc(interval, &mut lines),
            None => Self::parse_tcmalloc(first, &mut lines),
        }
    }

    /// Parses a line `@ ADDRESS...` for each stack, and lines with the sums of all threads (`t*`) and of each.
    fn parse_jemalloc(interval: &[u8], lines: &mut Lines<'a>) -> Result<Self, Error> {
        let interval = text(interval).and_then(|text| text.parse().ok());
        let interval = interval.ok_or_else(|| lines.error("it has no sampling interval"))?;
        let mut profile = Self::new(Some(interval));
        let mut stack = None;
        while let Some(line) = lines.next() {
            if line == MAPPINGS {
                profile.maps = lines.rest;
                return Ok(profile);
            }
            if let Some(addresses) = line.strip_prefix(b"@") {
                stack = Some(lines.addresses(addresses)?);
            } else if let Some(sums) = line.strip_prefix(b"t*:") {
                let sums = lines.sums(sums)?;
                match stack.take() {
                    Some(addresses) => profile.rows.push(Row { addresses, sums }),
                    // Those of all stacks.
                    None => profile.has_allocated |= sums[1] != (0, 0),
                }
            } else if !line.is_empty() && !line.starts_with(b"t") {
                return Err(lines.error("it is neither a stack nor a sum of a thread"));
            }
        }
        Err(lines.error(CUT))
    }

    /// Parses lines `BLOCKS: BYTES [BLOCKS: BYTES] @ ADDRESS...`. The first one has the sums of all stacks and
    /// the kind of the profile.
    fn parse_tcmalloc(first: &[u8], lines: &mut Lines<'a>) -> Result<Self, Error> {
        let problem = "it has no sums and kind, as in: heap profile: 1: 8 [1: 8] @ heapprofile";
        let first = first.strip_prefix(TCMALLOC).and_then(split_at_sign);
        let (sums, kind) = first.ok_or_else(|| lines.error(problem))?;
        let sums = lines.sums(sums)?;
        let mut kind = kind.splitn(2, |&byte| byte == b'/');
        let word = kind.next().unwrap_or_default();
        let number = kind.next().map(|digits| text(digits).and_then(|text| text.parse().ok()));
        let interval: Option<u64> = match (word, number) {
            (b"heapprofile", _) => None,
            (b"heap_v2" | b"heapz_v2", Some(Some(interval))) => Some(interval),
            // Go and older versions of tcmalloc state the double.
            (b"heap", Some(Some(interval))) => Some(interval / 2),
            _ => return Err(lines.error(problem)),
        };
        let mut profile = Self::new(interval);
        profile.has_allocated = sums[1] != (0, 0);
        while let Some(line) = lines.next() {
            if line == MAPPINGS {
                profile.maps = lines.rest;
                return Ok(profile);
            }
            // Go adds names as comments.
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let problem = "it is no line BLOCKS: BYTES [BLOCKS: BYTES] @ ADDRESSES";
            let (sums, addresses) = split_at_sign(line).ok_or_else(|| lines.error(problem))?;
            let (sums, addresses) = (lines.sums(sums)?, lines.addresses(addresses)?);
            profile.rows.push(Row { addresses, sums });
        }
        // Those of Go have none.
        if word == b"heap" { Ok(profile) } else { Err(lines.error(CUT)) }
    }

    fn new(interval: Option<u64>) -> Self {
        // Everything is sampled at an interval of one byte.
        let interval = interval.filter(|&interval| interval > 1);
        Self { interval, has_allocated: false, rows: Vec::new(), maps: b"" }
    }

    /// Returns the estimates of all blocks and bytes, given those of the sampled ones.
    fn scaled(&self, (blocks, bytes): Sum) -> Sum {
        let Some(interval) = self.interval.filter(|_| blocks > 0) else { return (blocks, bytes) };
        let mean = bytes as f64 / blocks as f64;
        let seen = -f64::exp_m1(-mean / interval as f64);
        if seen <= 0.0 {
            return (blocks, bytes);
        }
        // Conversions saturate.
        ((blocks as f64 / seen) as u64, (bytes as f64 / seen) as u64)
    }
}

/// The problem of a file without mappings.
const CUT: &str = "the file ends before its mappings (MAPPED_LIBRARIES)";

/// The lines of a profile.
struct Lines<'a> {
    rest: &'a [u8],
    number: u64,
}

impl<'a> Lines<'a> {
    /// Returns the next line without blanks around it.
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        self.number += 1;
        Some(line.trim_ascii())
    }

    fn error(&self, problem: &'static str) -> Error {
        Error::Line { line: self.number, problem }
    }

    /// Parses `BLOCKS: BYTES [BLOCKS: BYTES]`.
    fn sums(&self, line: &[u8]) -> Result<[Sum; 2], Error> {
        let is_separator = |byte: &u8| byte.is_ascii_whitespace() || b":[]".contains(byte);
        let words = line.split(is_separator).filter(|word| !word.is_empty());
        let numbers: Option<Vec<u64>> = words.map(|word| text(word)?.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[live, live_bytes, all, all_bytes]) => Ok([(live, live_bytes), (all, all_bytes)]),
            _ => Err(self.error("it has no numbers as in 3: 48 [5: 80]")),
        }
    }

    /// Parses `0x1 0x2`, up to the depth of the deepest stack of a stream.
    fn addresses(&self, line: &[u8]) -> Result<Vec<u64>, Error> {
        let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let address = |word: &[u8]| u64::from_str_radix(text(word)?.strip_prefix("0x")?, 16).ok();
        let addresses: Option<Vec<u64>> = words.take(limits::DEPTH).map(address).collect();
        addresses.ok_or_else(|| self.error("an address is no hexadecimal number"))
    }
}

/// Returns the parts of a line before and after its `@`.
fn split_at_sign(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b'@', line)?;
    Some((&line[..at], line[at + 1..].trim_ascii()))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
