//! The binary spelling of one record's body, and of a block's header.
//!
//! A block is a header of [`HEADER`] bytes, a payload of records, and a CRC-32C over both. A
//! record is its kind (one byte), the length of its body (a varint) and its body: the fields in
//! their order, then the extras up to its end. Numbers are varints, strings are a length and
//! bytes. What a sample shares with the one before it in its block is left out; nothing refers
//! out of a block but ids.

use crate::error::Malformed;
use crate::extras::Extras;
use crate::kind;
use crate::limits::{self, clip};
use crate::meta::{End, Epoch, Event, Head, Ran, Step};
use crate::number::{push_varint, unzigzag, zigzag};
use crate::record::*;

/// The first bytes of every block: no text begins so, and a transfer that strips the eighth
/// bit or changes line ends breaks it visibly (the idea is PNG's).
pub(crate) const MARK: [u8; 8] = *b"\x89NPF\r\n\x1a\n";

/// The length of a block's header.
pub(crate) const HEADER: usize = 48;

/// The length of the CRC after the payload.
pub(crate) const TRAILER: usize = 4;

/// A block's header. Little-endian, in this order, between the mark and the header's own CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) major: u8,
    pub(crate) minor: u8,
    /// Flags a reader must understand; none is defined yet.
    pub(crate) must: u8,
    /// Flags a reader may ignore; none is defined yet.
    pub(crate) may: u8,
    /// The payload's length.
    pub(crate) length: u32,
    pub(crate) run: u64,
    /// 0 for a segment's first block, then one more each.
    pub(crate) sequence: u32,
    /// How many samples the segment holds before this block.
    pub(crate) samples: u64,
    /// What the block's first time counts from, ns.
    pub(crate) time: u64,
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..8].copy_from_slice(&MARK);
        bytes[8..12].copy_from_slice(&[self.major, self.minor, self.must, self.may]);
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.run.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.samples.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.time.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..44]);
        bytes[44..48].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header; `None` when the mark, the CRC or the length is wrong.
    pub(crate) fn from_bytes(bytes: &[u8; HEADER]) -> Option<Self> {
        if bytes[..8] != MARK || crc32c::crc32c(&bytes[..44]) != le32(&bytes[44..48]) {
            return None;
        }
        let header = Self {
            major: bytes[8],
            minor: bytes[9],
            must: bytes[10],
            may: bytes[11],
            length: le32(&bytes[12..16]),
            run: le64(&bytes[16..24]),
            sequence: le32(&bytes[24..28]),
            samples: le64(&bytes[28..36]),
            time: le64(&bytes[36..44]),
        };
        (header.length as usize <= limits::PAYLOAD).then_some(header)
    }
}

/// The CRC over header and payload that ends a block.
pub(crate) fn block_crc(header: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), payload)
}

pub(crate) fn le32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

fn le64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// What one record leaves for the next one in its block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delta {
    /// The time of the last record that has one; before the first, the block's.
    pub(crate) time: u64,
    event: EventId,
    task: TaskId,
    cpu: u32,
    weight: u64,
}

impl Delta {
    /// The state at the beginning of a block.
    pub(crate) fn new(time: u64) -> Self {
        Self { time, cpu: NO_CPU, ..Self::default() }
    }
}

const EVENT_GIVEN: u8 = 1;
const TASK_GIVEN: u8 = 2;
const CPU_GIVEN: u8 = 4;
const WEIGHT_GIVEN: u8 = 8;
const COUNT_GIVEN: u8 = 16;

const KERNEL: u8 = 1;
const RETURN_ADDRESS: u8 = 2;

/// Appends a record: kind, length, body.
pub(crate) fn push_record(out: &mut Vec<u8>, record: &Record<'_>, delta: &mut Delta) {
    let start = out.len();
    // Nearly every body is shorter than 128 bytes, so that its length takes one byte.
    out.extend_from_slice(&[record.kind(), 0]);
    push_body(out, record, delta);
    let length = out.len() - start - 2;
    if length < 0x80 {
        out[start + 1] = length as u8;
        return;
    }
    let mut spelled = Vec::with_capacity(4);
    push_varint(&mut spelled, length as u64);
    out.splice(start + 1..start + 2, spelled);
}

/// Appends a record's body.
pub(crate) fn push_body(out: &mut Vec<u8>, record: &Record<'_>, delta: &mut Delta) {
    match record {
        Record::Sample(sample) => push_sample(out, sample, delta),
        Record::Nodes(nodes) => {
            push_varint(out, u64::from(nodes.first.0));
            push_varint(out, u64::from(nodes.parent.0));
            for frame in nodes.frames {
                push_varint(out, u64::from(frame.0));
            }
        }
        Record::Frame(frame) => {
            push_varint(out, u64::from(frame.id.0));
            push_varint(out, u64::from(frame.image.0));
            push_varint(out, frame.offset);
            out.push(
                if frame.kernel { KERNEL } else { 0 }
                    | if frame.return_address { RETURN_ADDRESS } else { 0 },
            );
            out.push(frame.mark.number());
            out.extend_from_slice(frame.extras.spelling());
        }
        Record::Task(task) => {
            push_varint(out, u64::from(task.id.0));
            push_time(out, task.time, delta);
            push_varint(out, u64::from(task.pid));
            push_varint(out, u64::from(task.tid));
            push_varint(out, u64::from(task.parent.0));
            push_string(out, task.comm);
            out.extend_from_slice(task.extras.spelling());
        }
        Record::Change(change) => {
            push_time(out, change.time, delta);
            push_varint(out, u64::from(change.task.0));
            out.push(change.kind.number());
            push_string(out, change.value);
            out.extend_from_slice(change.extras.spelling());
        }
        Record::Lost(lost) => {
            push_time(out, lost.time, delta);
            push_varint(out, u64::from(lost.event.0));
            push_cpu(out, lost.cpu);
            push_varint(out, u64::from(lost.task.0));
            push_varint(out, lost.count);
            out.push(lost.cause.number());
            out.extend_from_slice(lost.extras.spelling());
        }
        Record::Image(image) => {
            push_varint(out, u64::from(image.id.0));
            out.push(image.kind.number());
            push_string(out, &image.build_id[..image.build_id.len().min(limits::BUILD_ID)]);
            push_string(out, image.path);
            out.extend_from_slice(image.extras.spelling());
        }
        Record::Function(function) => {
            push_varint(out, u64::from(function.id.0));
            push_string(out, function.name);
            push_string(out, function.linkage);
            out.extend_from_slice(function.extras.spelling());
        }
        Record::File(file) => {
            push_varint(out, u64::from(file.id.0));
            push_string(out, file.path);
            out.extend_from_slice(file.extras.spelling());
        }
        Record::Location(location) => push_location(out, location),
        Record::Head(head) | Record::Run(head) => head.spell(out),
        Record::Step(step) => step.spell(out),
        Record::Event(event) => event.spell(out),
        Record::Epoch(epoch) => epoch.spell(out),
        Record::End(end) => end.spell(out),
        Record::Ran(ran) => ran.spell(out),
        Record::Unknown(unknown) => out.extend_from_slice(unknown.body),
    }
}

fn push_sample(out: &mut Vec<u8>, sample: &Sample<'_>, delta: &mut Delta) {
    let flags = if sample.event != delta.event { EVENT_GIVEN } else { 0 }
        | if sample.task != delta.task { TASK_GIVEN } else { 0 }
        | if sample.cpu != delta.cpu { CPU_GIVEN } else { 0 }
        | if sample.weight != delta.weight { WEIGHT_GIVEN } else { 0 }
        | if sample.count != 1 { COUNT_GIVEN } else { 0 };
    out.push(flags);
    push_time(out, sample.time, delta);
    push_varint(out, u64::from(sample.node.0));
    if flags & EVENT_GIVEN != 0 {
        push_varint(out, u64::from(sample.event.0));
    }
    if flags & TASK_GIVEN != 0 {
        push_varint(out, u64::from(sample.task.0));
    }
    if flags & CPU_GIVEN != 0 {
        push_cpu(out, sample.cpu);
    }
    if flags & WEIGHT_GIVEN != 0 {
        push_varint(out, sample.weight);
    }
    if flags & COUNT_GIVEN != 0 {
        push_varint(out, sample.count);
    }
    out.extend_from_slice(sample.extras.spelling());
    delta.event = sample.event;
    delta.task = sample.task;
    delta.cpu = sample.cpu;
    delta.weight = sample.weight;
}

fn push_location(out: &mut Vec<u8>, location: &Location<'_>) {
    push_varint(out, u64::from(location.frame.0));
    out.push(location.status.number());
    push_varint(out, location.lines.len() as u64);
    for line in location.lines {
        push_varint(out, u64::from(line.function.0));
        push_varint(out, u64::from(line.file.0));
        push_varint(out, u64::from(line.line));
        push_varint(out, u64::from(line.column));
    }
    out.extend_from_slice(location.extras.spelling());
}

fn push_time(out: &mut Vec<u8>, time: u64, delta: &mut Delta) {
    push_varint(out, zigzag(time.wrapping_sub(delta.time) as i64));
    delta.time = time;
}

/// A CPU is spelled one higher, so that 0 is "unknown".
fn push_cpu(out: &mut Vec<u8>, cpu: u32) {
    push_varint(out, u64::from(cpu.wrapping_add(1)));
}

fn push_string(out: &mut Vec<u8>, string: &[u8]) {
    let string = clip(string);
    push_varint(out, string.len() as u64);
    out.extend_from_slice(&string);
}

/// Room for the lists of the record being read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) frames: Vec<FrameId>,
    pub(crate) lines: Vec<Line>,
}

/// Reads a record's body.
pub(crate) fn read_body<'a>(
    kind: u8,
    body: &'a [u8],
    delta: &mut Delta,
    scratch: &'a mut Scratch,
) -> Result<Record<'a>, Malformed> {
    let mut from = Bytes(body);
    let record = match kind {
        kind::SAMPLE => return read_sample(from, delta).map(Record::Sample),
        kind::NODES => return read_nodes(from, &mut scratch.frames).map(Record::Nodes),
        kind::LOCATION => return read_location(from, &mut scratch.lines).map(Record::Location),
        kind::FRAME => {
            let id = FrameId(from.id()?);
            let image = ImageId(from.id_or_none()?);
            let offset = from.varint()?;
            let flags = from.byte()?;
            if flags & !(KERNEL | RETURN_ADDRESS) != 0 {
                return Err(Malformed::Field("known frame flags"));
            }
            Record::Frame(Frame {
                id,
                image,
                offset,
                kernel: flags & KERNEL != 0,
                return_address: flags & RETURN_ADDRESS != 0,
                mark: Mark::from_number(from.byte()?),
                extras: from.extras()?,
            })
        }
        kind::TASK => Record::Task(Task {
            id: TaskId(from.id()?),
            time: from.time(delta)?,
            pid: from.u32()?,
            tid: from.u32()?,
            parent: TaskId(from.id_or_none()?),
            comm: from.string(limits::STRING)?,
            extras: from.extras()?,
        }),
        kind::CHANGE => Record::Change(Change {
            time: from.time(delta)?,
            task: TaskId(from.id_or_none()?),
            kind: ChangeKind::from_number(from.byte()?),
            value: from.string(limits::STRING)?,
            extras: from.extras()?,
        }),
        kind::LOST => Record::Lost(Lost {
            time: from.time(delta)?,
            event: EventId(from.id_or_none()?),
            cpu: from.cpu()?,
            task: TaskId(from.id_or_none()?),
            count: from.varint()?,
            cause: Cause::from_number(from.byte()?),
            extras: from.extras()?,
        }),
        kind::IMAGE => Record::Image(Image {
            id: ImageId(from.id()?),
            kind: ImageKind::from_number(from.byte()?),
            build_id: from.string(limits::BUILD_ID)?,
            path: from.string(limits::STRING)?,
            extras: from.extras()?,
        }),
        kind::FUNCTION => Record::Function(Function {
            id: FunctionId(from.id()?),
            name: from.string(limits::STRING)?,
            linkage: from.string(limits::STRING)?,
            extras: from.extras()?,
        }),
        kind::FILE => Record::File(SourceFile {
            id: FileId(from.id()?),
            path: from.string(limits::STRING)?,
            extras: from.extras()?,
        }),
        kind::HEAD => Record::Head(Box::new(Head::read(body)?)),
        kind::STEP => Record::Step(Box::new(Step::read(body)?)),
        kind::EVENT => Record::Event(Box::new(Event::read(body)?)),
        kind::EPOCH => Record::Epoch(Epoch::read(body)?),
        kind::END => Record::End(Box::new(End::read(body)?)),
        kind::RUN => Record::Run(Box::new(Head::read(body)?)),
        kind::RAN => Record::Ran(Box::new(Ran::read(body)?)),
        kind => Record::Unknown(Unknown { kind, body }),
    };
    Ok(record)
}

pub(crate) fn read_sample<'a>(
    mut from: Bytes<'a>,
    delta: &mut Delta,
) -> Result<Sample<'a>, Malformed> {
    let flags = from.byte()?;
    if flags & !(EVENT_GIVEN | TASK_GIVEN | CPU_GIVEN | WEIGHT_GIVEN | COUNT_GIVEN) != 0 {
        return Err(Malformed::Field("known sample flags"));
    }
    let time = from.time(delta)?;
    let node = NodeId(from.id_or_none()?);
    if flags & EVENT_GIVEN != 0 {
        delta.event = EventId(from.id_or_none()?);
    }
    if flags & TASK_GIVEN != 0 {
        delta.task = TaskId(from.id_or_none()?);
    }
    if flags & CPU_GIVEN != 0 {
        delta.cpu = from.cpu()?;
    }
    if flags & WEIGHT_GIVEN != 0 {
        delta.weight = from.varint()?;
    }
    let count = if flags & COUNT_GIVEN != 0 { from.varint()? } else { 1 };
    Ok(Sample {
        time,
        event: delta.event,
        task: delta.task,
        cpu: delta.cpu,
        node,
        weight: delta.weight,
        count,
        extras: from.extras()?,
    })
}

fn read_nodes<'a>(
    mut from: Bytes<'a>,
    frames: &'a mut Vec<FrameId>,
) -> Result<Nodes<'a>, Malformed> {
    let first = from.id()?;
    let parent = from.id_or_none()?;
    frames.clear();
    while !from.0.is_empty() {
        if frames.len() == limits::DEPTH {
            return Err(Malformed::Limit(limits::DEPTH));
        }
        frames.push(FrameId(from.id()?));
    }
    check_nodes(first, parent, frames.len())?;
    Ok(Nodes { first: NodeId(first), parent: NodeId(parent), frames })
}

/// Nodes come after their parent, which makes cycles impossible, and stay within the limit.
pub(crate) fn check_nodes(first: u32, parent: u32, count: usize) -> Result<(), Malformed> {
    if count == 0 {
        return Err(Malformed::Short);
    }
    if parent >= first || first as usize + count - 1 > limits::ID as usize {
        return Err(Malformed::Field("node ids above their parent's and within the limit"));
    }
    Ok(())
}

fn read_location<'a>(
    mut from: Bytes<'a>,
    lines: &'a mut Vec<Line>,
) -> Result<Location<'a>, Malformed> {
    let frame = FrameId(from.id()?);
    let status = Status::from_number(from.byte()?);
    let count = from.varint()?;
    if count > limits::LINES as u64 {
        return Err(Malformed::Limit(limits::LINES));
    }
    lines.clear();
    for _ in 0..count {
        lines.push(Line {
            function: FunctionId(from.id_or_none()?),
            file: FileId(from.id_or_none()?),
            line: from.u32()?,
            column: from.u32()?,
        });
    }
    Ok(Location { frame, status, lines, extras: from.extras()? })
}

/// The bytes of a body that have not been read yet.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.0.split_first().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(byte)
    }

    /// A LEB128 number in its shortest form.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed::Number);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return if byte == 0 { Err(Malformed::Number) } else { Ok(value) };
            }
        }
        Err(Malformed::Number)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.varint()?).map_err(|_| Malformed::Number)
    }

    fn id_or_none(&mut self) -> Result<u32, Malformed> {
        let id = self.u32()?;
        if id > limits::ID {
            return Err(Malformed::Field("an id within the limit"));
        }
        Ok(id)
    }

    fn id(&mut self) -> Result<u32, Malformed> {
        match self.id_or_none()? {
            0 => Err(Malformed::Field("an id that is not 0")),
            id => Ok(id),
        }
    }

    fn cpu(&mut self) -> Result<u32, Malformed> {
        Ok(self.u32()?.wrapping_sub(1))
    }

    fn time(&mut self, delta: &mut Delta) -> Result<u64, Malformed> {
        delta.time = delta.time.wrapping_add(unzigzag(self.varint()?) as u64);
        Ok(delta.time)
    }

    fn string(&mut self, limit: usize) -> Result<&'a [u8], Malformed> {
        let length = self.varint()?;
        if length > limit as u64 {
            return Err(Malformed::Limit(limit));
        }
        let (string, rest) = self.0.split_at_checked(length as usize).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(string)
    }

    fn extras(self) -> Result<Extras<'a>, Malformed> {
        if self.0.is_empty() {
            return Ok(Extras::NONE);
        }
        Extras::from_spelling(self.0).ok_or(Malformed::Field("extras"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(bytes: &[u8]) -> Result<u64, Malformed> {
        Bytes(bytes).varint()
    }

    #[test]
    fn varints_have_one_spelling() {
        for value in [0, 1, 127, 128, 300, 1 << 21, 1 << 62, u64::MAX] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            assert_eq!(varint(&bytes), Ok(value));
            bytes.pop();
            assert_eq!(varint(&bytes), Err(Malformed::Short));
        }
        assert_eq!(varint(&[0x80, 0]), Err(Malformed::Number));
        assert_eq!(varint(&[0xff; 11]), Err(Malformed::Number));
        let mut too_large = [0xff; 10];
        too_large[9] = 2;
        assert_eq!(varint(&too_large), Err(Malformed::Number));
    }

    #[test]
    fn a_sample_like_the_one_before_takes_few_bytes() {
        let sample = Sample {
            time: 81_230_000_000_000,
            event: EventId(1),
            task: TaskId(300),
            cpu: 1,
            node: NodeId(70_000),
            weight: 1_003_009,
            count: 1,
            extras: Extras::NONE,
        };
        let next = Sample { time: sample.time + 1_003_009, ..sample };
        let (mut out, mut delta) = (Vec::new(), Delta::new(sample.time));
        push_record(&mut out, &Record::Sample(sample), &mut delta);
        let first = out.len();
        push_record(&mut out, &Record::Sample(next), &mut delta);
        assert_eq!(out.len() - first, 2 + 1 + 3 + 3);
    }

    #[test]
    fn a_header_comes_back_and_a_flipped_bit_is_seen() {
        let header = Header {
            major: 1,
            minor: 2,
            must: 0,
            may: 1,
            length: 77,
            run: 0x0123_4567_89ab_cdef,
            sequence: 9,
            samples: 1 << 40,
            time: u64::MAX,
        };
        let bytes = header.to_bytes();
        assert_eq!(Header::from_bytes(&bytes), Some(header));
        for bit in 0..HEADER * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::from_bytes(&flipped), None, "bit {bit}");
        }
    }
}
