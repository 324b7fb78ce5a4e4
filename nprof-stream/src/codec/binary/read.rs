//! Decodes the body of a record.

use super::write::{
    ALL_GIVEN, BlockState, COUNT_GIVEN, CPU_GIVEN, EVENT_GIVEN, KERNEL, RETURN_ADDRESS, TASK_GIVEN,
    WEIGHT_GIVEN,
};
use crate::record::error::Malformed;
use crate::record::extras::Extras;
use crate::record::kind;
use crate::record::limits;
use crate::record::number::unzigzag;
use crate::record::*;

/// Buffers for the lists of the record that is read.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    pub(crate) frames: Vec<FrameId>,
    pub(crate) lines: Vec<Line>,
    /// The number of bytes of the body after `lines`.
    behind: usize,
}

/// Decodes a record's body.
pub(crate) fn read_body<'a>(
    kind: u8,
    body: &'a [u8],
    state: &mut BlockState,
    scratch: &'a mut Scratch,
) -> Result<Record<'a>, Malformed> {
    let mut from = Bytes(body);
    let record = match kind {
        kind::SAMPLE => return read_sample(from, state).map(Record::Sample),
        kind::NODES => return read_nodes(from, &mut scratch.frames).map(Record::Nodes),
        kind::LOCATION => return read_location(from, scratch).map(Record::Location),
        kind::FRAME => {
            let id = FrameId(from.id()?);
            let image = ImageId(from.id_or_none()?);
            let offset = from.varint()?;
            let flags = from.byte()?;
            // `Frame` has no place for an unknown bit: copying the record would drop it.
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
            time: from.time(state)?,
            pid: from.u32()?,
            tid: from.u32()?,
            parent: TaskId(from.id_or_none()?),
            comm: from.string(limits::STRING)?,
            extras: from.extras()?,
        }),
        kind::CHANGE => Record::Change(Change {
            time: from.time(state)?,
            task: TaskId(from.id_or_none()?),
            kind: ChangeKind::from_number(from.byte()?),
            value: from.string(limits::STRING)?,
            extras: from.extras()?,
        }),
        kind::LOST => Record::Lost(Lost {
            time: from.time(state)?,
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
        // The reader has refused unknown kinds below 64; the others are copied (nprof-format(5),
        // VERSIONS).
        kind => match Record::read_pairs(kind, body) {
            Some(record) => record?,
            None => Record::Unknown(Unknown { kind, body }),
        },
    };
    Ok(record)
}

/// Decodes the body that was decoded last a second time: its list is still in the scratch.
pub(crate) fn read_again<'a>(
    kind: u8,
    body: &'a [u8],
    state: &mut BlockState,
    scratch: &'a mut Scratch,
) -> Result<Record<'a>, Malformed> {
    let mut from = Bytes(body);
    match kind {
        kind::NODES => {
            // The first pass has checked the ids and filled the list.
            let (first, parent) = (NodeId(from.id()?), NodeId(from.id_or_none()?));
            Ok(Record::Nodes(Nodes { first, parent, frames: &scratch.frames }))
        }
        kind::LOCATION => {
            let frame = FrameId(from.id()?);
            let status = Status::from_number(from.byte()?);
            // Groups have no fixed length: only the first pass knows the start of the extras.
            let behind = body.len().saturating_sub(scratch.behind);
            let extras = Bytes(&body[behind..]).extras()?;
            Ok(Record::Location(Location { frame, status, lines: &scratch.lines, extras }))
        }
        _ => read_body(kind, body, state, scratch),
    }
}

pub(super) fn read_sample<'a>(
    mut from: Bytes<'a>,
    state: &mut BlockState,
) -> Result<Sample<'a>, Malformed> {
    let flags = from.byte()?;
    // An undefined bit may mean another field: the rest could not be parsed.
    if flags & !ALL_GIVEN != 0 {
        return Err(Malformed::Field("known sample flags"));
    }
    let time = from.time(state)?;
    let node = NodeId(from.id_or_none()?);
    // An absent field equals that of the sample before (nprof-format(5), BINARY).
    if flags & EVENT_GIVEN != 0 {
        state.event = EventId(from.id_or_none()?);
    }
    if flags & TASK_GIVEN != 0 {
        state.task = TaskId(from.id_or_none()?);
    }
    if flags & CPU_GIVEN != 0 {
        state.cpu = from.cpu()?;
    }
    if flags & WEIGHT_GIVEN != 0 {
        state.weight = from.varint()?;
    }
    // Not taken from the sample before: a count other than 1 is rare.
    let count = if flags & COUNT_GIVEN != 0 { from.varint()? } else { 1 };
    Ok(Sample {
        time,
        event: state.event,
        task: state.task,
        cpu: state.cpu,
        node,
        weight: state.weight,
        count,
        extras: from.extras()?,
    })
}

pub(crate) fn read_nodes<'a>(
    mut from: Bytes<'a>,
    frames: &'a mut Vec<FrameId>,
) -> Result<Nodes<'a>, Malformed> {
    let first = from.id()?;
    let parent = from.id_or_none()?;
    frames.clear();
    while !from.0.is_empty() {
        // Before the push, so that a hostile body cannot make the list longer.
        if frames.len() == limits::DEPTH {
            return Err(Malformed::Limit(limits::DEPTH));
        }
        frames.push(FrameId(from.id()?));
    }
    check_nodes(first, parent, frames.len())?;
    Ok(Nodes { first: NodeId(first), parent: NodeId(parent), frames })
}

/// Checks that nodes come after their parent, which excludes cycles, and stay within the limit.
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
    scratch: &'a mut Scratch,
) -> Result<Location<'a>, Malformed> {
    let Scratch { lines, behind, .. } = scratch;
    let frame = FrameId(from.id()?);
    let status = Status::from_number(from.byte()?);
    let count = from.varint()?;
    // The count is only a claim: it is checked, and no memory is reserved for it.
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
    *behind = from.0.len();
    Ok(Location { frame, status, lines, extras: from.extras()? })
}

/// The bytes of a body that have not been read yet.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    #[inline]
    fn byte(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.0.split_first().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(byte)
    }

    /// Reads a LEB128 number in its shortest form.
    #[inline(always)] // as are those below: a result that stays in registers
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        match *self.0 {
            [first, ref rest @ ..] if first < 0x80 => {
                self.0 = rest;
                Ok(u64::from(first))
            }
            // A function of its own keeps the inlined part small.
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = u64::from(self.byte()? & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one more bit of 64.
            if shift == 63 && bits > 1 {
                return Err(Malformed::Number);
            }
            value |= bits << shift;
            if byte < 0x80 {
                // A last byte of 0 is needless; numbers have one form, so that equal records have
                // equal bytes.
                return if byte == 0 { Err(Malformed::Number) } else { Ok(value) };
            }
        }
        Err(Malformed::Number)
    }

    #[inline(always)]
    fn u32(&mut self) -> Result<u32, Malformed> {
        match *self.0 {
            // Most numbers take one byte.
            [first, ref rest @ ..] if first < 0x80 => {
                self.0 = rest;
                Ok(u32::from(first))
            }
            // A second byte of 0 is not the shortest form: `long_u32` refuses it.
            [first, second @ 1..0x80, ref rest @ ..] => {
                self.0 = rest;
                Ok(u32::from(first & 0x7f) | u32::from(second) << 7)
            }
            _ => self.long_u32(),
        }
    }

    fn long_u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.varint()?).map_err(|_| Malformed::Number)
    }

    #[inline(always)]
    fn id_or_none(&mut self) -> Result<u32, Malformed> {
        let id = self.u32()?;
        // Readers index tables by id: the limit bounds them.
        if id > limits::ID {
            return Err(Malformed::Field("an id within the limit"));
        }
        Ok(id)
    }

    #[inline(always)]
    fn id(&mut self) -> Result<u32, Malformed> {
        match self.id_or_none()? {
            0 => Err(Malformed::Field("an id that is not 0")),
            id => Ok(id),
        }
    }

    #[inline]
    fn cpu(&mut self) -> Result<u32, Malformed> {
        // 0 means absent, and wraps to `NO_CPU`.
        Ok(self.u32()?.wrapping_sub(1))
    }

    #[inline]
    fn time(&mut self, state: &mut BlockState) -> Result<u64, Malformed> {
        // Wraps like the writer, so that a hostile difference cannot overflow.
        state.time = state.time.wrapping_add(unzigzag(self.varint()?) as u64);
        Ok(state.time)
    }

    fn string(&mut self, limit: usize) -> Result<&'a [u8], Malformed> {
        let length = self.varint()?;
        // Compared as u64: the cast below could wrap a hostile length on a 32-bit machine.
        if length > limit as u64 {
            return Err(Malformed::Limit(limit));
        }
        let (string, rest) = self.0.split_at_checked(length as usize).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(string)
    }

    #[inline]
    fn extras(self) -> Result<Extras<'a>, Malformed> {
        if self.0.is_empty() {
            return Ok(Extras::NONE);
        }
        Extras::from_encoded(self.0).ok_or(Malformed::Field("extras"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::number::push_varint;

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
}
