//! A buffer over the input, filled on demand.

use std::io::{ErrorKind, Read};

use crate::record::error::Error;

/// The number of bytes of one read.
const CHUNK: usize = 256 << 10;

/// The unread bytes of the input.
#[derive(Debug)]
pub(crate) struct InputBuffer<R> {
    input: R,
    buffer: Vec<u8>,
    /// The position in the buffer of the next byte to parse.
    pub(crate) at: usize,
    /// The end of the valid bytes in the buffer.
    pub(crate) filled: usize,
    /// The offset in the input of the buffer's first byte.
    offset: u64,
    /// True if the input has no more bytes.
    pub(crate) is_over: bool,
}

impl<R: Read> InputBuffer<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, buffer: vec![0; CHUNK], at: 0, filled: 0, offset: 0, is_over: false }
    }

    /// Returns the offset in the input of the next byte to parse.
    pub(crate) fn position(&self) -> u64 {
        self.offset_of(self.at)
    }

    /// Returns the offset in the input of a byte of the buffer.
    pub(crate) fn offset_of(&self, at: usize) -> u64 {
        self.offset + at as u64
    }

    /// Returns the buffered bytes that are not parsed yet.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.buffer[self.at..self.filled]
    }

    /// Returns bytes of the buffer.
    pub(crate) fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Returns bytes of the buffer, to be changed in place.
    pub(crate) fn bytes_mut(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        &mut self.buffer[range]
    }

    /// Buffers at least `wanted` bytes; returns false if the input ends before. Positions in the buffer
    /// change, except relative to `at`.
    pub(crate) fn fill(&mut self, wanted: usize) -> Result<bool, Error> {
        // Before the move below, which most calls do not need.
        if self.filled - self.at >= wanted {
            return Ok(true);
        }
        // Moves instead of growing: memory follows the largest block, not the stream.
        self.buffer.copy_within(self.at..self.filled, 0);
        self.offset += self.at as u64;
        self.filled -= self.at;
        self.at = 0;
        // No further read once the bytes are there: a live producer may pause.
        while self.filled < wanted && !self.is_over {
            if self.buffer.len() < self.filled + CHUNK / 2 {
                // Grows with the arrived bytes, not with the announcement of a length field.
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            match self.input.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.is_over = true,
                Ok(count) => self.filled += count,
                // A signal is not the end of the input.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::Read { offset: self.offset_of(self.filled), source });
                }
            }
        }
        Ok(self.filled >= wanted)
    }
}
