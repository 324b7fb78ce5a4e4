//! What was copied of a stack for a sample, and what a walk over it read. Pure.

use std::cell::Cell;

use nprof_stream::Mark;

/// A piece of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The address of the first byte.
    pub start: u64,
    pub bytes: &'a [u8],
}

impl Piece<'_> {
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
pub struct Seen {
    /// Up to that address.
    pub top: u64,
    /// The widest range below that where it read nothing, if it is worth to be left out: from
    /// the first address on up to the second.
    pub hole: (u64, u64),
}

/// Less than this is not worth to be left out of a copy, bytes.
const HOLE_MIN: u64 = 16 << 10;

impl Seen {
    fn note(&mut self, address: u64) {
        if address < self.hole.1 && address >= self.hole.0 {
            self.hole.1 = address;
        }
        if address.saturating_sub(self.top) > (self.hole.1 - self.hole.0).max(HOLE_MIN) {
            self.hole = (self.top, address);
        }
        self.top = self.top.max(address.saturating_add(8));
    }
}

/// The user stack, as much as was copied: its inner end without gaps, and perhaps more pieces
/// of it, all copied at the same instant.
#[derive(Clone, Debug)]
pub struct Stack<'a> {
    inner: Piece<'a>,
    outer: [Piece<'a>; 2],
    seen: Cell<Seen>,
}

impl<'a> Stack<'a> {
    /// From the address `start` up.
    pub fn new(start: u64, bytes: &'a [u8], outer: [Piece<'a>; 2]) -> Self {
        let seen = Seen { top: start, hole: (0, 0) };
        Self { inner: Piece { start, bytes }, outer, seen: seen.into() }
    }

    /// What was read of it.
    pub fn seen(&self) -> Seen {
        self.seen.get()
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
        let mut seen = self.seen.get();
        seen.note(address);
        self.seen.set(seen);
        Ok(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_read_in_pieces_and_what_was_left_out_is_remembered() {
        let (inner, near, far) = ([1u8; 12], [2u8; 16], [3u8; 16]);
        let pieces = [Piece { start: 0x1004, bytes: &near }, Piece { start: 0x9000, bytes: &far }];
        let stack = Stack::new(0x1000, &inner, pieces);
        assert_eq!(stack.read(0x1000), Ok(u64::from_le_bytes([1; 8])));
        assert_eq!(stack.read(0x1008), Ok(u64::from_le_bytes([2; 8])), "it ends in the next piece");
        assert_eq!(stack.read(0x100c), Ok(u64::from_le_bytes([2; 8])));
        assert_eq!(stack.seen(), Seen { top: 0x1014, hole: (0, 0) });
        assert_eq!(stack.read(0x1010), Err(Mark::Copy));
        assert_eq!(stack.read(0xff8), Err(Mark::Frame));
        assert_eq!(stack.read(u64::MAX - 3), Err(Mark::Copy));
        assert_eq!(stack.read(0x9008), Ok(u64::from_le_bytes([3; 8])));
        assert_eq!(stack.seen(), Seen { top: 0x9010, hole: (0x1014, 0x9008) });
        assert_eq!(stack.read(0x9000), Ok(u64::from_le_bytes([3; 8])));
        assert_eq!(stack.seen(), Seen { top: 0x9010, hole: (0x1014, 0x9000) });
    }
}
