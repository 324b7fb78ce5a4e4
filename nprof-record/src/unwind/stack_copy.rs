//! What was copied of a stack for a sample, and what a walk over it read. Pure.

use std::cell::Cell;

use nprof_stream::Mark;

/// A piece of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackSegment<'a> {
    /// The address of the first byte.
    pub start: u64,
    pub bytes: &'a [u8],
}

impl StackSegment<'_> {
    /// The address behind the last byte.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.bytes.get(at..)?.first_chunk().map(|&word| u64::from_le_bytes(word))
    }
}

/// What a walk read of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackReadRange {
    /// Up to that address.
    pub end: u64,
    /// The widest range below that where it read nothing, if it is worth to be left out: from
    /// the first address on up to the second.
    pub gap: (u64, u64),
}

/// Less than this is not worth to be left out of a copy, bytes.
const GAP_MIN: u64 = 16 << 10;

impl StackReadRange {
    fn note(&mut self, address: u64) {
        if address < self.gap.1 && address >= self.gap.0 {
            self.gap.1 = address;
        }
        if address.saturating_sub(self.end) > (self.gap.1 - self.gap.0).max(GAP_MIN) {
            self.gap = (self.end, address);
        }
        self.end = self.end.max(address.saturating_add(8));
    }
}

/// The user stack, as much as was copied: its inner end without gaps, and perhaps more pieces
/// of it, all copied at the same instant.
#[derive(Clone, Debug)]
pub struct StackCopy<'a> {
    inner: StackSegment<'a>,
    outer: [StackSegment<'a>; 2],
    read_range: Cell<StackReadRange>,
}

impl<'a> StackCopy<'a> {
    /// From the address `start` up.
    pub fn new(start: u64, bytes: &'a [u8], outer: [StackSegment<'a>; 2]) -> Self {
        let read_range = StackReadRange { end: start, gap: (0, 0) };
        Self { inner: StackSegment { start, bytes }, outer, read_range: read_range.into() }
    }

    /// What was read of it.
    pub fn read_range(&self) -> StackReadRange {
        self.read_range.get()
    }

    /// The word at an address; why there is none.
    pub fn read(&self, address: u64) -> Result<u64, Mark> {
        if self.inner.bytes.is_empty() {
            return Err(Mark::Unread);
        }
        if address < self.inner.start {
            return Err(Mark::Frame);
        }
        let beyond = || self.outer.iter().find_map(|piece| piece.word(address));
        let word = self.inner.word(address).or_else(beyond).ok_or(Mark::Copy)?;
        let mut read_range = self.read_range.get();
        read_range.note(address);
        self.read_range.set(read_range);
        Ok(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_read_in_pieces_and_what_was_left_out_is_remembered() {
        let (inner, near, far) = ([1u8; 12], [2u8; 16], [3u8; 16]);
        let pieces = [
            StackSegment { start: 0x1004, bytes: &near },
            StackSegment { start: 0x9000, bytes: &far },
        ];
        let stack = StackCopy::new(0x1000, &inner, pieces);
        assert_eq!(stack.read(0x1000), Ok(u64::from_le_bytes([1; 8])));
        assert_eq!(stack.read(0x1008), Ok(u64::from_le_bytes([2; 8])), "it ends in the next piece");
        assert_eq!(stack.read(0x100c), Ok(u64::from_le_bytes([2; 8])));
        assert_eq!(stack.read_range(), StackReadRange { end: 0x1014, gap: (0, 0) });
        assert_eq!(stack.read(0x1010), Err(Mark::Copy));
        assert_eq!(stack.read(0xff8), Err(Mark::Frame));
        assert_eq!(stack.read(u64::MAX - 3), Err(Mark::Copy));
        assert_eq!(stack.read(0x9008), Ok(u64::from_le_bytes([3; 8])));
        assert_eq!(stack.read_range(), StackReadRange { end: 0x9010, gap: (0x1014, 0x9008) });
        assert_eq!(stack.read(0x9000), Ok(u64::from_le_bytes([3; 8])));
        assert_eq!(stack.read_range(), StackReadRange { end: 0x9010, gap: (0x1014, 0x9000) });
    }
}
