//! Generates arbitrary well-formed segments, writes them, and reads streams into owned values.

#![allow(missing_docs)] // The items mirror the fields of the records.

use nprof_stream::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// A segment as data, for [`write()`].
#[derive(Clone, Debug)]
pub struct Segment {
    pub run: u64,
    pub items: Vec<Item>,
    pub ended: bool,
}

/// A record that owns its fields.
#[derive(Clone, Debug)]
pub enum Item {
    Image(u32, u8, Vec<u8>, Vec<u8>, Vec<u8>),
    Task(u32, u64, u32, Vec<u8>),
    Frame(u32, u32, u64, bool, bool, u8),
    Nodes(u32, u32, Vec<u32>),
    Sample(u64, u32, u32, u32, u32, u64, u64),
    Change(u64, u32, u8, Vec<u8>),
    Lost(u64, u32, u64, u8),
    Function(u32, Vec<u8>, Vec<u8>),
    File(u32, Vec<u8>),
    Location(u32, u8, Vec<(u32, u32, u32, u32)>),
    Step(Vec<u8>),
    Naming(Vec<u8>, u64, u64, Vec<u8>),
    Event(u32, Vec<u8>, Option<u64>, Vec<u8>),
    Epoch(u64),
    Unknown(u8, Vec<u8>),
    Flush,
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..12),
        "[a-z/;,<&\"\t\n\r\u{1b}\u{9b}\\\\ -]{0,12}".prop_map(String::into_bytes),
    ]
}

/// Generates ids: mostly small ones as in real streams, some up to the limit.
fn id() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 1..40u32, 1 => 1..=limits::ID]
}

fn id_or_none() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(0u32), 8 => id()]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..2_000_000u64, 1 => any::<u64>()]
}

fn cpu() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..4u32, 1 => Just(NO_CPU)]
}

/// Generates records, with frequencies close to those of real streams.
pub fn item() -> impl Strategy<Value = Item> {
    let sample = (number(), id_or_none(), id_or_none(), cpu(), id_or_none(), number(), number());
    prop_oneof![
        12 => sample.prop_map(|(t, e, k, c, n, w, o)| Item::Sample(t, e, k, c, n, w, o)),
        3 => (1..=limits::ID - 70, id_or_none(), vec(id(), 1..60))
            .prop_map(|(first, parent, frames)| Item::Nodes(first, parent.min(first - 1), frames)),
        3 => (id(), id_or_none(), number(), any::<bool>(), any::<bool>(), any::<u8>())
            .prop_map(|(i, m, o, k, r, w)| Item::Frame(i, m, o, k, r, w)),
        1 => (id(), any::<u8>(), vec(any::<u8>(), 0..21), bytes(), bytes())
            .prop_map(|(i, k, b, p, e)| Item::Image(i, k, b, p, e)),
        1 => (id(), number(), any::<u32>(), bytes()).prop_map(|(i, t, p, c)| Item::Task(i, t, p, c)),
        1 => (number(), id(), any::<u8>(), bytes()).prop_map(|(t, k, c, v)| Item::Change(t, k, c, v)),
        1 => (number(), id_or_none(), number(), any::<u8>())
            .prop_map(|(t, e, n, c)| Item::Lost(t, e, n, c)),
        1 => (id(), bytes(), bytes()).prop_map(|(i, n, l)| Item::Function(i, n, l)),
        1 => (id(), bytes()).prop_map(|(i, p)| Item::File(i, p)),
        1 => (id(), any::<u8>(), vec((id_or_none(), id_or_none(), any::<u32>(), any::<u32>()), 0..4))
            .prop_map(|(f, s, l)| Item::Location(f, s, l)),
        1 => bytes().prop_map(Item::Step),
        1 => (bytes(), number(), number(), bytes())
            .prop_map(|(i, n, u, w)| Item::Naming(i, n, u, w)),
        1 => (id(), bytes(), proptest::option::of(number()), bytes())
            .prop_map(|(i, n, p, m)| Item::Event(i, n, p, m)),
        1 => number().prop_map(Item::Epoch),
        1 => (69..128u8, bytes()).prop_map(|(k, b)| Item::Unknown(k, b)),
        2 => Just(Item::Flush),
    ]
}

/// Generates segments, of which nine of ten have an end record.
pub fn segment() -> impl Strategy<Value = Segment> {
    (any::<u64>(), vec(item(), 0..80), prop::bool::weighted(0.9))
        .prop_map(|(run, items, ended)| Segment { run, items, ended })
}

/// Writes a segment.
pub fn write(segment: &Segment, encoding: Encoding) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), encoding);
    let head = Head {
        run: RunId(segment.run),
        clock: b"monotonic".to_vec(),
        time: Some(segment.run % 1000),
        utc: Some(1_700_000_000_000_000_000 + segment.run % 3000),
        ..Head::default()
    };
    writer.write(&Record::Head(Box::new(head))).expect("a stream in memory can be written");
    for item in &segment.items {
        write_item(&mut writer, item);
    }
    if segment.ended {
        let Totals { samples, records } = writer.totals();
        let end = End { reason: b"exit".to_vec(), samples, records, ..End::default() };
        writer.write(&Record::End(Box::new(end))).expect("a stream in memory can be written");
    }
    writer.finish().expect("a stream in memory can be written")
}

fn write_item(writer: &mut Writer<Vec<u8>>, item: &Item) {
    let mut builder = ExtrasBuilder::new();
    let mut frame_ids = Vec::new();
    let mut lines = Vec::new();
    let extras = Extras::NONE;
    let record = match item {
        // Ends the block: block boundaries at any place must not matter.
        Item::Flush => return writer.flush().expect("a stream in memory can be written"),
        Item::Image(id, kind, build_id, path, extra) => Record::Image(Image {
            id: ImageId(*id),
            kind: ImageKind::from_number(*kind),
            build_id,
            path,
            extras: builder.add("note", extra).extras(),
        }),
        Item::Task(id, time, pid, comm) => Record::Task(Task {
            id: TaskId(*id),
            time: *time,
            pid: *pid,
            tid: *pid,
            parent: TaskId::NONE,
            comm,
            extras,
        }),
        Item::Frame(id, image, offset, kernel, return_address, mark) => Record::Frame(Frame {
            id: FrameId(*id),
            image: ImageId(*image),
            offset: *offset,
            kernel: *kernel,
            return_address: *return_address,
            mark: Mark::from_number(*mark),
            extras,
        }),
        Item::Nodes(first, parent, frames) => {
            frame_ids.extend(frames.iter().map(|&frame| FrameId(frame)));
            Record::Nodes(Nodes {
                first: NodeId(*first),
                parent: NodeId(*parent),
                frames: &frame_ids,
            })
        }
        Item::Sample(time, event, task, cpu, node, weight, count) => Record::Sample(Sample {
            time: *time,
            event: EventId(*event),
            task: TaskId(*task),
            cpu: *cpu,
            node: NodeId(*node),
            weight: *weight,
            count: *count,
            extras,
        }),
        Item::Change(time, task, kind, value) => Record::Change(Change {
            time: *time,
            task: TaskId(*task),
            kind: ChangeKind::from_number(*kind),
            value,
            extras,
        }),
        Item::Lost(time, event, count, cause) => Record::Lost(Lost {
            time: *time,
            event: EventId(*event),
            cpu: NO_CPU,
            task: TaskId::NONE,
            count: *count,
            cause: Cause::from_number(*cause),
            extras,
        }),
        Item::Function(id, name, linkage) => {
            Record::Function(Function { id: FunctionId(*id), name, linkage, extras })
        }
        Item::File(id, path) => Record::File(SourceFile { id: FileId(*id), path, extras }),
        Item::Location(frame, status, groups) => {
            lines.extend(groups.iter().map(|&(function, file, line, column)| Line {
                function: FunctionId(function),
                file: FileId(file),
                line,
                column,
            }));
            Record::Location(Location {
                frame: FrameId(*frame),
                status: Status::from_number(*status),
                lines: &lines,
                extras,
            })
        }
        Item::Step(command) => {
            let step = Step { tool: b"test".to_vec(), command: command.clone(), ..Step::default() };
            Record::Step(Box::new(step))
        }
        Item::Naming(image, named, unnamed, why) => Record::Naming(Box::new(Naming {
            image: image.clone(),
            named: *named,
            unnamed: *unnamed,
            unnamed_by_status: why.clone(),
            ..Naming::default()
        })),
        Item::Event(id, name, period, value) => Record::Event(Box::new(Event {
            id: EventId(*id),
            name: name.clone(),
            period: *period,
            more: vec![("later".to_owned(), value.clone())],
            ..Event::default()
        })),
        Item::Epoch(number) => Record::Epoch(Epoch { number: *number, more: Vec::new() }),
        Item::Unknown(kind, body) => Record::Unknown(Unknown { kind: *kind, body }),
    };
    writer.write(&record).expect("a stream in memory can be written");
}

/// The content of a stream: each record as its line of text, and the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub lines: Vec<String>,
    pub verdict: Verdict,
    pub samples: u64,
}

/// Reads a stream.
///
/// # Errors
///
/// The message of the reader, if it refuses the stream.
pub fn read(stream: &[u8]) -> Result<Reading, String> {
    read_from(stream)
}

/// Reads a stream from any input.
///
/// # Errors
///
/// The message of the reader, if it refuses the stream.
pub fn read_from(input: impl std::io::Read) -> Result<Reading, String> {
    let mut reader = Reader::new(input);
    let mut text = Writer::new(Vec::new(), Encoding::Text);
    let mut samples = 0;
    while let Some(record) = reader.next().map_err(|error| error.to_string())? {
        samples += u64::from(matches!(record, Record::Sample(_)));
        text.write(&record).map_err(|error| error.to_string())?;
    }
    let text = String::from_utf8(text.finish().expect("a stream in memory can be written"))
        .expect("text is UTF-8");
    // Checksums are lines of the text encoding, not records.
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.map(without_checksum).collect();
    Ok(Reading { lines, verdict: reader.verdict(), samples })
}

/// Converts a stream to a encoding.
pub fn reencode(stream: &[u8], encoding: Encoding) -> Vec<u8> {
    let mut reader = Reader::new(stream);
    let mut writer = Writer::new(Vec::new(), encoding);
    while let Some(record) = reader.next().expect("the stream was just written") {
        writer.write(&record).expect("a stream in memory can be written");
    }
    writer.finish().expect("a stream in memory can be written")
}

/// Returns the damages of a stream.
pub fn damages(stream: &[u8]) -> Vec<nprof_stream::reader::Damage> {
    let mut reader = Reader::new(stream);
    while let Ok(Some(_)) = reader.next() {}
    reader.damages().to_vec()
}

/// Returns the number of references to undefined ids in a stream of these lines.
pub fn undefined(lines: &[String]) -> u64 {
    let stream: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut reader = Reader::new(stream.as_bytes());
    let mut order = Validator::new();
    while let Some(record) = reader.next().expect("the stream was just written") {
        order.take(&record);
    }
    order.undefined
}

/// Removes the checksum from a line of text.
fn without_checksum(line: &str) -> String {
    let line = line.strip_suffix("\tcheck=crc32c").unwrap_or(line);
    match line.rsplit_once("\tcrc=") {
        Some((record, _)) if line.starts_with("@end") => record.to_owned(),
        _ => line.to_owned(),
    }
}
