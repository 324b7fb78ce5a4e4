//! Decodes a line.

use super::line::{LINE, is_plain, is_unknown_line};
use crate::codec::binary::{self, BlockState, Scratch};
use crate::record::error::Malformed;
use crate::record::escape::unescape_field_in_place;
use crate::record::extras::Extras;
use crate::record::kind;
use crate::record::limits;
use crate::record::number::{decimal, hex_bytes_in_place, hexadecimal};
use crate::record::pairs::Head;
use crate::record::*;

/// True if bytes begin with the word of a record: a stream that lost its own beginning.
pub(crate) fn begins_with_a_record(bytes: &[u8]) -> bool {
    kind::KINDS.iter().any(|kind| {
        bytes.strip_prefix(kind.word.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'\t'))
    })
}

/// Decodes a line, without its newline. Strings are unescaped in place.
pub(crate) fn read_line<'a>(
    line: &'a mut [u8],
    scratch: &'a mut Scratch,
) -> Result<Record<'a>, Malformed> {
    // Words in lower case belong to later versions or private use (nprof-format(5), TEXT).
    if line.first().is_some_and(u8::is_ascii_lowercase) {
        if !is_unknown_line(line) {
            return Err(Malformed::Field("a line without control characters"));
        }
        return Ok(Record::Unknown(Unknown { kind: LINE, body: line }));
    }
    let mut from = Fields { rest: Some(line) };
    let word = from.field()?;
    if word.first() == Some(&b'?') {
        return read_unknown(&word[1..], from, scratch);
    }
    let kind = kind::by_word(word).ok_or(Malformed::Field("the word of a kind of record"))?;
    let record = match kind.number {
        kind::SAMPLE => Record::Sample(Sample {
            time: from.number()?,
            event: EventId(from.id_or_none()?),
            task: TaskId(from.id_or_none()?),
            cpu: from.cpu()?,
            node: NodeId(from.id_or_none()?),
            weight: from.number()?,
            count: from.number()?,
            extras: from.extras()?,
        }),
        kind::NODES => {
            let (first, parent) = (from.id()?, from.id_or_none()?);
            let frames = &mut scratch.frames;
            frames.clear();
            while from.rest.is_some() {
                // A line may have 4 MiB, so that its length does not bound the list.
                if frames.len() == limits::DEPTH {
                    return Err(Malformed::Limit(limits::DEPTH));
                }
                frames.push(FrameId(from.id()?));
            }
            binary::check_nodes(first, parent, frames.len())?;
            Record::Nodes(Nodes { first: NodeId(first), parent: NodeId(parent), frames })
        }
        kind::FRAME => read_frame(from)?,
        kind::TASK => Record::Task(Task {
            id: TaskId(from.id()?),
            time: from.number()?,
            pid: from.u32()?,
            tid: from.u32()?,
            parent: TaskId(from.id_or_none()?),
            comm: from.string()?,
            extras: from.extras()?,
        }),
        kind::CHANGE => Record::Change(Change {
            time: from.number()?,
            task: TaskId(from.id_or_none()?),
            kind: ChangeKind::from_word(from.field()?).ok_or(Malformed::Field("a change"))?,
            value: from.string()?,
            extras: from.extras()?,
        }),
        kind::LOST => Record::Lost(Lost {
            time: from.number()?,
            event: EventId(from.id_or_none()?),
            cpu: from.cpu()?,
            task: TaskId(from.id_or_none()?),
            count: from.number()?,
            cause: Cause::from_word(from.field()?).ok_or(Malformed::Field("a cause"))?,
            extras: from.extras()?,
        }),
        kind::IMAGE => Record::Image(Image {
            id: ImageId(from.id()?),
            kind: ImageKind::from_word(from.field()?).ok_or(Malformed::Field("a kind of image"))?,
            build_id: from.build_id()?,
            path: from.string()?,
            extras: from.extras()?,
        }),
        kind::FUNCTION => Record::Function(Function {
            id: FunctionId(from.id()?),
            name: from.string()?,
            linkage: from.string()?,
            extras: from.extras()?,
        }),
        kind::FILE => Record::File(SourceFile {
            id: FileId(from.id()?),
            path: from.string()?,
            extras: from.extras()?,
        }),
        kind::LOCATION => read_location(from, &mut scratch.lines)?,
        kind::HEAD => {
            // The version: the reader has checked it.
            from.field()?;
            Record::Head(Box::new(Head::read(from.rest()?)?))
        }
        // All other kinds with a word consist of pairs.
        kind => match Record::read_pairs(kind, from.rest()?) {
            Some(record) => record?,
            None => return Err(Malformed::Field("a known kind")),
        },
    };
    Ok(record)
}

/// Decodes a record by its kind's number: an earlier version writes `?N` for a kind that this version
/// knows.
fn read_unknown<'a>(
    number: &[u8],
    mut from: Fields<'a>,
    scratch: &'a mut Scratch,
) -> Result<Record<'a>, Malformed> {
    let kind = decimal(number).and_then(|number| u8::try_from(number).ok());
    let kind = kind.filter(|&kind| (kind::FIRST_OPTIONAL..=kind::LAST).contains(&kind));
    let kind = kind.ok_or(Malformed::Field("the number of an optional kind"))?;
    let body = hex_bytes_in_place(from.field()?).ok_or(Malformed::Field("hexadecimal bytes"))?;
    // The body includes the extras.
    from.end()?;
    binary::read_body(kind, body, &mut BlockState::new(0), scratch)
}

/// Returns the number of the kind of a line, if it must not be skipped.
pub(crate) fn required_kind(line: &[u8]) -> Option<u64> {
    let word = line.strip_prefix(b"?")?.split(|&b| b == b'\t').next()?;
    let optional = u64::from(kind::FIRST_OPTIONAL)..=u64::from(kind::LAST);
    // A line with control characters is damage, no reason to refuse the stream.
    decimal(word).filter(|number| !optional.contains(number) && is_plain(line))
}

fn read_frame(mut from: Fields<'_>) -> Result<Record<'_>, Malformed> {
    let id = FrameId(from.id()?);
    let image = ImageId(from.id_or_none()?);
    let offset = hexadecimal(from.field()?).ok_or(Malformed::Field("a hexadecimal offset"))?;
    let flags: &[u8] = from.field()?;
    let mut words = flags.split(|&b| b == b',').peekable();
    let kernel = match words.next() {
        Some(b"u") => false,
        Some(b"k") => true,
        _ => return Err(Malformed::Field("u or k")),
    };
    let return_address = words.next_if(|&word| word == b"ra").is_some();
    let mark = match words.next() {
        None => Mark::None,
        Some(word) => Mark::from_word(word)
            // A frame without a mark has no such word: `none` would be a second form.
            .filter(|&mark| mark != Mark::None)
            .ok_or(Malformed::Field("a mark"))?,
    };
    if words.next().is_some() {
        return Err(Malformed::Field("no more flags"));
    }
    let extras = from.extras()?;
    Ok(Record::Frame(Frame { id, image, offset, kernel, return_address, mark, extras }))
}

fn read_location<'a>(
    mut from: Fields<'a>,
    lines: &'a mut Vec<Line>,
) -> Result<Record<'a>, Malformed> {
    let frame = FrameId(from.id()?);
    let status = Status::from_word(from.field()?).ok_or(Malformed::Field("a status"))?;
    lines.clear();
    // Text has no count of groups: they end at the first extra.
    while from.next_is_plain() {
        if lines.len() == limits::LINES {
            return Err(Malformed::Limit(limits::LINES));
        }
        lines.push(read_line_group(from.field()?)?);
    }
    Ok(Record::Location(Location { frame, status, lines, extras: from.extras()? }))
}

fn read_line_group(group: &[u8]) -> Result<Line, Malformed> {
    const EXPECTED: Malformed = Malformed::Field("function,file,line,column");
    let mut numbers = group
        .split(|&b| b == b',')
        .map(|number| decimal(number).and_then(|n| u32::try_from(n).ok()).ok_or(EXPECTED));
    let mut next = || numbers.next().ok_or(EXPECTED)?;
    let (function, file) = (next()?, next()?);
    let line =
        Line { function: FunctionId(function), file: FileId(file), line: next()?, column: next()? };
    if numbers.next().is_some() || function > limits::ID || file > limits::ID {
        return Err(EXPECTED);
    }
    Ok(line)
}

/// The fields of a line that have not been read yet; `None` after the last.
struct Fields<'a> {
    rest: Option<&'a mut [u8]>,
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<&'a mut [u8], Malformed> {
        let rest = self.rest.take().ok_or(Malformed::Short)?;
        let Some(at) = memchr::memchr(b'\t', rest) else {
            return Ok(rest);
        };
        let (field, rest) = rest.split_at_mut(at);
        self.rest = Some(&mut rest[1..]);
        Ok(field)
    }

    /// True if there is another field and it is not `key=value`.
    fn next_is_plain(&self) -> bool {
        self.rest.as_deref().is_some_and(|rest| {
            memchr::memchr2(b'\t', b'=', rest).is_none_or(|at| rest[at] == b'\t')
        })
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        decimal(self.field()?).ok_or(Malformed::Number)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed::Number)
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
        match &*self.field()? {
            b"-" => Ok(NO_CPU),
            digits => decimal(digits)
                .and_then(|cpu| u32::try_from(cpu).ok())
                // An absent CPU has one form, `-`.
                .filter(|&cpu| cpu != NO_CPU)
                .ok_or(Malformed::Number),
        }
    }

    fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let field = self.field()?;
        let string = unescape_field_in_place(field).ok_or(Malformed::Field("a string"))?;
        // The limit is one of bytes, not of their escapes, of four characters each.
        if string.len() > limits::STRING {
            return Err(Malformed::Limit(limits::STRING));
        }
        Ok(string)
    }

    fn build_id(&mut self) -> Result<&'a [u8], Malformed> {
        let field = self.field()?;
        if field == b"-" {
            return Ok(&[]);
        }
        // An empty field would be a second form of `-`.
        if field.is_empty() || field.len() > 2 * limits::BUILD_ID {
            return Err(Malformed::Field("a build ID"));
        }
        hex_bytes_in_place(field).ok_or(Malformed::Field("a build ID"))
    }

    fn extras(&mut self) -> Result<Extras<'a>, Malformed> {
        match self.rest.take() {
            None => Ok(Extras::NONE),
            // The line ends in a TAB: the field after it is empty.
            Some([]) => Err(Malformed::Field("key=value")),
            Some(rest) => Extras::from_text(rest).ok_or(Malformed::Field("key=value")),
        }
    }

    /// Returns the remaining fields, to be read as pairs.
    fn rest(&mut self) -> Result<&'a [u8], Malformed> {
        match self.rest.take() {
            None => Ok(&[]),
            Some([]) => Err(Malformed::Field("key=value")),
            Some(rest) => Ok(rest),
        }
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_some() { Err(Malformed::Long) } else { Ok(()) }
    }
}
