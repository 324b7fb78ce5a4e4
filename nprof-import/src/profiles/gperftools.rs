//! CPU profiles of gperftools (docs/cpuprofile-fileformat.html): words of 64 bits, then the text of
//! /proc/self/maps.

use std::io::{Read, Write};

use nprof_stream::{Event, Head, Measure, Sample, Step, Writer};

use super::error::Error;
use super::mapped::MappedFiles;
use super::whole;
use crate::output::{Output, TaskDef, plain_sample};

/// The longest profile. Its mappings come last, so that all of it is read before the first sample.
const MAX_BYTES: u64 = 256 << 20;

/// True if this is the beginning of a CPU profile: 0, the length of the rest of the header, and the
/// version 0.
pub(crate) fn is_cpu_profile(start: &[u8]) -> bool {
    let word =
        |at: usize| start.get(8 * at..8 * at + 8).map(|bytes| bytes.iter().position(|&b| b != 0));
    word(0) == Some(None) && start.get(8) == Some(&3) && word(2) == Some(None)
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
    let mut words = Words { bytes: &bytes, at: 0 };
    let header = [words.next()?, words.next()?, words.next()?, words.next()?];
    // Later versions have a longer header, after which the samples begin.
    for _ in 2..header[1].min(64) {
        words.next()?;
    }
    let period = header[3].saturating_mul(1000);
    let mut samples = Vec::new();
    loop {
        let (count, depth) = (words.next()?, words.next()?);
        let offset = words.at as u64;
        // The trailer is a sample of nothing.
        if count == 0 {
            words.next()?;
            break;
        }
        if depth > words.left() as u64 / 8 {
            let problem = "a stack is longer than the file";
            return Err(Error::Damaged { offset, problem }.into());
        }
        let stack: Result<Vec<u64>, Error> = (0..depth).map(|_| words.next()).collect();
        samples.push((count, stack?));
    }
    let mut files = MappedFiles::parse(&bytes[words.at..]);
    let command = files.program().to_vec();
    let head = Head { run: whole::run_of(&bytes), command: command.clone(), ..Head::default() };
    let mut output = Output::begin(writer, head, step)?;
    let event = output.event(Event {
        name: b"cpu".to_vec(),
        unit: b"ns".to_vec(),
        measure: Measure::CpuTime,
        period: Some(period).filter(|&period| period > 0),
        ..Event::default()
    })?;
    let comm = command.rsplit(|&byte| byte == b'/').next().unwrap_or_default().into();
    let task = output.task(TaskDef { comm, exe: command.into(), ..TaskDef::default() });
    for (count, addresses) in samples {
        let mut stack = Vec::with_capacity(addresses.len());
        for (index, address) in addresses.into_iter().enumerate() {
            // The leaf was interrupted, the others are return addresses.
            stack.push(files.place(address, index > 0, &mut output));
        }
        stack.reverse();
        let weight = period.saturating_mul(count);
        output.sample(Sample { count, ..plain_sample(event, weight) }, task, &stack)?;
    }
    Ok(output.end(true)?)
}

/// The words of a file.
struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Words<'_> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn next(&mut self) -> Result<u64, Error> {
        let word = self.bytes.get(self.at..self.at + 8).and_then(|bytes| bytes.try_into().ok());
        let (offset, problem) = (self.at as u64, "the file ends within its samples");
        let word = word.ok_or(Error::Damaged { offset, problem })?;
        self.at += 8;
        Ok(u64::from_le_bytes(word))
    }
}
