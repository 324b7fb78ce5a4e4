//! From bytes to records: finds blocks and lines, checks them, and knows at the end whether all
//! was there.
//!
//! Damage does not end the reading. What is damaged is passed over, noted with its place, and
//! the reading goes on at the next block (in text: the next line) that is whole.

use std::io::Read;

use crate::binary::{self, Bytes, Delta, HEADER, Header, MARK, Scratch, TRAILER, block_crc};
use crate::error::Error;
use crate::extras::Extras;
use crate::kind;
use crate::limits;
use crate::record::{FrameId, Line, Record, Sample};
use crate::text;

/// What a stream turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Every segment has its end and all its records.
    Complete,
    /// A segment has no end; nothing before the cut is lost.
    Truncated,
    /// Something in between is missing or wrong.
    Damaged,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Complete => "complete",
            Verdict::Truncated => "truncated",
            Verdict::Damaged => "damaged",
        })
    }
}

/// One place where a stream is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The byte of the input where it was found.
    pub offset: u64,
    /// In text, the line; 0 in binary.
    pub line: u64,
    /// What is wrong.
    pub what: String,
    /// How many samples it cost, when that is known.
    pub samples: Option<u64>,
    /// The span of time it may have cost, ns, when that is known.
    pub span: Option<u64>,
}

/// How many places of damage are kept; more are only counted.
const DAMAGES: usize = 100;

/// What of a block's mark comes before the newline in it.
const MARK_LINE: &[u8] = b"\x89NPF\r";

/// How much is read at once.
const CHUNK: usize = 256 << 10;

/// What is known of the segment being read.
#[derive(Debug, Default)]
struct Segment {
    /// Between a head and its end.
    open: bool,
    /// Damage was found in it.
    damaged: bool,
    /// Its samples so far, those of missing blocks included.
    samples: u64,
    /// Its records so far that are not annotations.
    records: u64,
    /// The run of its last block, and the number of the next one.
    run: u64,
    sequence: u32,
    /// The last block's time.
    time: u64,
}

/// Reads records from `input`, in either spelling and across segments.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    buffer: Vec<u8>,
    /// What of the buffer has been read.
    at: usize,
    /// How far into the buffer there are bytes.
    filled: usize,
    /// The offset in the input of the buffer's first byte.
    offset: u64,
    line: u64,
    eof: bool,
    /// The end in the buffer of the block being read, and of its trailer; `None` between blocks.
    block: Option<Block>,
    delta: Delta,
    scratch: Scratch,
    /// A line of text, respelled in binary.
    respelled: Vec<u8>,
    frames: Vec<FrameId>,
    lines: Vec<Line>,
    segment: Segment,
    /// Whether a block was read last, and not a line of text.
    after_block: bool,
    /// Whether there was a head at all.
    begun: bool,
    /// Whether the input ended inside of a block or line.
    cut: bool,
    verdict: Verdict,
    damages: Vec<Damage>,
    damage_count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Where its records end.
    payload_end: usize,
    /// Where the next block begins.
    end: usize,
}

/// Where the next record's body is.
#[derive(Debug)]
enum Body {
    /// In the buffer.
    Buffer(u8, std::ops::Range<usize>),
    /// In `respelled`.
    Respelled(u8),
}

impl<R: Read> Reader<R> {
    /// Begins to read.
    pub fn new(input: R) -> Self {
        Self {
            input,
            buffer: vec![0; CHUNK],
            at: 0,
            filled: 0,
            offset: 0,
            line: 0,
            eof: false,
            block: None,
            delta: Delta::new(0),
            scratch: Scratch::default(),
            respelled: Vec::new(),
            frames: Vec::new(),
            lines: Vec::new(),
            segment: Segment::default(),
            after_block: false,
            begun: false,
            cut: false,
            verdict: Verdict::Complete,
            damages: Vec::new(),
            damage_count: 0,
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
        let Some(body) = self.advance()? else {
            return Ok(None);
        };
        let (kind, body) = match body {
            Body::Buffer(kind, range) => (kind, &self.buffer[range]),
            Body::Respelled(kind) => (kind, &self.respelled[..]),
        };
        // It has been read once, by advance, so that damage could be passed over.
        match binary::read_body(kind, body, &mut self.delta, &mut self.scratch) {
            Ok(record) => Ok(Some(record)),
            Err(malformed) => {
                let what = format!("a record of kind {kind}: {malformed}");
                Err(Error::Required { offset: self.offset + self.at as u64, what })
            }
        }
    }

    /// The next record if it is a sample in a block and has no extras, as nearly all records
    /// are: a short way past everything else.
    fn next_plain_sample(&mut self) -> Option<Sample<'static>> {
        let rest = self.buffer.get(self.at..self.block?.payload_end)?;
        let (&[kind, length], rest) = rest.split_first_chunk()?;
        if kind != kind::SAMPLE || length >= 0x80 {
            return None;
        }
        let mut delta = self.delta;
        let sample =
            binary::read_sample(Bytes(rest.get(..usize::from(length))?), &mut delta).ok()?;
        if !sample.extras.is_empty() || !self.segment.open {
            return None;
        }
        let sample = Sample { extras: Extras::NONE, ..sample };
        self.delta = delta;
        self.at += 2 + usize::from(length);
        self.segment.records += 1;
        self.segment.samples += 1;
        Some(sample)
    }

    /// Whether the next record can only be had by reading from the input. A filter hands on
    /// what it has before it waits.
    pub fn drained(&self) -> bool {
        let next = match self.block {
            Some(block) if self.at < block.payload_end => return false,
            Some(block) => block.end,
            None => self.at,
        };
        let rest = &self.buffer[next..self.filled];
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
        self.verdict
    }

    /// Where the stream is damaged: the first hundred places.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// How many places of damage were found.
    pub fn damage_count(&self) -> u64 {
        self.damage_count
    }

    /// How many bytes have been read, up to and with the last record.
    pub fn position(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// Finds the next record that is well formed, and takes note of what it means for the
    /// segment.
    fn advance(&mut self) -> Result<Option<Body>, Error> {
        loop {
            let body =
                if self.block.is_some() { self.next_in_block()? } else { self.next_outside()? };
            match body {
                Next::Record(body) => return Ok(Some(body)),
                Next::Again => {}
                Next::End => return Ok(None),
            }
        }
    }

    /// The next record of the block being read.
    fn next_in_block(&mut self) -> Result<Next, Error> {
        let Some(block) = self.block else {
            return Ok(Next::Again);
        };
        if self.at >= block.payload_end {
            self.at = block.end;
            self.block = None;
            return Ok(Next::Again);
        }
        let start = self.at;
        let mut bytes = Bytes(&self.buffer[start + 1..block.payload_end]);
        let length = bytes.varint().ok().and_then(|length| usize::try_from(length).ok());
        let body_at = block.payload_end - bytes.0.len();
        let Some(length) = length.filter(|&length| length <= bytes.0.len()) else {
            // In a block that was cut off, this is where; in a whole one its writer was wrong.
            self.at = block.payload_end;
            if !self.cut {
                self.damage(start, "a record that is longer than its block");
            }
            return Ok(Next::Again);
        };
        let kind = self.buffer[start];
        let range = body_at..body_at + length;
        self.at = range.end;
        if kind < kind::FIRST_OPTIONAL && !kind::is_known(kind) || kind > 127 {
            return Err(Error::Required {
                offset: self.offset + start as u64,
                what: format!("a record of kind {kind}"),
            });
        }
        let mut delta = self.delta;
        let body = &self.buffer[range.clone()];
        match binary::read_body(kind, body, &mut delta, &mut self.scratch) {
            Ok(record) => {
                let meaning = Meaning::of(&record);
                self.note(start, meaning);
                Ok(Next::Record(Body::Buffer(kind, range)))
            }
            Err(malformed) => {
                self.damage(start, &format!("a record of kind {kind}: {malformed}"));
                Ok(Next::Again)
            }
        }
    }

    /// The next line of text, or the beginning of the next block.
    fn next_outside(&mut self) -> Result<Next, Error> {
        if !self.fill(1)? {
            return self.end_of_input();
        }
        if self.position() == 0 {
            self.check_beginning()?;
        }
        if self.buffer[self.at] == MARK[0] {
            return self.begin_block();
        }
        if self.after_block && !self.text_begins()? {
            self.damage(self.at, "neither a block nor a segment in text");
            return self.resynchronize(1);
        }
        self.next_line()
    }

    /// Whether what follows a block is the beginning of a segment in text, or a comment.
    fn text_begins(&mut self) -> Result<bool, Error> {
        self.fill(text::HEAD_WORD.len())?;
        let rest = &self.buffer[self.at..self.filled];
        let length = rest.len().min(text::HEAD_WORD.len());
        Ok(matches!(rest[0], b'#' | b'\n') || rest[..length] == text::HEAD_WORD[..length])
    }

    /// Refuses an input that does not begin like a stream, with a hint where there is one.
    fn check_beginning(&mut self) -> Result<(), Error> {
        self.fill(MARK.len())?;
        let start = &self.buffer[self.at..self.filled];
        let hint = match start {
            [0x1f, 0x8b, ..] => ": it is compressed, pipe it through zcat",
            [0x28, 0xb5, 0x2f, 0xfd, ..] => ": it is compressed, pipe it through zstdcat",
            [0xfd, b'7', b'z', b'X', b'Z', ..] => ": it is compressed, pipe it through xzcat",
            [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..] => ": it is a perf.data file",
            [0x7f, b'E', b'L', b'F', ..] => ": it is a program; record it with nprof-record",
            [0x89, b'N', b'P', b'F', b'\n', ..] => {
                ": its line ends were changed on the way, transfer it as binary"
            }
            _ if start.starts_with(&MARK[..start.len().min(MARK.len())]) => return Ok(()),
            [b'@' | b'#' | b'\n', ..] => return Ok(()),
            _ => "",
        };
        Err(Error::NotAStream { hint })
    }

    fn begin_block(&mut self) -> Result<Next, Error> {
        self.after_block = true;
        if !self.fill(HEADER)? {
            return Ok(self.cut_off());
        }
        let header = self.buffer[self.at..].first_chunk().and_then(Header::from_bytes);
        let Some(header) = header else {
            self.damage(self.at, "a block whose header is damaged");
            return self.resynchronize(1);
        };
        let offset = self.position();
        if header.major != crate::MAJOR {
            return Err(Error::Version { offset, major: header.major, minor: header.minor });
        }
        if header.must != 0 {
            let what = format!("a block with the flags {:#x}", header.must);
            return Err(Error::Required { offset, what });
        }
        let length = header.length as usize;
        let whole = self.fill(HEADER + length + TRAILER)?;
        let start = self.at;
        let payload = start + HEADER;
        if !whole {
            // What is there is good as far as anyone can tell without the checksum.
            self.enter(&header, start);
            let payload_end = self.filled.min(payload + length);
            self.at = payload;
            self.cut = true;
            self.block = Some(Block { payload_end, end: self.filled });
            return Ok(Next::Again);
        }
        let (payload_end, end) = (payload + length, payload + length + TRAILER);
        let crc = block_crc(&self.buffer[start..payload], &self.buffer[payload..payload_end]);
        if crc != binary::le32(&self.buffer[payload_end..end]) {
            self.damage(start, "a block whose checksum is wrong");
            self.at = end;
            return Ok(Next::Again);
        }
        self.enter(&header, start);
        self.at = payload;
        self.block = Some(Block { payload_end, end });
        Ok(Next::Again)
    }

    /// Takes note of a block that is about to be read: whether it is the one that must come.
    fn enter(&mut self, header: &Header, start: usize) {
        self.delta = Delta::new(header.time);
        if header.sequence != 0
            && (self.segment.run, self.segment.sequence) != (header.run, header.sequence)
        {
            self.gap(header, start);
        }
        // A block with the number 0 holds a head, which closes the segment before it.
        self.segment.run = header.run;
        self.segment.sequence = header.sequence.wrapping_add(1);
        self.segment.time = header.time;
    }

    /// A block is not the one that must come.
    fn gap(&mut self, header: &Header, start: usize) {
        if self.segment.run != header.run {
            self.close(false);
            self.segment = Segment::default();
        }
        let missing = header.sequence.checked_sub(self.segment.sequence);
        let what = match missing {
            Some(1) => "a block is missing".to_owned(),
            Some(count) => format!("{count} blocks are missing"),
            None => "a block is out of order".to_owned(),
        };
        let samples = header.samples.checked_sub(self.segment.samples);
        let span = header.time.checked_sub(self.segment.time).filter(|_| self.segment.time > 0);
        self.damage(start, &what);
        if let Some(damage) = self.damages.last_mut() {
            damage.samples = samples;
            damage.span = span;
        }
        self.segment.open = true;
        self.segment.samples = self.segment.samples.max(header.samples);
    }

    fn next_line(&mut self) -> Result<Next, Error> {
        let Some(length) = self.find_newline()? else {
            if self.eof {
                return Ok(self.cut_off());
            }
            self.damage(self.at, "a line that is too long");
            return self.resynchronize(1);
        };
        let start = self.at;
        self.at = start + length + 1;
        self.line += 1;
        let line = &mut self.buffer[start..start + length];
        if matches!(line.first(), None | Some(b'#')) {
            return Ok(Next::Again);
        }
        if line.starts_with(text::HEAD_WORD) {
            match text::head_version(line) {
                Some((major, minor)) if major != crate::MAJOR => {
                    let offset = self.offset + start as u64;
                    return Err(Error::Version { offset, major, minor });
                }
                Some(_) => {}
                None => {
                    self.damage(start, "expected a version after @nprof");
                    return Ok(Next::Again);
                }
            }
        }
        self.after_block = false;
        let line_ends_in_mark = line.ends_with(MARK_LINE) && line.len() > MARK_LINE.len();
        match text::read_line(line, &mut self.frames, &mut self.lines) {
            Ok(record) => {
                let meaning = Meaning::of(&record);
                self.respelled.clear();
                self.delta = Delta::new(0);
                let mut delta = self.delta;
                let kind = record.kind();
                binary::push_body(&mut self.respelled, &record, &mut delta);
                self.note(start, meaning);
                Ok(Next::Record(Body::Respelled(kind)))
            }
            Err(malformed) => {
                // A mark holds a newline. What broke this line may have joined a block to it.
                if line_ends_in_mark {
                    self.at -= MARK_LINE.len() + 1;
                }
                self.damage(start, &format!("a line that is no record: {malformed}"));
                Ok(Next::Again)
            }
        }
    }

    /// The length of the line at hand, without its newline; `None` when there is no newline.
    fn find_newline(&mut self) -> Result<Option<usize>, Error> {
        let mut searched = 0;
        loop {
            let rest = &self.buffer[self.at + searched..self.filled];
            if let Some(at) = memchr::memchr(b'\n', rest) {
                return Ok(Some(searched + at));
            }
            searched = self.filled - self.at;
            if searched > limits::LINE || !self.fill(searched + 1)? {
                return Ok(None);
            }
        }
    }

    /// Goes on at the next thing after `skip` bytes that looks like the beginning of a block or
    /// of a segment in text.
    fn resynchronize(&mut self, skip: usize) -> Result<Next, Error> {
        const SEGMENT: &[u8] = b"\n@nprof\t";
        self.at += skip.min(self.filled - self.at);
        loop {
            let rest = &self.buffer[self.at..self.filled];
            let block = memchr::memmem::find(rest, &MARK);
            let segment = memchr::memmem::find(rest, SEGMENT).map(|at| at + 1);
            if let Some(at) = block.into_iter().chain(segment).min() {
                self.at += at;
                return Ok(Next::Again);
            }
            // What is left may be the beginning of either.
            self.at += rest.len().saturating_sub(MARK.len() - 1);
            let left = self.filled - self.at;
            if !self.fill(left + 1)? {
                self.at = self.filled;
                return Ok(Next::Again);
            }
        }
    }

    /// The input ends in the middle of a block's header or of a line.
    fn cut_off(&mut self) -> Next {
        self.at = self.filled;
        self.cut = true;
        Next::Again
    }

    fn end_of_input(&mut self) -> Result<Next, Error> {
        if self.offset + self.filled as u64 == 0 {
            return Err(Error::NotAStream { hint: ": it is empty" });
        }
        self.close(false);
        if self.cut || !self.begun {
            self.verdict = self.verdict.max(Verdict::Truncated);
        }
        Ok(Next::End)
    }

    /// Takes note of what a record means for its segment.
    fn note(&mut self, start: usize, meaning: Meaning) {
        match meaning {
            Meaning::Head => {
                self.close(false);
                let Segment { run, sequence, time, .. } = self.segment;
                self.segment = Segment { open: true, run, sequence, time, ..Segment::default() };
                self.begun = true;
            }
            Meaning::End { samples, records } => {
                if !self.segment.open {
                    self.damage(start, "an end without a beginning");
                } else if !self.segment.damaged
                    && (samples, records) != (self.segment.samples, self.segment.records)
                {
                    self.damage_counts(start, samples, records);
                }
                self.close(true);
            }
            Meaning::Annotation => {}
            Meaning::Record { sample } => {
                if !self.segment.open {
                    self.damage(start, "a record outside of a segment");
                    self.segment.open = true;
                }
                self.segment.records += 1;
                self.segment.samples += u64::from(sample);
            }
        }
    }

    /// The segment's end tells other counts than were read.
    fn damage_counts(&mut self, start: usize, samples: u64, records: u64) {
        let segment = &self.segment;
        let missing = samples.checked_sub(segment.samples);
        let what = format!(
            "the segment should hold {samples} samples in {records} records, but {} in {} were read",
            segment.samples, segment.records
        );
        self.damage(start, &what);
        if let Some(damage) = self.damages.last_mut() {
            damage.samples = missing;
        }
    }

    /// A segment is over, with its end or without.
    fn close(&mut self, ended: bool) {
        if self.segment.open && !ended {
            self.verdict = self.verdict.max(Verdict::Truncated);
        }
        self.segment.open = false;
    }

    fn damage(&mut self, at: usize, what: &str) {
        self.verdict = Verdict::Damaged;
        self.segment.damaged = true;
        self.damage_count += 1;
        if self.damages.len() < DAMAGES {
            self.damages.push(Damage {
                offset: self.offset + at as u64,
                line: self.line,
                what: what.to_owned(),
                samples: None,
                span: None,
            });
        }
    }

    /// Makes at least `wanted` bytes stand in the buffer from `at` on; `false` when the input
    /// ends before. Bytes before `at` may be forgotten: positions in the buffer change.
    fn fill(&mut self, wanted: usize) -> Result<bool, Error> {
        if self.filled - self.at >= wanted {
            return Ok(true);
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        self.offset += self.at as u64;
        self.filled -= self.at;
        self.at = 0;
        while self.filled < wanted && !self.eof {
            if self.buffer.len() < self.filled + CHUNK / 2 {
                // Grows with what has arrived, not with what a length field announces.
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            match self.input.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.eof = true,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::Read { offset: self.offset + self.filled as u64, source });
                }
            }
        }
        Ok(self.filled >= wanted)
    }
}

/// What became of an attempt to read on.
enum Next {
    Record(Body),
    Again,
    End,
}

/// What a record means for its segment.
#[derive(Clone, Copy)]
enum Meaning {
    Head,
    End { samples: u64, records: u64 },
    Annotation,
    Record { sample: bool },
}

impl Meaning {
    fn of(record: &Record<'_>) -> Self {
        match record {
            Record::Head(_) => Self::Head,
            Record::End(end) => Self::End { samples: end.samples, records: end.records },
            record if record.is_annotation() => Self::Annotation,
            record => Self::Record { sample: matches!(record, Record::Sample(_)) },
        }
    }
}
