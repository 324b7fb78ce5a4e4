//! The text spelling: one record is one line, fields are separated by one TAB, the first is the
//! kind's word.

use crate::error::Malformed;
use crate::escape::{push_field, unescape_field_in_place};
use crate::extras::Extras;
use crate::kind;
use crate::limits::{self, clip};
use crate::meta::{End, Epoch, Event, Head, Step};
use crate::number::{
    decimal, hex_bytes_in_place, hexadecimal, push_decimal, push_hex_bytes, push_hexadecimal,
};
use crate::record::*;

/// How the first line of a segment begins.
pub(crate) const HEAD_WORD: &[u8] = b"@nprof\t";

/// The kind under which a line whose word this version does not know travels in binary. Words
/// of optional kinds added later begin with a lower-case letter.
pub(crate) const LINE: u8 = 111;

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
    line.first().is_some_and(u8::is_ascii_lowercase)
        && line.len() <= limits::LINE
        && std::str::from_utf8(line)
            .is_ok_and(|line| !line.chars().any(|c| c.is_control() && c != '\t'))
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
    frames: &'a mut Vec<FrameId>,
    lines: &'a mut Vec<Line>,
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
        return read_unknown(&word[1..], from);
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
            frames.clear();
            while from.rest.is_some() {
                if frames.len() == limits::DEPTH {
                    return Err(Malformed::Limit(limits::DEPTH));
                }
                frames.push(FrameId(from.id()?));
            }
            crate::binary::check_nodes(first, parent, frames.len())?;
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
        kind::LOCATION => read_location(from, lines)?,
        kind::HEAD => {
            from.field()?;
            Record::Head(Box::new(Head::read(from.rest())?))
        }
        kind::STEP => Record::Step(Box::new(Step::read(from.rest())?)),
        kind::EVENT => Record::Event(Box::new(Event::read(from.rest())?)),
        kind::EPOCH => Record::Epoch(Epoch::read(from.rest())?),
        _ => Record::End(Box::new(End::read(from.rest())?)),
    };
    Ok(record)
}

fn read_unknown<'a>(number: &[u8], mut from: Fields<'a>) -> Result<Record<'a>, Malformed> {
    let kind = decimal(number).and_then(|number| u8::try_from(number).ok());
    let kind = kind.filter(|&kind| (kind::FIRST_OPTIONAL..128).contains(&kind));
    let kind = kind.filter(|&kind| !kind::is_known(kind));
    let kind = kind.ok_or(Malformed::Field("the number of an unknown optional kind"))?;
    let body = match from.rest {
        None => return Err(Malformed::Short),
        Some(_) => from.field()?,
    };
    if body.len() > limits::PAYLOAD {
        return Err(Malformed::Limit(limits::PAYLOAD / 2));
    }
    let body = hex_bytes_in_place(body).ok_or(Malformed::Field("hexadecimal bytes"))?;
    from.end()?;
    Ok(Record::Unknown(Unknown { kind, body }))
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
            Some(rest) => Extras::from_spelling(rest).ok_or(Malformed::Field("key=value")),
        }
    }

    /// What is left, to be read as pairs.
    fn rest(&mut self) -> &'a [u8] {
        match self.rest.take() {
            None => &[],
            Some(rest) => rest,
        }
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_some() { Err(Malformed::Long) } else { Ok(()) }
    }
}
