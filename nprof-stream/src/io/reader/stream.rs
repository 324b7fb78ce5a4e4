//! The reader: its state, and the choice between blocks and lines.

use std::io::Read;
use std::ops::Range;

use super::block::Block;
use super::resync::{self, Start, begins, is_start_of};
use crate::codec::binary::{self, HEADER, MAGIC, Passthrough, RawRecords, TRAILER};
use crate::codec::field::binary::BlockState;
use crate::codec::kinds::encoded::Scratch;
use crate::codec::text::{self, Check};
use crate::io::input_buffer::InputBuffer;
use crate::io::verdict::{Damage, Place, Verdict, VerdictTracker};
use crate::record::error::Error;
use crate::record::{Record, Sample};
/// The least number of bytes that are read to get a head's line to its end.
const MORE: usize = 64 << 10;

/// Reads records from `input`, in either encoding and across segments.
#[derive(Debug)]
pub struct Reader<R> {
    pub(super) input: InputBuffer<R>,
    /// The number of lines of text so far.
    pub(super) line: u64,
    /// The present block; `None` between blocks.
    pub(super) block: Option<Block>,
    /// True after a block, false after a line of text.
    pub(super) after_block: bool,
    /// True if the input was found to begin like a stream.
    pub(super) is_stream: bool,
    pub(super) block_state: BlockState,
    pub(super) scratch: Scratch,
    /// The checksum of the lines.
    pub(super) check: Check,
    /// A line of text, encoded in binary: both encodings are decoded in one way.
    pub(super) reencoded: Vec<u8>,
    pub(super) line_scratch: Scratch,
    pub(super) tracker: VerdictTracker,
    /// No segment begins before this byte of the input: no byte is searched twice.
    pub(super) searched: u64,
}

/// The place of the next record's body, and its kind.
#[derive(Debug)]
pub(super) enum Body {
    Buffer(u8, Range<usize>),
    Reencoded(u8),
}

/// The result of an attempt to read on.
pub(super) enum Next {
    Record(Body),
    Again,
    End,
}

impl<R: Read> Reader<R> {
    /// Creates a reader.
    pub fn new(input: R) -> Self {
        Self {
            input: InputBuffer::new(input),
            line: 0,
            block: None,
            after_block: false,
            is_stream: false,
            block_state: BlockState::new(0),
            scratch: Scratch::default(),
            check: Check::default(),
            reencoded: Vec::new(),
            line_scratch: Scratch::default(),
            tracker: VerdictTracker::default(),
            searched: 0,
        }
    }

    /// Returns the next record. None at the end of the input; then [`Reader::verdict`] is final.
    ///
    /// # Errors
    ///
    /// See [`Error`]: the input cannot be read, is no stream, or must not be read by this version.
    /// Damage is not an error.
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
        let offset = self.input.position();
        let (state, scratch) = (&mut self.block_state, &mut self.scratch);
        let (kind, record) = match body {
            // It has been decoded once before, so that damage could be skipped.
            Body::Buffer(kind, range) => {
                (kind, binary::read_again(kind, self.input.bytes(range), state, scratch))
            }
            Body::Reencoded(kind) => {
                (kind, binary::read_body(kind, &self.reencoded, state, scratch))
            }
        };
        // Not expected after the first pass; an error instead of a panic if it occurs.
        record.map(Some).map_err(|malformed| {
            let what = format!("a record of kind {kind}: {malformed}");
            Error::Required { offset, what }
        })
    }

    /// Returns the next record if it is a plain sample in a block, as nearly all records are: a short
    /// path around all checks.
    pub(super) fn next_plain_sample(&mut self) -> Option<Sample<'static>> {
        let payload_end = self.block?.payload_end;
        // Outside of a segment a sample is damage: the long path reports it.
        if !self.tracker.is_open() {
            return None;
        }
        let rest = self.input.bytes(self.input.at..payload_end.max(self.input.at));
        let (sample, behind) = binary::next_plain_sample(rest, &mut self.block_state)?;
        self.input.at = payload_end - behind.len();
        self.tracker.count(1, 1);
        Some(sample)
    }

    /// Passes the next records to `sink` while they are plain samples of the present block, as nearly all
    /// records are, and `sink` returns true. [`Reader::next`] returns the record after them.
    pub fn plain_samples(&mut self, mut sink: impl FnMut(&Sample<'static>) -> bool) {
        let Some(block) = self.block.filter(|_| self.tracker.is_open()) else { return };
        let mut rest = self.input.bytes(self.input.at..block.payload_end.max(self.input.at));
        // Written back once: in the loop, the state stays in registers.
        let mut state = self.block_state;
        let (before, mut samples) = (rest.len(), 0);
        while let Some((sample, behind)) = binary::next_plain_sample(rest, &mut state) {
            rest = behind;
            samples += 1;
            if !sink(&sample) {
                break;
            }
        }
        self.input.at += before - rest.len();
        self.block_state = state;
        self.tracker.count(samples, samples);
    }

    /// Reads plain records of the block until they reach `room` bytes, or one is not plain (see
    /// [`RawRecords::read`]). Returns them and their bytes.
    pub(crate) fn plain_records(
        &mut self,
        room: usize,
        pass: Passthrough,
        select: impl FnMut(&Record<'_>) -> Passthrough,
    ) -> (RawRecords, &[u8]) {
        let start = self.input.at;
        let end = self.block.filter(|_| self.tracker.is_open()).map_or(start, |b| b.payload_end);
        let rest = self.input.bytes(start..end.max(start));
        let plain =
            RawRecords::read(rest, room, &mut self.block_state, &mut self.scratch, pass, select);
        self.input.at += plain.length;
        self.tracker.count(plain.records, plain.samples);
        (plain, self.input.bytes(start..self.input.at))
    }

    /// Skips the next records in a block: see [`crate::io::writer::Writer::copy_plain`].
    pub fn skip_records(
        &mut self,
        pass: Passthrough,
        select: impl FnMut(&Record<'_>) -> Passthrough,
    ) -> u64 {
        self.plain_records(usize::MAX, pass, select).0.latest
    }

    /// Returns the state that the last record left for the next one in its block.
    pub(crate) fn block_state(&self) -> BlockState {
        self.block_state
    }

    /// True if the next record is not buffered, so that the reader must read from the input, which
    /// may block. A filter flushes its output before it waits.
    pub fn would_block(&self) -> bool {
        let next = match self.block {
            Some(block) if self.input.at < block.payload_end => return false,
            Some(block) => block.end,
            None => self.input.at,
        };
        let rest = self.input.bytes(next..self.input.filled);
        match rest.first() {
            None => true,
            Some(&byte) if byte == MAGIC[0] => {
                // Bytes 12 to 15 of a header are the payload's length.
                let length = rest.get(12..16).map_or(0, binary::le32);
                rest.len() < HEADER + length as usize + TRAILER
            }
            Some(_) => memchr::memchr(b'\n', rest).is_none(),
        }
    }

    /// Returns the worst finding of any segment so far.
    pub fn verdict(&self) -> Verdict {
        self.tracker.verdict
    }

    /// Returns the places of damage: the first hundred.
    pub fn damages(&self) -> &[Damage] {
        &self.tracker.damages
    }

    /// Returns the number of places of damage.
    pub fn damage_count(&self) -> u64 {
        self.tracker.damage_count
    }

    /// Returns the number of bytes up to and with the last record.
    pub fn position(&self) -> u64 {
        self.input.position()
    }

    /// Records damage in a block, or in the place of one.
    pub(super) fn damage(&mut self, at: usize, what: &str) {
        let place = Place { offset: self.input.offset_of(at), line: 0 };
        self.tracker.damage(place, what);
    }

    /// Reads the next line of text, or begins the next block.
    pub(super) fn next_outside(&mut self) -> Result<Next, Error> {
        if !self.input.fill(1)? {
            // An empty input is refused (nprof-format(5), VERDICTS).
            if self.input.position() == 0 {
                return Err(Error::NotAStream { hint: ": it is empty" });
            }
            self.tracker.finish();
            return Ok(Next::End);
        }
        if !self.is_stream {
            self.check_beginning()?;
        }
        if self.input.rest()[0] == MAGIC[0] {
            self.input.fill(MAGIC.len())?;
            // Also with less than the magic before the end of the input: its header was cut off.
            if is_start_of(self.input.rest(), &MAGIC) {
                return self.begin_block();
            }
        }
        self.input.fill(text::HEAD_WORD.len())?;
        let is_line = begins(self.input.rest()) || !self.after_block;
        let may_be_cut = !is_line || self.input.rest()[0] == MAGIC[0];
        if may_be_cut && let Some(at) = self.find_joined()? {
            return Ok(self.cut_at(at));
        }
        // After a block only the magic, a segment in text or a comment may follow.
        if !is_line {
            self.damage(self.input.at, "neither a block nor a segment in text");
            return self.resynchronize();
        }
        self.next_line()
    }

    /// Refuses an input that does not begin like a stream, after comments, with a hint if there is one.
    pub(super) fn check_beginning(&mut self) -> Result<(), Error> {
        self.input.fill(MAGIC.len())?;
        let start = self.input.rest();
        let is_comment = matches!(start, [b'#' | b'\n', ..]);
        let is_start = begins(start) || text::begins_with_a_record(start);
        // Comments may come before any stream: the first line after them decides.
        self.is_stream = !is_comment && (is_start || self.find_joined()?.is_some());
        let start = self.input.rest();
        let hint = match start {
            _ if self.is_stream || is_comment => return Ok(()),
            [0x1f, 0x8b, ..] => ": it is compressed, pipe it through zcat",
            [0x28, 0xb5, 0x2f, 0xfd, ..] => ": it is compressed, pipe it through zstdcat",
            [0xfd, b'7', b'z', b'X', b'Z', ..] => ": it is compressed, pipe it through xzcat",
            [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..] => ": it is a perf.data file",
            [0x7f, b'E', b'L', b'F', ..] => ": it is a program; record it with nprof-record",
            // The magic has CR LF, which a transfer as text turns into LF.
            [0x89, b'N', b'P', b'F', b'\n', ..] => {
                ": its line ends were changed on the way, transfer it as binary"
            }
            _ => "",
        };
        Err(Error::NotAStream { hint })
    }

    /// Returns the position of another segment among the buffered bytes that are `within`.
    pub(super) fn find_segment(&mut self, within: Range<usize>) -> Result<Option<usize>, Error> {
        let known = self.searched.saturating_sub(self.input.position());
        let from = usize::try_from(known).map_or(within.end, |known| known.max(within.start));
        // A header may begin at the last position of the part.
        self.input.fill(within.end + HEADER)?;
        loop {
            let found = resync::find_segment(self.input.rest(), from..within.end);
            let held = self.input.rest().len();
            if let Start::At(at) = found {
                return Ok(Some(at));
            }
            if found == Start::Unfinished {
                self.input.fill(held + MORE)?;
            }
            // The input is over: an unfinished line stays unfinished.
            if self.input.rest().len() == held {
                let end = self.input.position() + within.end as u64;
                self.searched = self.searched.max(end);
                return Ok(None);
            }
        }
    }

    /// Returns the position of a segment that is joined to only the first bytes of another's magic or
    /// word.
    pub(super) fn find_joined(&mut self) -> Result<Option<usize>, Error> {
        if ![MAGIC[0], text::HEAD_WORD[0]].contains(&self.input.rest()[0]) {
            return Ok(None);
        }
        let found = self.find_segment(1..MAGIC.len())?;
        // Any other bytes before it are damage, not a cut-off beginning.
        Ok(found.filter(|&at| begins(&self.input.rest()[..at])))
    }

    /// Continues at another segment: the bytes before it were cut off there.
    pub(super) fn cut_at(&mut self, at: usize) -> Next {
        self.tracker.cut();
        self.input.at += at;
        Next::Again
    }

    /// Records that the input ends in the middle of a block's header or of a line.
    pub(super) fn cut_off(&mut self) -> Next {
        self.cut_at(self.input.rest().len())
    }

    /// Continues at the next bytes that look like the beginning of a block or of a segment in text.
    pub(super) fn resynchronize(&mut self) -> Result<Next, Error> {
        // Past the first byte, which has failed: the search always advances.
        self.input.at += 1;
        loop {
            let rest = self.input.rest();
            if let Some(at) = resync::find_any(rest) {
                self.input.at += at;
                return Ok(Next::Again);
            }
            // The remaining bytes may be the beginning of either.
            self.input.at += rest.len().saturating_sub(MAGIC.len());
            let left = self.input.rest().len();
            if !self.input.fill(left + 1)? {
                self.input.at = self.input.filled;
                return Ok(Next::Again);
            }
        }
    }
}
