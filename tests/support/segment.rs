//! Generates arbitrary well-formed segments, writes them, and reads streams into owned values.

#![allow(missing_docs)] // The fields explain themselves.

use crate::arbitrary::record;
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

/// A part of a segment.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Record(Record<'static>),
    /// Ends the block: block boundaries at any place must not matter.
    Flush,
}

impl Item {
    /// Returns an optional record that this version does not know.
    pub fn unknown(kind: u8, body: &[u8]) -> Self {
        Self::Record(Record::Unknown(Unknown { kind, body: body.to_vec().leak() }))
    }
}

fn item() -> impl Strategy<Value = Item> {
    prop_oneof![14 => record().prop_map(Item::Record), 1 => Just(Item::Flush)]
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
        match item {
            Item::Record(record) => writer.write(record),
            Item::Flush => writer.flush(),
        }
        .expect("a stream in memory can be written");
    }
    if segment.ended {
        let Totals { samples, records } = writer.totals();
        let end = End { reason: b"exit".to_vec(), samples, records, ..End::default() };
        writer.write(&Record::End(Box::new(end))).expect("a stream in memory can be written");
    }
    writer.finish().expect("a stream in memory can be written")
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
