//! A window on the input: the bytes at hand, and more when they are asked for.

use std::io::{ErrorKind, Read};

use crate::record::error::Error;

/// How much is read at once.
const CHUNK: usize = 256 << 10;

/// Bytes of the input, from where the reading stands.
#[derive(Debug)]
pub(crate) struct Window<R> {
    input: R,
    buffer: Vec<u8>,
    /// Where in the buffer the reading stands.
    pub(crate) at: usize,
    /// How far into the buffer there are bytes.
    pub(crate) filled: usize,
    /// The offset in the input of the buffer's first byte.
    offset: u64,
    /// Whether the input has no more.
    pub(crate) is_over: bool,
}

impl<R: Read> Window<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, buffer: vec![0; CHUNK], at: 0, filled: 0, offset: 0, is_over: false }
    }

    /// Where the reading stands, in bytes of the input.
    pub(crate) fn position(&self) -> u64 {
        self.offset_of(self.at)
    }

    /// The offset in the input of a byte of the buffer.
    pub(crate) fn offset_of(&self, at: usize) -> u64 {
        self.offset + at as u64
    }

    /// The bytes at hand.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.buffer[self.at..self.filled]
    }

    /// Bytes of the buffer.
    pub(crate) fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Bytes of the buffer, to be changed where they stand.
    pub(crate) fn bytes_mut(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        &mut self.buffer[range]
    }

    /// Makes at least `wanted` bytes be at hand; `false` when the input ends before. Positions
    /// in the buffer change, except relative to `at`.
    pub(crate) fn fill(&mut self, wanted: usize) -> Result<bool, Error> {
        if self.filled - self.at >= wanted {
            return Ok(true);
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        self.offset += self.at as u64;
        self.filled -= self.at;
        self.at = 0;
        while self.filled < wanted && !self.is_over {
            if self.buffer.len() < self.filled + CHUNK / 2 {
                // Grows with what has arrived, not with what a length field announces.
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            match self.input.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.is_over = true,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::Read { offset: self.offset_of(self.filled), source });
                }
            }
        }
        Ok(self.filled >= wanted)
    }
}
