//! Reads blocks: good ones, those that were cut off, and their records.

use std::io::Read;

use super::block::Block;
use super::resync::{self, begins};
use super::stream::{Body, Next, Reader};
use crate::codec::binary::{self, HEADER, Header, MAGIC, TRAILER, block_crc};
use crate::codec::field::binary::{BlockState, Bytes};
use crate::io::verdict::{Place, RecordEffect};
use crate::record::error::Error;
use crate::record::kind;

impl<R: Read> Reader<R> {
    /// Begins the next block.
    pub(super) fn begin_block(&mut self) -> Result<Next, Error> {
        self.after_block = true;
        let has_header = self.input.fill(HEADER)?;
        let header = self.input.rest().first_chunk().and_then(Header::from_bytes);
        let Some(header) = header else {
            // Before the check for the end: an appended segment may be shorter than a header.
            if let Some(at) = self.find_segment(1..HEADER)? {
                return Ok(self.cut_at(at));
            }
            if !has_header {
                return Ok(self.cut_off());
            }
            self.damage(self.input.at, "a block with a damaged header");
            return self.resynchronize();
        };
        let offset = self.input.position();
        // After the header's CRC: a flipped bit is damage, not another version.
        if header.major != crate::record::version::MAJOR {
            return Err(Error::Version { offset, major: header.major, minor: header.minor });
        }
        if header.must != 0 {
            let what = format!("a block with the flags {:#x}", header.must);
            return Err(Error::Required { offset, what });
        }
        let length = HEADER + header.length as usize;
        // A hostile length buffers at most 1 MiB, see `Header::from_bytes`.
        let is_whole = self.input.fill(length + TRAILER)?;
        if is_whole && self.is_good(length) {
            let end = self.input.at + length + TRAILER;
            self.enter(&header, self.input.at + length, end, false);
            return Ok(Next::Again);
        }
        self.begin_bad_block(&header, is_whole)
    }

    /// True if the checksum after `length` bytes is right.
    fn is_good(&self, length: usize) -> bool {
        let (block, rest) = self.input.rest().split_at(length);
        block_crc(&block[..HEADER], &block[HEADER..]) == binary::le32(&rest[..TRAILER])
    }

    /// Begins the block with these ends.
    fn enter(&mut self, header: &Header, payload_end: usize, end: usize, is_cut: bool) {
        let place = Place { offset: self.input.position(), line: 0 };
        self.tracker.enter(header, place);
        self.block_state = BlockState::new(header.time);
        self.input.at += HEADER;
        let head = (header.sequence == 0).then_some(self.input.at);
        self.block = Some(Block { payload_end, end, head, is_cut });
    }

    /// Begins a block with a wrong checksum, or without one because the input ended.
    ///
    /// If another segment begins in it, it was cut off there, unless its run continues after it.
    fn begin_bad_block(&mut self, header: &Header, is_whole: bool) -> Result<Next, Error> {
        let length = HEADER + header.length as usize + TRAILER;
        // A block followed by the next of its run was not cut off: a segment inside it is payload.
        if !(is_whole && self.goes_on(header, length)?) {
            let extent = length.min(self.input.rest().len());
            match self.find_segment(1..extent)? {
                // The header matched by chance: it is followed by bytes that are not its own.
                Some(at) if at < HEADER => return Ok(self.cut_at(at)),
                Some(at) => return Ok(self.enter_cut_block(header, at)),
                None => {}
            }
        }
        if is_whole {
            self.damage(self.input.at, "a block with a wrong checksum");
            return self.pass_over_block(length);
        }
        let rest = self.input.rest();
        // Another block begins before the announced end: bytes in between are missing.
        if let Some(next) = resync::find_header(rest, 1..rest.len(), |_| true) {
            self.damage(self.input.at, "a block that is cut off, followed by another");
            self.input.at += next;
            return Ok(Next::Again);
        }
        Ok(self.enter_cut_block(header, self.input.rest().len()))
    }

    /// True if the next block of the run begins at the end of this one.
    fn goes_on(&mut self, header: &Header, length: usize) -> Result<bool, Error> {
        self.input.fill(length + HEADER)?;
        Ok(resync::header_at(self.input.rest(), length).is_some_and(|next| {
            (next.run, next.sequence) == (header.run, header.sequence.wrapping_add(1))
        }))
    }

    /// Begins a block of which only `length` bytes are there. Without the checksum, they are taken as
    /// good up to the first malformed record.
    fn enter_cut_block(&mut self, header: &Header, length: usize) -> Next {
        let end = self.input.at + length;
        // The cut may be inside the CRC after the payload, which is not a record.
        let payload_end = end.min(self.input.at + HEADER + header.length as usize);
        self.enter(header, payload_end, end, true);
        self.tracker.cut();
        Next::Again
    }

    /// Skips a block with a wrong checksum: as a whole, if something valid begins at its end.
    fn pass_over_block(&mut self, length: usize) -> Result<Next, Error> {
        self.input.fill(length + MAGIC.len())?;
        let rest = &self.input.rest()[length..];
        if rest.is_empty() || begins(rest) {
            self.input.at += length;
            return Ok(Next::Again);
        }
        self.resynchronize()
    }

    /// Returns the next record of the present block.
    pub(super) fn next_in_block(&mut self) -> Result<Next, Error> {
        let Some(block) = self.block else { return Ok(Next::Again) };
        let start = self.input.at;
        if start >= block.payload_end {
            self.input.at = block.end;
            self.block = None;
            return Ok(Next::Again);
        }
        let mut bytes = Bytes(self.input.bytes(start + 1..block.payload_end));
        let length = bytes.varint().ok().and_then(|length| usize::try_from(length).ok());
        let body_at = block.payload_end - bytes.0.len();
        // A record never continues in the next block (nprof-format(5), BINARY).
        let Some(length) = length.filter(|&length| length <= bytes.0.len()) else {
            return Ok(self.leave_block(start, "a record that is longer than its block"));
        };
        let kind = self.input.bytes(start..start + 1)[0];
        let range = body_at..body_at + length;
        let is_optional = (kind::FIRST_OPTIONAL..=kind::LAST).contains(&kind);
        if !is_optional && !kind::is_known(kind) {
            // Without a checksum the number may be wrong: an unknown kind is not refused.
            if block.is_cut {
                return Ok(self.leave_block(start, ""));
            }
            let offset = self.input.offset_of(start);
            return Err(Error::Required { offset, what: format!("a record of kind {kind}") });
        }
        // Elsewhere, a head would begin a segment without a block 0.
        if kind == kind::HEAD && block.head != Some(start) {
            return Ok(self.leave_block(start, "a head that is not the first record of block 0"));
        }
        // A copy: `Reader::next` decodes the body again and then advances the time.
        let mut state = self.block_state;
        let body = self.input.bytes(range.clone());
        match binary::read_body(kind, body, &mut state, &mut self.scratch) {
            Ok(record) => {
                let meaning = RecordEffect::of(&record);
                let place = Place { offset: self.input.offset_of(start), line: 0 };
                self.input.at = range.end;
                self.tracker.note(place, meaning);
                Ok(Next::Record(Body::Buffer(kind, range)))
            }
            Err(malformed) => {
                let what = format!("a record of kind {kind}: {malformed}");
                Ok(self.leave_block(start, &what))
            }
        }
    }

    /// Skips the rest of a block: the times after a malformed record are unknown. A block that was cut
    /// off ends here.
    fn leave_block(&mut self, start: usize, what: &str) -> Next {
        if let Some(block) = self.block {
            self.input.at = block.payload_end;
            // The cut was recorded at the block's beginning.
            if !block.is_cut {
                self.damage(start, what);
            }
        }
        Next::Again
    }
}
