//! From bytes to records: finds blocks and lines, checks them, and finds the way again after
//! damage.
//!
//! Damage does not end the reading. What is damaged is passed over, noted with its place, and
//! the reading goes on at the next block (in text: the next line) that is whole.

mod blocks;
mod lines;
mod resync;

use std::io::Read;
use std::ops::Range;

use crate::codec::binary::{self, Delta, HEADER, MARK, Pass, Plain, Scratch, TRAILER};
use crate::codec::text::{self, Check};
use crate::io::input_buffer::Window;
use crate::io::verdict::{Ledger, Place};
use crate::record::error::Error;
use crate::record::{Record, Sample};
use blocks::Block;
use resync::{Start, begins, is_start_of};

pub use crate::io::verdict::{Damage, Verdict};

/// How much more is read at least when a head's line must be had to its end.
const MORE: usize = 64 << 10;

/// Reads records from `input`, in either spelling and across segments.
#[derive(Debug)]
pub struct Reader<R> {
    window: Window<R>,
    /// How many lines of text were read.
    line: u64,
    /// The block being read; `None` between blocks.
    block: Option<Block>,
    /// Whether a block was read last, and not a line of text.
    after_block: bool,
    /// Whether the input was found to begin like a stream.
    is_stream: bool,
    delta: Delta,
    scratch: Scratch,
    /// The checksum of the lines.
    check: Check,
    /// A line of text, respelled in binary: both spellings are read in one way.
    respelled: Vec<u8>,
    line_scratch: Scratch,
    ledger: Ledger,
    /// Up to this byte of the input no segment was found to begin: no byte is searched twice.
    searched: u64,
}

/// Where the next record's body is, and its kind.
#[derive(Debug)]
enum Body {
    Buffer(u8, Range<usize>),
    Respelled(u8),
}

/// What became of an attempt to read on.
enum Next {
    Record(Body),
    Again,
    End,
}

impl<R: Read> Reader<R> {
    /// Begins to read.
    pub fn new(input: R) -> Self {
        Self {
            window: Window::new(input),
            line: 0,
            block: None,
            after_block: false,
            is_stream: false,
            delta: Delta::new(0),
            scratch: Scratch::default(),
            check: Check::default(),
            respelled: Vec::new(),
            line_scratch: Scratch::default(),
            ledger: Ledger::default(),
            searched: 0,
        }
    }

    /// The next record, or `None` at the end of the input; then [`Reader::verdict`] is final.
    ///
    /// # Errors
    ///
    /// See [`Error`]: the input cannot be read, is no stream, or must not be read by this
    /// version. Damage is not an error.
    #[allow(clippy::should_implement_trait)] // a lending iterator: the record borrows from self
    pub fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        if let Some(sample) = self.next_plain_sample() {
            return Ok(Some(Record::Sample(sample)));
        }
        let body = loop {
            let next =
                if self.block.is_some() { self.next_in_block()? } else { self.next_outside()? };
            match next {
                Next::Record(body) => break body,
                Next::Again => {}
                Next::End => return Ok(None),
            }
        };
        let offset = self.window.position();
        let (delta, scratch) = (&mut self.delta, &mut self.scratch);
        let (kind, record) = match body {
            // It has been read once before, so that damage could be passed over.
            Body::Buffer(kind, range) => {
                (kind, binary::read_again(kind, self.window.bytes(range), delta, scratch))
            }
            Body::Respelled(kind) => {
                (kind, binary::read_body(kind, &self.respelled, delta, scratch))
            }
        };
        record.map(Some).map_err(|malformed| {
            let what = format!("a record of kind {kind}: {malformed}");
            Error::Required { offset, what }
        })
    }

    /// The next record if it is a sample in a block and plain, as nearly all records are: a short
    /// way past everything else.
    fn next_plain_sample(&mut self) -> Option<Sample<'static>> {
        let payload_end = self.block?.payload_end;
        if !self.ledger.is_open() {
            return None;
        }
        let rest = self.window.bytes(self.window.at..payload_end.max(self.window.at));
        let (sample, behind) = binary::next_plain_sample(rest, &mut self.delta)?;
        self.window.at = payload_end - behind.len();
        self.ledger.count(1, 1);
        Some(sample)
    }

    /// Takes the records that come next in the block as long as they are plain, up to the one that
    /// reaches `room` bytes, as [`Plain::read`] does. Second, how they are spelled.
    pub(crate) fn plain_records(
        &mut self,
        room: usize,
        pass: Pass,
        judge: impl FnMut(&Record<'_>) -> Pass,
    ) -> (Plain, &[u8]) {
        let start = self.window.at;
        let end = self.block.filter(|_| self.ledger.is_open()).map_or(start, |b| b.payload_end);
        let rest = self.window.bytes(start..end.max(start));
        let plain = Plain::read(rest, room, &mut self.delta, &mut self.scratch, pass, judge);
        self.window.at += plain.length;
        self.ledger.count(plain.records, plain.samples);
        (plain, self.window.bytes(start..self.window.at))
    }

    /// Passes over the records that come next in a block: see [`crate::io::writer::Writer::pass`].
    pub fn pass_over(&mut self, pass: Pass, judge: impl FnMut(&Record<'_>) -> Pass) -> u64 {
        self.plain_records(usize::MAX, pass, judge).0.latest
    }

    /// What the last record left for the next one in its block.
    pub(crate) fn delta(&self) -> Delta {
        self.delta
    }

    /// Whether the next record can only be had by reading from the input. A filter hands on
    /// what it has before it waits.
    pub fn drained(&self) -> bool {
        let next = match self.block {
            Some(block) if self.window.at < block.payload_end => return false,
            Some(block) => block.end,
            None => self.window.at,
        };
        let rest = self.window.bytes(next..self.window.filled);
        match rest.first() {
            None => true,
            Some(&byte) if byte == MARK[0] => {
                let length = rest.get(12..16).map_or(0, binary::le32);
                rest.len() < HEADER + length as usize + TRAILER
            }
            Some(_) => memchr::memchr(b'\n', rest).is_none(),
        }
    }

    /// The worst that is known of any segment so far.
    pub fn verdict(&self) -> Verdict {
        self.ledger.verdict
    }

    /// Where the stream is damaged: the first hundred places.
    pub fn damages(&self) -> &[Damage] {
        &self.ledger.damages
    }

    /// How many places of damage were found.
    pub fn damage_count(&self) -> u64 {
        self.ledger.damage_count
    }

    /// How many bytes have been read, up to and with the last record.
    pub fn position(&self) -> u64 {
        self.window.position()
    }

    /// Notes damage in a block, or where one should be.
    fn damage(&mut self, at: usize, what: &str) {
        let place = Place { offset: self.window.offset_of(at), line: 0 };
        self.ledger.damage(place, what);
    }

    /// The next line of text, or the beginning of the next block.
    fn next_outside(&mut self) -> Result<Next, Error> {
        if !self.window.fill(1)? {
            if self.window.position() == 0 {
                return Err(Error::NotAStream { hint: ": it is empty" });
            }
            self.ledger.finish();
            return Ok(Next::End);
        }
        if !self.is_stream {
            self.check_beginning()?;
        }
        if self.window.rest()[0] == MARK[0] {
            self.window.fill(MARK.len())?;
            if is_start_of(self.window.rest(), &MARK) {
                return self.begin_block();
            }
        }
        self.window.fill(text::HEAD_WORD.len())?;
        let is_line = begins(self.window.rest()) || !self.after_block;
        let may_be_cut = !is_line || self.window.rest()[0] == MARK[0];
        if may_be_cut && let Some(at) = self.find_joined()? {
            return Ok(self.cut_at(at));
        }
        if !is_line {
            self.damage(self.window.at, "neither a block nor a segment in text");
            return self.resynchronize();
        }
        self.next_line()
    }

    /// Refuses an input that does not begin like a stream, behind comments, with a hint where
    /// there is one.
    fn check_beginning(&mut self) -> Result<(), Error> {
        self.window.fill(MARK.len())?;
        let start = self.window.rest();
        let is_comment = matches!(start, [b'#' | b'\n', ..]);
        let is_start = begins(start) || text::begins_with_a_record(start);
        self.is_stream = !is_comment && (is_start || self.find_joined()?.is_some());
        let start = self.window.rest();
        let hint = match start {
            _ if self.is_stream || is_comment => return Ok(()),
            [0x1f, 0x8b, ..] => ": it is compressed, pipe it through zcat",
            [0x28, 0xb5, 0x2f, 0xfd, ..] => ": it is compressed, pipe it through zstdcat",
            [0xfd, b'7', b'z', b'X', b'Z', ..] => ": it is compressed, pipe it through xzcat",
            [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..] => ": it is a perf.data file",
            [0x7f, b'E', b'L', b'F', ..] => ": it is a program; record it with nprof-record",
            [0x89, b'N', b'P', b'F', b'\n', ..] => {
                ": its line ends were changed on the way, transfer it as binary"
            }
            _ => "",
        };
        Err(Error::NotAStream { hint })
    }

    /// Where another segment begins of those bytes at hand that are `within`.
    fn find_segment(&mut self, within: Range<usize>) -> Result<Option<usize>, Error> {
        let known = self.searched.saturating_sub(self.window.position());
        let from = usize::try_from(known).map_or(within.end, |known| known.max(within.start));
        self.window.fill(within.end + HEADER)?;
        loop {
            let found = resync::find_segment(self.window.rest(), from..within.end);
            let held = self.window.rest().len();
            if let Start::At(at) = found {
                return Ok(Some(at));
            }
            if found == Start::Unfinished {
                self.window.fill(held + MORE)?;
            }
            if self.window.rest().len() == held {
                let end = self.window.position() + within.end as u64;
                self.searched = self.searched.max(end);
                return Ok(None);
            }
        }
    }

    /// Where a segment begins that is joined to no more than the first bytes of another's mark
    /// or word.
    fn find_joined(&mut self) -> Result<Option<usize>, Error> {
        if ![MARK[0], text::HEAD_WORD[0]].contains(&self.window.rest()[0]) {
            return Ok(None);
        }
        let found = self.find_segment(1..MARK.len())?;
        Ok(found.filter(|&at| begins(&self.window.rest()[..at])))
    }

    /// Goes on where another segment begins: what is before it was cut off there.
    fn cut_at(&mut self, at: usize) -> Next {
        self.ledger.cut();
        self.window.at += at;
        Next::Again
    }

    /// The input ends in the middle of a block's header or of a line.
    fn cut_off(&mut self) -> Next {
        self.cut_at(self.window.rest().len())
    }

    /// Goes on at the next thing that looks like the beginning of a block or of a segment in
    /// text.
    fn resynchronize(&mut self) -> Result<Next, Error> {
        self.window.at += 1;
        loop {
            let rest = self.window.rest();
            if let Some(at) = resync::find_any(rest) {
                self.window.at += at;
                return Ok(Next::Again);
            }
            // What is left may be the beginning of either.
            self.window.at += rest.len().saturating_sub(MARK.len());
            let left = self.window.rest().len();
            if !self.window.fill(left + 1)? {
                self.window.at = self.window.filled;
                return Ok(Next::Again);
            }
        }
    }
}
