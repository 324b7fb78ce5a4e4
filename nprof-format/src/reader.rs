//! From bytes to records: finds blocks and lines, checks them, and finds the way again after
//! damage.
//!
//! Damage does not end the reading. What is damaged is passed over, noted with its place, and
//! the reading goes on at the next block (in text: the next line) that is whole.

use std::io::Read;
use std::ops::Range;

use crate::binary::{self, Bytes, Delta, HEADER, Header, MARK, Scratch, TRAILER, block_crc};
use crate::error::Error;
use crate::extras::Extras;
use crate::kind;
use crate::limits;
use crate::record::{Record, Sample};
use crate::text::{self, Check};
pub use crate::verdict::{Damage, Verdict};
use crate::verdict::{Ledger, Meaning, Place};
use crate::window::Window;

/// What of a block's mark comes before the newline in it.
const MARK_LINE: &[u8] = b"\x89NPF\r";

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
    /// Whether the input ends inside of a block or line.
    cut: bool,
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
}

/// A block, by positions in the window's buffer.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Where its records end.
    payload_end: usize,
    /// Where the next block begins.
    end: usize,
    /// Where a head may be: at the front of a segment's first block.
    head: Option<usize>,
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
            cut: false,
            is_stream: false,
            delta: Delta::new(0),
            scratch: Scratch::default(),
            check: Check::default(),
            respelled: Vec::new(),
            line_scratch: Scratch::default(),
            ledger: Ledger::default(),
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
        let (kind, body) = match body {
            Body::Buffer(kind, range) => (kind, self.window.bytes(range)),
            Body::Respelled(kind) => (kind, &self.respelled[..]),
        };
        // It has been read once before, so that damage could be passed over.
        binary::read_body(kind, body, &mut self.delta, &mut self.scratch).map(Some).map_err(
            |malformed| {
                let what = format!("a record of kind {kind}: {malformed}");
                Error::Required { offset, what }
            },
        )
    }

    /// The next record if it is a sample in a block and has no extras, as nearly all records
    /// are: a short way past everything else.
    fn next_plain_sample(&mut self) -> Option<Sample<'static>> {
        let payload_end = self.block?.payload_end;
        let rest = self.window.bytes(self.window.at..payload_end.max(self.window.at));
        let (&[kind, length], rest) = rest.split_first_chunk()?;
        if kind != kind::SAMPLE || length >= 0x80 || !self.ledger.is_open() {
            return None;
        }
        let mut delta = self.delta;
        let body = Bytes(rest.get(..usize::from(length))?);
        let sample = binary::read_sample(body, &mut delta).ok()?;
        if !sample.extras.is_empty() {
            return None;
        }
        let sample = Sample { extras: Extras::NONE, ..sample };
        self.delta = delta;
        self.window.at += 2 + usize::from(length);
        self.ledger.count_sample();
        Some(sample)
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

    /// Notes damage in the line that was read last.
    fn damage_line(&mut self, start: usize, what: &str) {
        let place = Place { offset: self.window.offset_of(start), line: self.line };
        self.ledger.damage(place, what);
    }

    /// The next record of the block being read.
    fn next_in_block(&mut self) -> Result<Next, Error> {
        let Some(block) = self.block else { return Ok(Next::Again) };
        let start = self.window.at;
        if start >= block.payload_end {
            self.window.at = block.end;
            self.block = None;
            return Ok(Next::Again);
        }
        let mut bytes = Bytes(self.window.bytes(start + 1..block.payload_end));
        let length = bytes.varint().ok().and_then(|length| usize::try_from(length).ok());
        let body_at = block.payload_end - bytes.0.len();
        let Some(length) = length.filter(|&length| length <= bytes.0.len()) else {
            return Ok(self.leave_block(start, "a record that is longer than its block"));
        };
        let kind = self.window.bytes(start..start + 1)[0];
        let range = body_at..body_at + length;
        let is_optional = (kind::FIRST_OPTIONAL..=kind::LAST).contains(&kind);
        if !is_optional && !kind::is_known(kind) {
            if self.cut {
                return Ok(self.leave_block(start, ""));
            }
            let offset = self.window.offset_of(start);
            return Err(Error::Required { offset, what: format!("a record of kind {kind}") });
        }
        if kind == kind::HEAD && block.head != Some(start) {
            return Ok(self.leave_block(start, "a head that is not the first record of block 0"));
        }
        let mut delta = self.delta;
        let body = self.window.bytes(range.clone());
        match binary::read_body(kind, body, &mut delta, &mut self.scratch) {
            Ok(record) => {
                let meaning = Meaning::of(&record);
                let place = Place { offset: self.window.offset_of(start), line: 0 };
                self.window.at = range.end;
                self.ledger.note(place, meaning);
                Ok(Next::Record(Body::Buffer(kind, range)))
            }
            Err(malformed) => {
                let what = format!("a record of kind {kind}: {malformed}");
                Ok(self.leave_block(start, &what))
            }
        }
    }

    /// Passes over the rest of a block: the times after a record that cannot be read are not
    /// known. In a block that was cut off, this is where it was.
    fn leave_block(&mut self, start: usize, what: &str) -> Next {
        if let Some(block) = self.block {
            self.window.at = block.payload_end;
        }
        if !self.cut {
            self.damage(start, what);
        }
        Next::Again
    }

    /// The next line of text, or the beginning of the next block.
    fn next_outside(&mut self) -> Result<Next, Error> {
        if !self.window.fill(1)? {
            if self.window.position() == 0 {
                return Err(Error::NotAStream { hint: ": it is empty" });
            }
            self.ledger.finish(self.cut);
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
        if self.after_block && !begins(self.window.rest()) {
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
        self.is_stream = !is_comment && (begins(start) || text::begins_with_a_record(start));
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

    fn begin_block(&mut self) -> Result<Next, Error> {
        self.after_block = true;
        if !self.window.fill(HEADER)? {
            return Ok(self.cut_off());
        }
        let header = self.window.rest().first_chunk().and_then(Header::from_bytes);
        let Some(header) = header else {
            self.damage(self.window.at, "a block whose header is damaged");
            return self.resynchronize();
        };
        let offset = self.window.position();
        if header.major != crate::MAJOR {
            return Err(Error::Version { offset, major: header.major, minor: header.minor });
        }
        if header.must != 0 {
            let what = format!("a block with the flags {:#x}", header.must);
            return Err(Error::Required { offset, what });
        }
        let length = HEADER + header.length as usize;
        if !self.window.fill(length + TRAILER)? {
            return Ok(self.begin_cut_block(&header));
        }
        let (block, rest) = self.window.rest().split_at(length);
        if block_crc(&block[..HEADER], &block[HEADER..]) != binary::le32(&rest[..TRAILER]) {
            self.damage(self.window.at, "a block whose checksum is wrong");
            return self.pass_over_block(length + TRAILER);
        }
        let payload_end = self.window.at + length;
        self.enter(&header, payload_end, payload_end + TRAILER);
        Ok(Next::Again)
    }

    /// Begins to read a block, of which these are the ends.
    fn enter(&mut self, header: &Header, payload_end: usize, end: usize) {
        let place = Place { offset: self.window.position(), line: 0 };
        self.ledger.enter(header, place);
        self.delta = Delta::new(header.time);
        self.window.at += HEADER;
        let head = (header.sequence == 0).then_some(self.window.at);
        self.block = Some(Block { payload_end, end, head });
    }

    /// A block of which the input holds only the beginning. What is there is good as far as
    /// anyone can tell without the checksum.
    fn begin_cut_block(&mut self, header: &Header) -> Next {
        if let Some(next) = self.find_beginning() {
            self.damage(self.window.at, "a block that is cut off, with another behind it");
            self.window.at += next;
            return Next::Again;
        }
        self.cut = true;
        let end = self.window.filled;
        let payload_end = end.min(self.window.at + HEADER + header.length as usize);
        self.enter(header, payload_end, end);
        Next::Again
    }

    /// Passes over a block whose checksum is wrong: as a whole, if something begins where it
    /// ends. Else it was cut off, and something else was joined to it.
    fn pass_over_block(&mut self, length: usize) -> Result<Next, Error> {
        self.window.fill(length + MARK.len())?;
        let rest = &self.window.rest()[length..];
        if rest.is_empty() || begins(rest) {
            self.window.at += length;
            return Ok(Next::Again);
        }
        self.resynchronize()
    }

    /// Passes over a line that is not at hand as a whole.
    fn pass_over_line(&mut self) -> Result<Next, Error> {
        self.line += 1;
        while self.window.fill(1)? {
            if let Some(length) = memchr::memchr(b'\n', self.window.rest()) {
                self.window.at += length + 1;
                return Ok(Next::Again);
            }
            self.window.at = self.window.filled;
        }
        Ok(self.cut_off())
    }

    fn next_line(&mut self) -> Result<Next, Error> {
        let Some(length) = self.find_newline()? else {
            if self.window.is_over {
                return Ok(self.cut_off());
            }
            self.damage(self.window.at, "a line that is too long");
            return self.pass_over_line();
        };
        let start = self.window.at;
        self.window.at = start + length + 1;
        self.line += 1;
        let line = self.window.bytes(start..start + length);
        // A mark holds a newline. What broke this line may have joined a block to it.
        let is_joined = line.ends_with(MARK_LINE) && line.len() > MARK_LINE.len();
        if matches!(line.first(), None | Some(b'#')) {
            if self.check.take_comment(line) == Some(false) {
                self.damage_line(start, "a line before it was changed: the checksum is wrong");
            }
            if is_joined {
                self.window.at -= MARK_LINE.len() + 1;
                self.damage_line(start, "a comment that was cut off");
            }
            return Ok(Next::Again);
        }
        self.after_block = false;
        let (length, right) = self.check.take(line);
        if right == Some(false) {
            self.damage_line(start, "a line was changed: the checksum is wrong");
        }
        match self.respell(start..start + length)? {
            Ok((meaning, kind)) => {
                let place = Place { offset: self.window.offset_of(start), line: self.line };
                self.ledger.note(place, meaning);
                Ok(Next::Record(Body::Respelled(kind)))
            }
            Err(what) => {
                if is_joined {
                    self.window.at -= MARK_LINE.len() + 1;
                }
                self.damage_line(start, &what);
                Ok(Next::Again)
            }
        }
    }

    /// Reads a line, and puts its record in binary into `respelled`: what it means and its kind,
    /// or what is wrong with it.
    fn respell(&mut self, range: Range<usize>) -> Result<Result<(Meaning, u8), String>, Error> {
        let offset = self.window.offset_of(range.start);
        let line = self.window.bytes_mut(range);
        if line.starts_with(text::HEAD_WORD) {
            match text::head_version(line) {
                Some((major, minor)) if major != crate::MAJOR => {
                    return Err(Error::Version { offset, major, minor });
                }
                Some(_) => {}
                None => return Ok(Err("expected a version after @nprof".to_owned())),
            }
        }
        if let Some(kind) = text::required_kind(line) {
            return Err(Error::Required { offset, what: format!("a record of kind {kind}") });
        }
        let record = match text::read_line(line, &mut self.line_scratch) {
            Ok(record) => record,
            Err(malformed) => return Ok(Err(format!("a line that is no record: {malformed}"))),
        };
        self.respelled.clear();
        self.delta = Delta::new(0);
        binary::push_body(&mut self.respelled, &record, &mut Delta::new(0));
        if self.respelled.len() > limits::BODY {
            return Ok(Err(format!("a record of more than {} bytes", limits::BODY)));
        }
        Ok(Ok((Meaning::of(&record), record.kind())))
    }

    /// The length of the line at hand, without its newline; `None` when there is no newline.
    fn find_newline(&mut self) -> Result<Option<usize>, Error> {
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.window.rest()[searched..]) {
                return Ok(Some(searched + at));
            }
            searched = self.window.rest().len();
            if searched > limits::LINE || !self.window.fill(searched + 1)? {
                return Ok(None);
            }
        }
    }

    /// Goes on at the next thing that looks like the beginning of a block or of a segment in
    /// text.
    fn resynchronize(&mut self) -> Result<Next, Error> {
        self.window.at += 1;
        loop {
            let rest = self.window.rest();
            let block = memchr::memmem::find(rest, &MARK);
            if let Some(at) = block.into_iter().chain(find_text_segment(rest)).min() {
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

    /// Where in the bytes at hand, past the first, a good header or a segment in text begins.
    fn find_beginning(&self) -> Option<usize> {
        let rest = self.window.rest();
        let is_good = |&at: &usize| {
            rest[at..].first_chunk().is_some_and(|header| Header::from_bytes(header).is_some())
        };
        let block = memchr::memmem::find_iter(rest, &MARK).skip(1).find(is_good);
        block.into_iter().chain(find_text_segment(rest)).min()
    }

    /// The input ends in the middle of a block's header or of a line.
    fn cut_off(&mut self) -> Next {
        self.window.at = self.window.filled;
        self.cut = true;
        Next::Again
    }
}

/// Whether bytes are the beginning of a block or of a segment in text, or a comment.
fn begins(bytes: &[u8]) -> bool {
    is_start_of(bytes, &MARK)
        || is_start_of(bytes, text::HEAD_WORD)
        || matches!(bytes, [b'#' | b'\n', ..])
}

/// Whether bytes are what `whole` begins with, as far as either goes.
fn is_start_of(bytes: &[u8], whole: &[u8]) -> bool {
    let length = bytes.len().min(whole.len());
    bytes[..length] == whole[..length]
}

/// Where in bytes a line begins that begins a segment.
fn find_text_segment(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\n@nprof\t").map(|at| at + 1)
}
