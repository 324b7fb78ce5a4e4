//! The text spelling: one record is one line, fields are separated by one TAB, the first is the
//! kind's word.

use crate::binary::{self, Delta, Scratch};
use crate::error::Malformed;
use crate::escape::{push_field, unescape_field_in_place};
use crate::extras::Extras;
use crate::kind;
use crate::limits::{self, clip};
use crate::meta::{End, Epoch, Event, Head, Ran, Step};
use crate::number::{
    decimal, hex_bytes_in_place, hexadecimal, push_decimal, push_hex_bytes, push_hexadecimal,
};
use crate::record::*;

/// How the first line of a segment begins.
pub(crate) const HEAD_WORD: &[u8] = b"@nprof\t";

/// The kind under which a line whose word this version does not know travels in binary. Words
/// of optional kinds added later begin with a lower-case letter.
pub(crate) const LINE: u8 = 111;

/// How many lines of a segment one checksum is for.
const CHECKED_LINES: u32 = 1024;

/// How the line that checks the lines before it begins. To everything else it is a comment.
const CHECK_WORD: &[u8] = b"#crc\t";

/// The last field of a head that promises checksums up to the end.
const CHECK_PROMISE: &[u8] = b"\tcheck=crc32c";

/// How the last field of a segment's end begins: the checksum of what no line has checked.
const CHECK_FIELD: &[u8] = b"\tcrc=";

/// The running checksum of a segment in text: CRC-32C over its lines, newlines included and
/// comments left out, since the last checksum. It is no part of any record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Check {
    crc: u32,
    lines: u32,
    /// Whether the head promised a checksum at the end.
    promised: bool,
}

impl Check {
    /// Takes in the line that was appended to `out` at `start`, and appends a checksum after
    /// every so many lines, and to the line of an end.
    pub(crate) fn push(&mut self, out: &mut Vec<u8>, start: usize, record: &Record<'_>) {
        if matches!(record, Record::Head(_)) {
            *self = Self::default();
            out.pop();
            out.extend_from_slice(CHECK_PROMISE);
            out.push(b'\n');
        }
        if matches!(record, Record::End(_)) {
            out.pop();
            let crc = crc32c::crc32c_append(self.crc, &out[start..]);
            out.extend_from_slice(CHECK_FIELD);
            push_hexadecimal(out, crc.into());
            out.push(b'\n');
            return;
        }
        self.crc = crc32c::crc32c_append(self.crc, &out[start..]);
        self.lines += 1;
        if self.lines == CHECKED_LINES {
            out.extend_from_slice(CHECK_WORD);
            push_hexadecimal(out, self.crc.into());
            out.push(b'\n');
            (self.crc, self.lines) = (0, 0);
        }
    }

    /// Takes in a line as it was read, without its newline. How long the record in it is, without
    /// what belongs to the checksum; and whether a checksum in it is right, if there should be one.
    pub(crate) fn take(&mut self, line: &[u8]) -> (usize, Option<bool>) {
        let (mut length, mut right) = (line.len(), None);
        if line.starts_with(HEAD_WORD) {
            *self = Self { promised: line.ends_with(CHECK_PROMISE), ..Self::default() };
            length -= if self.promised { CHECK_PROMISE.len() } else { 0 };
        } else if line.starts_with(b"@end") {
            right = self.promised.then_some(false);
            if let Some((at, crc)) = end_check(line) {
                length = at;
                right = Some(crc == crc32c::crc32c_append(self.crc, &line[..at]));
            }
        }
        self.crc = crc32c::crc32c_append(self.crc, line);
        self.crc = crc32c::crc32c_append(self.crc, b"\n");
        (length, right)
    }

    /// Whether a comment is a checksum, and if so whether it is right.
    pub(crate) fn take_comment(&mut self, line: &[u8]) -> Option<bool> {
        let crc = hexadecimal(line.strip_prefix(CHECK_WORD)?)?;
        let right = crc == u64::from(self.crc);
        self.crc = 0;
        Some(right)
    }
}

/// Where the checksum of an end's line begins, and what it is.
fn end_check(line: &[u8]) -> Option<(usize, u32)> {
    let at = memchr::memrchr(b'\t', line)?;
    let crc = hexadecimal(line[at..].strip_prefix(CHECK_FIELD)?)?;
    Some((at, u32::try_from(crc).ok()?))
}

/// Appends a record's line, with its newline.
pub(crate) fn push_line(out: &mut Vec<u8>, record: &Record<'_>) {
    let mut line = Spelled { out };
    match record {
        Record::Sample(sample) => push_sample(line.out, sample),
        Record::Nodes(nodes) => {
            line.word("N").id(nodes.first.0).id(nodes.parent.0);
            for frame in nodes.frames {
                line.id(frame.0);
            }
        }
        Record::Frame(frame) => {
            line.word("F").id(frame.id.0).id(frame.image.0).hexadecimal(frame.offset);
            line.out.push(b'\t');
            line.out.push(if frame.kernel { b'k' } else { b'u' });
            if frame.return_address {
                line.out.extend_from_slice(b",ra");
            }
            if frame.mark != Mark::None {
                line.out.extend_from_slice(format!(",{}", frame.mark).as_bytes());
            }
            line.extras(frame.extras);
        }
        Record::Task(task) => {
            line.word("T").id(task.id.0).number(task.time).id(task.pid).id(task.tid);
            line.id(task.parent.0).string(task.comm).extras(task.extras);
        }
        Record::Change(change) => {
            line.word("X").number(change.time).id(change.task.0).display(change.kind);
            line.string(change.value).extras(change.extras);
        }
        Record::Lost(lost) => {
            line.word("L").number(lost.time).id(lost.event.0).cpu(lost.cpu).id(lost.task.0);
            line.number(lost.count).display(lost.cause).extras(lost.extras);
        }
        Record::Image(image) => {
            line.word("I").id(image.id.0).display(image.kind).build_id(image.build_id);
            line.string(image.path).extras(image.extras);
        }
        Record::Function(function) => {
            line.word("U").id(function.id.0).string(function.name).string(function.linkage);
            line.extras(function.extras);
        }
        Record::File(file) => {
            line.word("D").id(file.id.0).string(file.path).extras(file.extras);
        }
        Record::Location(location) => {
            line.word("Y").id(location.frame.0).display(location.status);
            for at in location.lines {
                line.display(format_args!("{},{},{},{}", at.function, at.file, at.line, at.column));
            }
            line.extras(location.extras);
        }
        Record::Head(head) => {
            line.word("@nprof").display(format_args!("{}.{}", crate::MAJOR, crate::MINOR));
            line.pairs(|out| head.spell(out));
        }
        Record::Step(step) => {
            line.word("@step").pairs(|out| step.spell(out));
        }
        Record::Event(event) => {
            line.word("@event").pairs(|out| event.spell(out));
        }
        Record::Epoch(epoch) => {
            line.word("@epoch").pairs(|out| epoch.spell(out));
        }
        Record::End(end) => {
            line.word("@end").pairs(|out| end.spell(out));
        }
        Record::Run(head) => {
            line.word("@run").pairs(|out| head.spell(out));
        }
        Record::Ran(ran) => {
            line.word("@ran").pairs(|out| ran.spell(out));
        }
        Record::Unknown(unknown) if unknown.kind == LINE && is_unknown_line(unknown.body) => {
            line.out.extend_from_slice(unknown.body);
        }
        Record::Unknown(unknown) => {
            line.out.push(b'?');
            push_decimal(line.out, u64::from(unknown.kind));
            line.out.push(b'\t');
            push_hex_bytes(line.out, unknown.body);
        }
    }
    out.push(b'\n');
}

/// The one line worth a path of its own: nearly all lines are samples.
fn push_sample(out: &mut Vec<u8>, sample: &Sample<'_>) {
    out.extend_from_slice(b"S\t");
    push_decimal(out, sample.time);
    out.push(b'\t');
    push_decimal(out, u64::from(sample.event.0));
    out.push(b'\t');
    push_decimal(out, u64::from(sample.task.0));
    Spelled { out }.cpu(sample.cpu);
    out.push(b'\t');
    push_decimal(out, u64::from(sample.node.0));
    out.push(b'\t');
    push_decimal(out, sample.weight);
    out.push(b'\t');
    push_decimal(out, sample.count);
    Spelled { out }.extras(sample.extras);
}

/// A line being written, field by field.
struct Spelled<'a> {
    out: &'a mut Vec<u8>,
}

impl Spelled<'_> {
    fn word(&mut self, word: &str) -> &mut Self {
        self.out.extend_from_slice(word.as_bytes());
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.out.push(b'\t');
        push_decimal(self.out, number);
        self
    }

    fn id(&mut self, id: u32) -> &mut Self {
        self.number(u64::from(id))
    }

    fn cpu(&mut self, cpu: u32) -> &mut Self {
        if cpu == NO_CPU {
            self.out.extend_from_slice(b"\t-");
            return self;
        }
        self.id(cpu)
    }

    fn hexadecimal(&mut self, number: u64) -> &mut Self {
        self.out.push(b'\t');
        push_hexadecimal(self.out, number);
        self
    }

    fn string(&mut self, string: &[u8]) -> &mut Self {
        self.out.push(b'\t');
        push_field(self.out, &clip(string));
        self
    }

    fn build_id(&mut self, id: &[u8]) -> &mut Self {
        self.out.push(b'\t');
        match id {
            [] => self.out.push(b'-'),
            id => push_hex_bytes(self.out, &id[..id.len().min(limits::BUILD_ID)]),
        }
        self
    }

    fn display(&mut self, value: impl std::fmt::Display) -> &mut Self {
        self.out.extend_from_slice(format!("\t{value}").as_bytes());
        self
    }

    fn extras(&mut self, extras: Extras<'_>) {
        if !extras.is_empty() {
            self.out.push(b'\t');
            self.out.extend_from_slice(extras.spelling());
        }
    }

    fn pairs(&mut self, spell: impl FnOnce(&mut Vec<u8>)) {
        let before = self.out.len();
        self.out.push(b'\t');
        spell(self.out);
        if self.out.len() == before + 1 {
            self.out.truncate(before);
        }
    }
}

/// Whether these bytes may stand as a line of a kind this version does not know.
fn is_unknown_line(line: &[u8]) -> bool {
    line.first().is_some_and(u8::is_ascii_lowercase) && line.len() <= limits::LINE && is_plain(line)
}

/// Whether a line is UTF-8 without control characters.
fn is_plain(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok_and(|line| !line.chars().any(|c| c.is_control() && c != '\t'))
}

/// Whether bytes are the beginning of a record's line: of a stream that lost its own beginning.
pub(crate) fn begins_with_a_record(bytes: &[u8]) -> bool {
    kind::KINDS.iter().any(|kind| {
        bytes.strip_prefix(kind.word.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'\t'))
    })
}

/// Reads the version that follows the word of a segment's first line.
pub(crate) fn head_version(line: &[u8]) -> Option<(u8, u8)> {
    let version = line.strip_prefix(HEAD_WORD)?.split(|&b| b == b'\t').next()?;
    let at = memchr::memchr(b'.', version)?;
    let major = u8::try_from(decimal(&version[..at])?).ok()?;
    let minor = u8::try_from(decimal(&version[at + 1..])?).ok()?;
    Some((major, minor))
}

/// Reads one line, without its newline. Strings are unescaped where they stand.
pub(crate) fn read_line<'a>(
    line: &'a mut [u8],
    scratch: &'a mut Scratch,
) -> Result<Record<'a>, Malformed> {
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
            from.field()?;
            Record::Head(Box::new(Head::read(from.rest()?)?))
        }
        kind::STEP => Record::Step(Box::new(Step::read(from.rest()?)?)),
        kind::EVENT => Record::Event(Box::new(Event::read(from.rest()?)?)),
        kind::EPOCH => Record::Epoch(Epoch::read(from.rest()?)?),
        kind::RUN => Record::Run(Box::new(Head::read(from.rest()?)?)),
        kind::RAN => Record::Ran(Box::new(Ran::read(from.rest()?)?)),
        _ => Record::End(Box::new(End::read(from.rest()?)?)),
    };
    Ok(record)
}

/// Reads a record by its kind's number. An earlier version may have spelled so what this one
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
    from.end()?;
    binary::read_body(kind, body, &mut Delta::new(0), scratch)
}

/// The number of a kind that a line is spelled with and that must not be passed over.
pub(crate) fn required_kind(line: &[u8]) -> Option<u64> {
    let word = line.strip_prefix(b"?")?.split(|&b| b == b'\t').next()?;
    let optional = u64::from(kind::FIRST_OPTIONAL)..=u64::from(kind::LAST);
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

    /// Whether there is another field and it is not `key=value`.
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
                .filter(|&cpu| cpu != NO_CPU)
                .ok_or(Malformed::Number),
        }
    }

    fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let field = self.field()?;
        let string = unescape_field_in_place(field).ok_or(Malformed::Field("a string"))?;
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
        if field.is_empty() || field.len() > 2 * limits::BUILD_ID {
            return Err(Malformed::Field("a build ID"));
        }
        hex_bytes_in_place(field).ok_or(Malformed::Field("a build ID"))
    }

    fn extras(&mut self) -> Result<Extras<'a>, Malformed> {
        match self.rest.take() {
            None => Ok(Extras::NONE),
            Some([]) => Err(Malformed::Field("key=value")),
            Some(rest) => Extras::from_text(rest).ok_or(Malformed::Field("key=value")),
        }
    }

    /// What is left, to be read as pairs.
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
