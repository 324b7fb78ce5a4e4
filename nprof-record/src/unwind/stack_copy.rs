//! The copied part of a stack, and the range of it that a walk read. Pure.

use std::cell::Cell;

use nprof_stream::Mark;

/// A contiguous part of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackSegment<'a> {
    /// The address of the first byte.
    pub start: u64,
    /// Its content.
    pub bytes: &'a [u8],
}

impl StackSegment<'_> {
    /// Returns the address after the last byte.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }

    #[inline]
    fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.bytes.get(at..)?.first_chunk().map(|&word| u64::from_le_bytes(word))
    }
}

/// The range of a stack that a walk read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackReadRange {
    /// The address after the outermost word read.
    pub end: u64,
    /// The widest part below `end` in which nothing was read, from its first address to the one
    /// after its last; empty if all gaps are small.
    pub gap: (u64, u64),
}

/// Smaller gaps are not left out of a copy: the kernel reads memory in pages, and a second part
/// costs another record.
const GAP_MIN_BYTES: u64 = 16 << 10;

impl StackReadRange {
    /// Adds a word that was read.
    #[inline]
    fn note(&mut self, address: u64) {
        // A read inside of the gap ends it there.
        if address < self.gap.1 && address >= self.gap.0 {
            self.gap.1 = address;
        }
        if address.saturating_sub(self.end) > (self.gap.1 - self.gap.0).max(GAP_MIN_BYTES) {
            self.gap = (self.end, address);
        }
        self.end = self.end.max(address.saturating_add(8));
    }
}

/// The copied part of a user stack: its inner end without gaps, and up to two further segments,
/// all copied at the same instant.
#[derive(Clone, Debug)]
pub struct StackCopy<'a> {
    inner: StackSegment<'a>,
    outer: [StackSegment<'a>; 2],
    read_range: Cell<StackReadRange>,
}

impl<'a> StackCopy<'a> {
    /// Creates a copy from the bytes at the address `start`, which is the stack pointer, and from
    /// further segments.
    #[inline]
    pub fn new(start: u64, bytes: &'a [u8], outer: [StackSegment<'a>; 2]) -> Self {
        let read_range = StackReadRange { end: start, gap: (0, 0) };
        Self { inner: StackSegment { start, bytes }, outer, read_range: read_range.into() }
    }

    /// Returns the range that was read so far.
    #[inline]
    pub fn read_range(&self) -> StackReadRange {
        self.read_range.get()
    }

    /// Reads the word at an address.
    ///
    /// # Errors
    ///
    /// [`Mark::NoStack`] if nothing was copied, [`Mark::UnwindFailed`] for an address below the stack
    /// pointer, and [`Mark::StackTruncated`] for one that was not copied.
    #[inline]
    pub fn read(&self, address: u64) -> Result<u64, Mark> {
        if self.inner.bytes.is_empty() {
            return Err(Mark::NoStack);
        }
        // Nothing below the stack pointer outlives a call, so no rule may lead there.
        if address < self.inner.start {
            return Err(Mark::UnwindFailed);
        }
        let outer = || self.outer.iter().find_map(|segment| segment.word(address));
        let word = self.inner.word(address).or_else(outer).ok_or(Mark::StackTruncated)?;
        let mut read_range = self.read_range.get();
        // Only successful reads: the range is a hint for the next copy of this stack.
        read_range.note(address);
        self.read_range.set(read_range);
        Ok(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_as_one_stack_and_the_gap_is_noted() {
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
        assert_eq!(stack.read(0x1010), Err(Mark::StackTruncated));
        assert_eq!(stack.read(0xff8), Err(Mark::UnwindFailed));
        assert_eq!(stack.read(u64::MAX - 3), Err(Mark::StackTruncated));
        assert_eq!(stack.read(0x9008), Ok(u64::from_le_bytes([3; 8])));
        assert_eq!(stack.read_range(), StackReadRange { end: 0x9010, gap: (0x1014, 0x9008) });
        assert_eq!(stack.read(0x9000), Ok(u64::from_le_bytes([3; 8])));
        assert_eq!(stack.read_range(), StackReadRange { end: 0x9010, gap: (0x1014, 0x9000) });
    }
}
