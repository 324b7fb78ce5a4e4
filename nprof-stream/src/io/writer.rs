//! Encodes records, cuts them into blocks and numbers these. Never seeks.

use std::io::{self, Read, Write};

use crate::codec::binary::{self, Header, Passthrough, block_crc, push_record};
use crate::codec::field::binary::BlockState;
use crate::codec::text::{Check, push_line};
use crate::io::reader::Reader;
use crate::record::Record;
use crate::record::limits;

/// The encoding of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// For pipes and files.
    Binary,
    /// For people, grep and awk.
    Text,
}

/// A block is cut when its payload has reached this number of bytes.
const BLOCK: usize = 16 << 10;

/// Text is written when this number of bytes has gathered.
const TEXT: usize = 64 << 10;

/// The counts of a segment so far, for the `@end` of its producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of samples.
    pub samples: u64,
    /// The number of records after the head that are not annotations.
    pub records: u64,
}

/// Writes records to `out`. Call [`Writer::finish`] at the end: records that were not flushed are
/// lost when the writer is dropped.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    encoding: Encoding,
    /// The payload of the present block, or lines.
    payload: Vec<u8>,
    block_state: BlockState,
    /// The checksum of the lines.
    check: Check,
    /// The first time in the present block. None if there is none yet.
    first_time: Option<u64>,
    run: u64,
    sequence: u32,
    totals: Totals,
    /// The segment's samples before the present block.
    samples_before: u64,
}

impl<W: Write> Writer<W> {
    /// Creates a writer; the first record should be a [`Record::Head`].
    pub fn new(out: W, encoding: Encoding) -> Self {
        Self {
            out,
            encoding,
            // A cut follows the record that reaches the limit, which may have a long string.
            payload: Vec::with_capacity(TEXT + limits::STRING),
            block_state: BlockState::new(0),
            check: Check::default(),
            first_time: None,
            run: 0,
            sequence: 0,
            totals: Totals::default(),
            samples_before: 0,
        }
    }

    /// Writes a record. A head begins a new segment, an end closes it.
    ///
    /// # Errors
    ///
    /// An error of `out`, or `InvalidInput` for a record larger than a block may be.
    pub fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        match record {
            Record::Head(head) => {
                self.cut()?;
                self.run = head.run.0;
                self.sequence = 0;
                self.totals = Totals::default();
                self.samples_before = 0;
                self.block_state = BlockState::new(0);
            }
            // An epoch is the first record of its block, an end the last (nprof-format(5),
            // BINARY).
            Record::Epoch(_) => self.cut()?,
            _ => {}
        }
        self.count(record);
        match self.encoding {
            Encoding::Text => {
                let start = self.payload.len();
                push_line(&mut self.payload, record);
                self.check.push(&mut self.payload, start, record);
                if self.payload.len() >= TEXT {
                    self.cut()?;
                }
            }
            Encoding::Binary => self.push_binary(record)?,
        }
        if matches!(record, Record::End(_)) {
            self.cut()?;
        }
        Ok(())
    }

    /// Copies the next records of `reader` without rebuilding them, as long as neither side begins a
    /// block. The result equals reading and writing each. These are nodes, plain samples, and the
    /// frames and annotations that `select` selects; `pass` is its last decision. Returns their latest
    /// time, 0 if none has one.
    ///
    /// Samples omit the fields that they share with the one before, so that none is copied unless
    /// both sides have just had the same one.
    ///
    /// # Errors
    ///
    /// An error of `out`.
    pub fn copy_plain<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        pass: Passthrough,
        select: impl FnMut(&Record<'_>) -> Passthrough,
    ) -> io::Result<u64> {
        let is_alike = self.first_time.is_some() && self.block_state == reader.block_state();
        if self.encoding == Encoding::Text || !is_alike {
            return Ok(0);
        }
        // Ends where `write` would cut, so that both ways give the same blocks.
        let room = BLOCK.saturating_sub(self.payload.len());
        let (plain, bytes) = reader.plain_records(room, pass, select);
        self.payload.extend_from_slice(bytes);
        self.block_state = plain.state;
        self.totals.records += plain.records;
        self.totals.samples += plain.samples;
        let latest = plain.latest;
        if self.payload.len() >= BLOCK {
            self.cut()?;
        }
        Ok(latest)
    }

    fn count(&mut self, record: &Record<'_>) {
        if matches!(record, Record::Head(_) | Record::End(_)) || record.is_annotation() {
            return;
        }
        self.totals.records += 1;
        if matches!(record, Record::Sample(_)) {
            self.totals.samples += 1;
        }
    }

    fn push_binary(&mut self, record: &Record<'_>) -> io::Result<()> {
        // The header holds the first time in full: a block is read without those before it.
        if self.first_time.is_none() {
            self.first_time = record.time();
            self.block_state = BlockState::new(self.first_time.unwrap_or(self.block_state.time));
        }
        let (before, state) = (self.payload.len(), self.block_state);
        push_record(&mut self.payload, record, &mut self.block_state);
        if self.payload.len() > limits::PAYLOAD {
            // A record never continues in the next block: it is encoded again in a new one.
            self.payload.truncate(before);
            self.block_state = state;
            if before == 0 {
                let what = "a record is larger than a block of the stream may be";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            let samples = u64::from(matches!(record, Record::Sample(_)));
            // The new block's header counts the samples before it, without this one.
            self.totals.samples -= samples;
            self.cut()?;
            self.totals.samples += samples;
            return self.push_binary(record);
        }
        if self.payload.len() >= BLOCK {
            self.cut()?;
        }
        Ok(())
    }

    /// Writes the gathered bytes: in binary as one block.
    fn cut(&mut self) -> io::Result<()> {
        // A flush without records needs no block, though an empty one would be valid.
        if self.payload.is_empty() {
            return Ok(());
        }
        match self.encoding {
            Encoding::Text => self.out.write_all(&self.payload)?,
            Encoding::Binary => {
                let header = Header {
                    major: crate::record::version::MAJOR,
                    minor: crate::record::version::MINOR,
                    must: 0,
                    may: 0,
                    length: self.payload.len() as u32,
                    run: self.run,
                    sequence: self.sequence,
                    samples: self.samples_before,
                    time: self.first_time.unwrap_or(self.block_state.time),
                };
                let header: [u8; binary::HEADER] = header.to_bytes();
                let crc = block_crc(&header, &self.payload);
                self.payload.extend_from_slice(&crc.to_le_bytes());
                self.out.write_all(&header)?;
                self.out.write_all(&self.payload)?;
                self.sequence = self.sequence.wrapping_add(1);
                self.samples_before = self.totals.samples;
                self.first_time = None;
            }
        }
        self.payload.clear();
        Ok(())
    }

    /// Writes all records so far, so that a reader sees them.
    ///
    /// # Errors
    ///
    /// An error of `out`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.cut()?;
        self.out.flush()
    }

    /// Returns the counts of the current segment so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Flushes, and returns `out`.
    ///
    /// # Errors
    ///
    /// An error of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.out)
    }
}
