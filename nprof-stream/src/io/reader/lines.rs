//! Reads lines of text.

use std::io::Read;
use std::ops::Range;

use super::resync;
use super::stream::{Body, Next, Reader};
use crate::codec::binary::{self, HEADER};
use crate::codec::field::binary::BlockState;
use crate::codec::text;
use crate::io::verdict::{Place, RecordEffect};
use crate::record::error::Error;
use crate::record::limits;

/// The part of a block's magic before the newline in it.
const MARK_LINE: &[u8] = b"\x89NPF\r";

/// A line that was decoded.
enum Line {
    /// Its record is encoded in binary in `reencoded`.
    Record {
        /// The effect of the record on its segment.
        effect: RecordEffect,
        kind: u8,
    },
    /// It is no record; the description of the damage.
    Damaged(String),
}

impl<R: Read> Reader<R> {
    /// Reads the next line.
    pub(super) fn next_line(&mut self) -> Result<Next, Error> {
        let Some(length) = self.find_newline()? else {
            if self.input.is_over {
                return Ok(self.cut_off());
            }
            self.damage(self.input.at, "a line that is too long");
            return self.pass_over_line();
        };
        // Before the line is used: without an LF of its own it is not a record.
        if let Some(at) = self.find_cut(length)? {
            return Ok(self.cut_at(at));
        }
        let start = self.input.at;
        self.input.at = start + length + 1;
        self.line += 1;
        let line = self.input.bytes(start..start + length);
        // The magic contains an LF, which ends a line that was cut off before it.
        let is_joined = magic_in(line).is_some();
        if matches!(line.first(), None | Some(b'#')) {
            if self.check.take_comment(line) == Some(false) {
                self.damage_line(start, "a line before it was changed: the checksum is wrong");
            }
            if is_joined {
                // Back to the magic: a block begins there.
                self.input.at -= MARK_LINE.len() + 1;
                self.damage_line(start, "a comment that was cut off");
            }
            return Ok(Next::Again);
        }
        // Only a record shows that text goes on: a comment may follow a block.
        self.after_block = false;
        let (length, right) = self.check.take(line);
        if right == Some(false) {
            self.damage_line(start, "a line was changed: the checksum is wrong");
        }
        match self.reencode(start..start + length)? {
            Line::Record { effect, kind } => {
                let place = Place { offset: self.input.offset_of(start), line: self.line };
                self.tracker.note(place, effect);
                Ok(Next::Record(Body::Reencoded(kind)))
            }
            Line::Damaged(what) => {
                if is_joined {
                    self.input.at -= MARK_LINE.len() + 1;
                }
                self.damage_line(start, &what);
                Ok(Next::Again)
            }
        }
    }

    /// Returns the position of another segment in a line of this length: the line was cut off there.
    fn find_cut(&mut self, length: usize) -> Result<Option<usize>, Error> {
        let line = &self.input.rest()[..length];
        let (head, magic) = (text::find_head(line), magic_in(line));
        if let Some(at) = magic {
            self.input.fill(at + HEADER)?;
        }
        let header = magic.and_then(|at| resync::header_at(self.input.rest(), at));
        Ok(head.or(magic.filter(|_| header.is_some_and(|header| header.sequence == 0))))
    }

    /// Decodes a line and encodes its record in binary into `reencoded`. Returns its effect and its kind,
    /// or a description of the damage.
    fn reencode(&mut self, range: Range<usize>) -> Result<Line, Error> {
        let offset = self.input.offset_of(range.start);
        let line = self.input.bytes_mut(range);
        // Before the pairs are parsed: another major version may encode them in another way.
        if line.starts_with(text::HEAD_WORD) {
            match text::head_version(line) {
                Some((major, minor)) if major != crate::record::version::MAJOR => {
                    return Err(Error::Version { offset, major, minor });
                }
                Some(_) => {}
                None => return Ok(Line::Damaged("expected a version after @nprof".to_owned())),
            }
        }
        if let Some(kind) = text::required_kind(line) {
            return Err(Error::Required { offset, what: format!("a record of kind {kind}") });
        }
        let record = match text::read_line(line, &mut self.line_scratch) {
            Ok(record) => record,
            Err(malformed) => {
                return Ok(Line::Damaged(format!("a line that is no record: {malformed}")));
            }
        };
        self.reencoded.clear();
        self.block_state = BlockState::new(0);
        binary::push_body(&mut self.reencoded, &record, &mut BlockState::new(0));
        // A line may be longer than a block: such a record has no binary form.
        if self.reencoded.len() > limits::BODY {
            return Ok(Line::Damaged(format!("a record of more than {} bytes", limits::BODY)));
        }
        Ok(Line::Record { effect: RecordEffect::of(&record), kind: record.kind() })
    }

    /// Returns the length of the next line without its newline. None if there is no newline.
    fn find_newline(&mut self) -> Result<Option<usize>, Error> {
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.input.rest()[searched..]) {
                return Ok(Some(searched + at));
            }
            // No byte is searched twice, however few arrive at a time.
            searched = self.input.rest().len();
            // Bounds the buffer for input without an LF.
            if searched > limits::LINE || !self.input.fill(searched + 1)? {
                return Ok(None);
            }
        }
    }

    /// Skips a line that is longer than the buffer may grow.
    fn pass_over_line(&mut self) -> Result<Next, Error> {
        self.line += 1;
        while self.input.fill(1)? {
            if let Some(length) = memchr::memchr(b'\n', self.input.rest()) {
                self.input.at += length + 1;
                return Ok(Next::Again);
            }
            // Drops the bytes: the line may be endless.
            self.input.at = self.input.filled;
        }
        Ok(self.cut_off())
    }

    /// Records damage in the line that was read last.
    fn damage_line(&mut self, start: usize, what: &str) {
        let place = Place { offset: self.input.offset_of(start), line: self.line };
        self.tracker.damage(place, what);
    }
}

/// Returns the position in a line, past its first byte, of the part of the magic before its newline.
fn magic_in(line: &[u8]) -> Option<usize> {
    // At 0, no line was cut off before the magic.
    line.strip_suffix(MARK_LINE).map(<[u8]>::len).filter(|&at| at > 0)
}
