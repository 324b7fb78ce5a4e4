//! From the records of perf to those of a stream.

use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{Read, Write};

use nprof_stream::{Cause, EventId, Extras, Head, NodeId, RunId, Sample, Step, TaskId, Writer};
use nprof_unwind::arch;
use rustc_hash::{FxHashMap, FxHasher};

use super::attribute::Attribute;
use super::bytes::Bytes;
use super::compression::Decompressor;
use super::error::Error;
use super::executed::add_executed_files;
use super::file::{Counted, Preamble, preamble};
use super::machine::Machine;
use super::order::Order;
use super::record::{self, Content, SampleContent, kind};
use crate::output::Output;
use crate::unwind::{ImageFiles, Lacking, machine_of};

/// The result of an import.
#[derive(Debug, Default)]
pub(crate) struct Imported {
    /// The reason why the file was not read to its end. The stream has all records before it.
    pub(crate) incomplete: Option<Error>,
    /// The architecture of the machine, if there are copies of user stacks that are not unwound because of it.
    pub(crate) unknown_machine: Option<Vec<u8>>,
    /// The paths of files without which copies of stacks are incomplete.
    pub(crate) lacking: Vec<(Vec<u8>, Lacking)>,
}

/// Imports a recording as one segment. `file` is the same input, for the sections at its end; `images` finds
/// the files by which copies of stacks are unwound.
///
/// # Errors
///
/// If nothing can be imported, or the output fails.
pub(crate) fn import<W: Write>(
    input: impl Read,
    file: Option<&File>,
    images: ImageFiles,
    step: Step,
    writer: Writer<W>,
) -> Result<(Imported, Writer<W>), Error> {
    let mut input = Counted::new(input);
    let preamble = preamble(&mut input, file)?;
    let mut importer = Importer::new(preamble, images, step, writer);
    let mut result = importer.read(&mut input);
    // The decompressor keeps records of a recording that was cut off, too.
    if !matches!(result, Err(Error::Io(_))) {
        result = result.and(importer.finish());
    }
    // Records before damage are valid, and some of them still wait for their turn.
    let ready = importer.order.finish();
    importer.write(ready)?;
    let has_stack_copies = importer.attributes.iter().any(Attribute::has_stack_copies);
    let is_unknown = has_stack_copies && importer.architecture().is_none();
    let unknown_machine = is_unknown.then(|| importer.preamble.features.arch.clone());
    let lacking = importer.machine.lacking();
    let incomplete = match result {
        Ok(()) => importer.preamble.damage.take(),
        // An error of the output is final.
        Err(error @ Error::Io(_)) => return Err(error),
        Err(error) => Some(error),
    };
    let Some(output) = importer.output else {
        return match incomplete {
            Some(error) => Err(error),
            None => Err(Error::Unsupported("it has no records")),
        };
    };
    let writer = output.end(incomplete.is_none())?;
    Ok((Imported { incomplete, unknown_machine, lacking }, writer))
}

struct Importer<W: Write> {
    attributes: Vec<Attribute>,
    attribute_by_id: FxHashMap<u64, usize>,
    preamble: Preamble,
    order: Order<Content>,
    decompressor: Option<Decompressor>,
    machine: Machine,
    /// The head is written before the first record in order of time, when all events are known.
    begin: Option<(Step, Writer<W>)>,
    output: Option<Output<W>>,
    events: Vec<EventId>,
    last_time: u64,
}

impl<W: Write> Importer<W> {
    fn new(mut preamble: Preamble, images: ImageFiles, step: Step, writer: Writer<W>) -> Self {
        let attributes = std::mem::take(&mut preamble.attributes);
        let mut importer = Self {
            attributes,
            attribute_by_id: FxHashMap::default(),
            preamble,
            order: Order::default(),
            decompressor: None,
            machine: Machine::new(images),
            begin: Some((step, writer)),
            output: None,
            events: Vec::new(),
            last_time: 0,
        };
        for (number, attribute) in importer.attributes.iter().enumerate() {
            importer.attribute_by_id.extend(attribute.ids.iter().map(|&id| (id, number)));
        }
        importer
    }

    /// Reads all records.
    fn read(&mut self, input: &mut Counted<impl Read>) -> Result<(), Error> {
        let end = self.preamble.data_size.map(|size| input.offset.saturating_add(size));
        let mut body = Vec::new();
        while end.is_none_or(|end| input.offset < end) {
            let offset = input.offset;
            let mut header = [0; 8];
            if !input.fill(&mut header, "the header of a record")? {
                // A pipe ends anywhere between two records; a file states its size.
                return match end {
                    None => Ok(()),
                    Some(_) => Err(Error::Truncated { offset, part: "the records" }),
                };
            }
            let mut at = Bytes(&header);
            let (kind, misc) = (at.u32().unwrap_or_default(), at.u16().unwrap_or_default());
            let size = usize::from(at.u16().unwrap_or_default());
            let problem = "the size of a record is wrong";
            let size = size.checked_sub(8).ok_or(Error::Damaged { offset, problem })?;
            // At most 64 KiB, as the size has 16 bits.
            body.resize(size, 0);
            if size > 0 && !input.fill(&mut body, "a record")? {
                return Err(Error::Truncated { offset: input.offset, part: "a record" });
            }
            let problem = "a record is shorter than its fields";
            let damaged = Error::Damaged { offset, problem };
            match kind {
                // The trace of the processor follows the record.
                kind::AUXTRACE => {
                    let trace = Bytes(&body).u64().ok_or(damaged)?;
                    input.skip(trace, "a trace of the processor")?;
                }
                kind::COMPRESSED | kind::COMPRESSED2 => {
                    let compressed = compressed(kind, &body).ok_or(damaged)?;
                    self.decompress(Some(compressed), offset)?;
                }
                kind::FINISHED_ROUND if self.decompressor.is_none() => {
                    let ready = self.order.finish_round();
                    self.write(ready)?;
                }
                _ => self.take(kind, misc, &body, offset)?,
            }
        }
        Ok(())
    }

    /// Decompresses the next bytes, or the end of the stream.
    fn decompress(&mut self, bytes: Option<&[u8]>, offset: u64) -> Result<(), Error> {
        let mut decompressor = self.decompressor.take().unwrap_or_else(Decompressor::new);
        let added = match bytes {
            Some(bytes) => decompressor.add(bytes),
            None => decompressor.finish(),
        };
        let problem = "compressed records are damaged";
        added.ok_or(Error::Damaged { offset, problem })?;
        let mut at = 0;
        while let Some((kind, misc, body)) = decompressor.next_record(&mut at) {
            self.take(kind, misc, body, offset)?;
        }
        decompressor.drop_before(at);
        self.decompressor = Some(decompressor);
        Ok(())
    }

    fn take(&mut self, kind: u32, misc: u16, body: &[u8], offset: u64) -> Result<(), Error> {
        let problem = "a record is shorter than its fields";
        let damaged = Error::Damaged { offset, problem };
        if kind >= kind::FIRST_OF_PERF {
            return self.take_fact(kind, misc, body).ok_or(damaged);
        }
        let problem = "a record precedes the attributes of all events";
        let first = self.attributes.first().ok_or(Error::Damaged { offset, problem })?;
        let (id, time) = record::identification(kind, body, first);
        // A single event needs no ids.
        let number = self.attribute_by_id.get(&id).copied().unwrap_or(0);
        let content = record::content(kind, misc, body, number, &self.attributes[number]);
        if let Some(content) = content.ok_or(damaged)? {
            let ready = self.order.add(time, content.bytes(), content);
            self.write(ready)?;
        }
        Ok(())
    }

    /// Takes a record of perf itself, which is in pipes. None if it is malformed.
    fn take_fact(&mut self, kind: u32, misc: u16, body: &[u8]) -> Option<()> {
        let mut at = Bytes(body);
        match kind {
            kind::ATTR => {
                let mut attribute = Attribute::decode(body)?;
                let size = usize::try_from(Bytes(body.get(4..)?).u32()?).ok()?;
                let ids = body.get(size..)?;
                attribute.ids = ids.chunks_exact(8).filter_map(|id| Bytes(id).u64()).collect();
                let number = self.attributes.len();
                self.attribute_by_id.extend(attribute.ids.iter().map(|&id| (id, number)));
                self.attributes.push(attribute);
            }
            kind::FEATURE => {
                let feature = u32::try_from(at.u64()?).ok()?;
                if !self.preamble.features.add(feature, at.0) {
                    return None;
                }
            }
            kind::EVENT_UPDATE => {
                // PERF_EVENT_UPDATE__NAME is 2.
                let (update, id) = (at.u64()?, at.u64()?);
                if update == 2 {
                    self.preamble.features.event_names.push((at.text().to_vec(), vec![id]));
                }
            }
            kind::BUILD_ID => self.preamble.features.build_id(misc, body)?,
            _ => {}
        }
        Some(())
    }

    /// Writes records in order of time.
    fn write(&mut self, mut records: Vec<(u64, Content)>) -> Result<(), Error> {
        add_executed_files(&mut records);
        for (time, content) in records {
            // perf makes up records of processes that ran before it began; they have no time.
            let time = if time == 0 { self.last_time } else { time };
            self.last_time = self.last_time.max(time);
            if self.output.is_none() && time > 0 {
                self.begin(time)?;
            }
            match (content, &mut self.output) {
                (Content::Sample(sample), _) => self.sample(time, &sample)?,
                (Content::Lost(count), Some(output)) => output.lost(time, count, Cause::Ring)?,
                (Content::Throttle, Some(output)) => output.lost(time, 0, Cause::Throttle)?,
                (content, output) => {
                    let build_ids = &self.preamble.features.build_ids;
                    self.machine.take(time, content, build_ids, output.as_mut())?;
                }
            }
        }
        Ok(())
    }

    /// Writes the beginning of the stream.
    fn begin(&mut self, time: u64) -> Result<(), Error> {
        let Some((step, writer)) = self.begin.take() else { return Ok(()) };
        let features = &self.preamble.features;
        features.name_events(&mut self.attributes);
        let mut hasher = FxHasher::default();
        (time, &features.host, &features.command).hash(&mut hasher);
        let head = Head {
            // The same file is the same run.
            run: RunId(hasher.finish()),
            time: Some(time),
            host: features.host.clone(),
            os: if features.os.is_empty() {
                Vec::new()
            } else {
                [b"Linux ", &features.os[..]].concat()
            },
            arch: features.arch.clone(),
            cpu: features.cpu.clone(),
            cpus: features.cpus,
            command: nprof_cli::shell::quoted(features.command.iter().map(as_os)),
            ..Head::default()
        };
        let mut output = Output::begin(writer, head, step)?;
        for attribute in &self.attributes {
            self.events.push(output.event(attribute.event())?);
        }
        self.machine.define_images(&mut output);
        self.output = Some(output);
        Ok(())
    }

    fn sample(&mut self, time: u64, content: &SampleContent) -> Result<(), Error> {
        self.begin(time)?;
        let architecture = self.architecture();
        let Some(output) = &mut self.output else { return Ok(()) };
        let attribute = &self.attributes[content.attribute];
        let stack = self.machine.stack(content, attribute, architecture);
        let task = self.machine.task_of(time, content.pid, content.tid, output)?;
        let sample = Sample {
            time,
            // Attributes of a pipe that come after the first sample have no event.
            event: self.events.get(content.attribute).copied().unwrap_or(EventId::NONE),
            task: TaskId::NONE,
            cpu: content.cpu.unwrap_or(nprof_stream::NO_CPU),
            node: NodeId::NONE,
            weight: content.period.unwrap_or_else(|| attribute.fixed_period()),
            count: 1,
            extras: Extras::NONE,
        };
        output.sample(sample, task, &stack)?;
        Ok(())
    }

    /// Returns the architecture of the recorded machine. None if its stacks are not unwound.
    fn architecture(&self) -> Option<arch::Machine> {
        match &self.preamble.features.arch[..] {
            b"" => Some(arch::Machine::NATIVE),
            name => machine_of(name),
        }
    }

    /// Takes the records at the end of a compressed stream, which the decompressor still keeps.
    fn finish(&mut self) -> Result<(), Error> {
        if self.decompressor.is_some() { self.decompress(None, 0) } else { Ok(()) }
    }
}

fn as_os(word: &Vec<u8>) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(word.as_slice())
}

/// Returns the compressed bytes of a record. None if it is malformed.
fn compressed(kind: u32, body: &[u8]) -> Option<&[u8]> {
    let mut at = Bytes(body);
    // Since Linux 6.16 a record has its size, and is padded.
    if kind == kind::COMPRESSED2 {
        let size = at.u64()?;
        return at.take(usize::try_from(size).ok()?);
    }
    Some(body)
}
