//! Reading blocks: which are good, which were cut off, and the records in them.

use std::io::Read;

use super::resync::{self, begins};
use super::{Body, Next, Reader};
use crate::codec::binary::{self, Bytes, Delta, HEADER, Header, MARK, TRAILER, block_crc};
use crate::io::verdict::{Meaning, Place};
use crate::record::error::Error;
use crate::record::kind;

/// A block, by positions in the window's buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Where its records end.
    pub(super) payload_end: usize,
    /// Where what comes behind it begins.
    pub(super) end: usize,
    /// Where a head may be: at the front of a segment's first block.
    head: Option<usize>,
    /// Whether it has no checksum, because it was cut off: it ends at what is no record.
    is_cut: bool,
}

impl<R: Read> Reader<R> {
    /// Begins to read the block at hand.
    pub(super) fn begin_block(&mut self) -> Result<Next, Error> {
        self.after_block = true;
        let has_header = self.window.fill(HEADER)?;
        let header = self.window.rest().first_chunk().and_then(Header::from_bytes);
        let Some(header) = header else {
            if let Some(at) = self.find_segment(1..HEADER)? {
                return Ok(self.cut_at(at));
            }
            if !has_header {
                return Ok(self.cut_off());
            }
            self.damage(self.window.at, "a block whose header is damaged");
            return self.resynchronize();
        };
        let offset = self.window.position();
        if header.major != crate::record::version::MAJOR {
            return Err(Error::Version { offset, major: header.major, minor: header.minor });
        }
        if header.must != 0 {
            let what = format!("a block with the flags {:#x}", header.must);
            return Err(Error::Required { offset, what });
        }
        let length = HEADER + header.length as usize;
        let is_whole = self.window.fill(length + TRAILER)?;
        if is_whole && self.is_good(length) {
            let end = self.window.at + length + TRAILER;
            self.enter(&header, self.window.at + length, end, false);
            return Ok(Next::Again);
        }
        self.begin_bad_block(&header, is_whole)
    }

    /// Whether the checksum behind this many bytes is right.
    fn is_good(&self, length: usize) -> bool {
        let (block, rest) = self.window.rest().split_at(length);
        block_crc(&block[..HEADER], &block[HEADER..]) == binary::le32(&rest[..TRAILER])
    }

    /// Begins to read a block of which these are the ends.
    fn enter(&mut self, header: &Header, payload_end: usize, end: usize, is_cut: bool) {
        let place = Place { offset: self.window.position(), line: 0 };
        self.ledger.enter(header, place);
        self.delta = Delta::new(header.time);
        self.window.at += HEADER;
        let head = (header.sequence == 0).then_some(self.window.at);
        self.block = Some(Block { payload_end, end, head, is_cut });
    }

    /// A block whose checksum is wrong, or not there because the input ends before.
    ///
    /// Where another segment begins in it, it was cut off there; unless it goes on behind it.
    fn begin_bad_block(&mut self, header: &Header, is_whole: bool) -> Result<Next, Error> {
        let length = HEADER + header.length as usize + TRAILER;
        if !(is_whole && self.goes_on(header, length)?) {
            let extent = length.min(self.window.rest().len());
            match self.find_segment(1..extent)? {
                // By chance the header was right with bytes that are not its own.
                Some(at) if at < HEADER => return Ok(self.cut_at(at)),
                Some(at) => return Ok(self.enter_cut_block(header, at)),
                None => {}
            }
        }
        if is_whole {
            self.damage(self.window.at, "a block whose checksum is wrong");
            return self.pass_over_block(length);
        }
        let rest = self.window.rest();
        if let Some(next) = resync::find_header(rest, 1..rest.len(), |_| true) {
            self.damage(self.window.at, "a block that is cut off, with another behind it");
            self.window.at += next;
            return Ok(Next::Again);
        }
        Ok(self.enter_cut_block(header, self.window.rest().len()))
    }

    /// Whether the block that comes after this one is where this one ends.
    fn goes_on(&mut self, header: &Header, length: usize) -> Result<bool, Error> {
        self.window.fill(length + HEADER)?;
        Ok(resync::header_at(self.window.rest(), length).is_some_and(|next| {
            (next.run, next.sequence) == (header.run, header.sequence.wrapping_add(1))
        }))
    }

    /// Begins to read a block of which only so many bytes are there. They are good as far as
    /// anyone can tell without the checksum.
    fn enter_cut_block(&mut self, header: &Header, length: usize) -> Next {
        let end = self.window.at + length;
        let payload_end = end.min(self.window.at + HEADER + header.length as usize);
        self.enter(header, payload_end, end, true);
        self.ledger.cut();
        Next::Again
    }

    /// Passes over a block whose checksum is wrong: as a whole, if something begins where it
    /// ends.
    fn pass_over_block(&mut self, length: usize) -> Result<Next, Error> {
        self.window.fill(length + MARK.len())?;
        let rest = &self.window.rest()[length..];
        if rest.is_empty() || begins(rest) {
            self.window.at += length;
            return Ok(Next::Again);
        }
        self.resynchronize()
    }

    /// The next record of the block being read.
    pub(super) fn next_in_block(&mut self) -> Result<Next, Error> {
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
            if block.is_cut {
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
            if !block.is_cut {
                self.damage(start, what);
            }
        }
        Next::Again
    }
}
