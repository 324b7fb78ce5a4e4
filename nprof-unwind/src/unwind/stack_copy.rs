//! The copied part of a stack, and the range of it that a walk read. Pure.

use std::cell::Cell;

use nprof_stream::Mark;

/// The place of a segment of a stack: a part without holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The address of the first byte.
    pub address: u64,
    /// The position of that byte in [`StackSegments::bytes`].
    pub position: usize,
    /// The number of its bytes.
    pub length: usize,
}

impl Segment {
    /// Returns the address after the last byte.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.length as u64)
    }
}

/// Segments of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackSegments<'a> {
    /// The content of all segments; other bytes may lie between them.
    pub bytes: &'a [u8],
    /// Inner first.
    pub places: &'a [Segment],
    /// The part that was left out because no walk needed it, from its first address to the one after
    /// its last; empty if there is none. Between other segments memory could not be read.
    pub gap: (u64, u64),
}

impl StackSegments<'_> {
    /// Returns the address after the last byte; 0 without segments.
    pub fn end(&self) -> u64 {
        self.places.last().map_or(0, Segment::end)
    }

    fn content(&self, segment: &Segment) -> Option<&[u8]> {
        self.bytes.get(segment.position..)?.get(..segment.length)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let next = self.places.partition_point(|segment| segment.address <= address);
        let segment = self.places[..next].last()?;
        let content =
            self.content(segment)?.get(usize::try_from(address - segment.address).ok()?..)?;
        if let Some(word) = word_at(content, 0) {
            return Some(word);
        }
        // A word that is not aligned may end in the next segment.
        let next = self.places.get(next).filter(|next| next.address == segment.end())?;
        let mut word = [0; 8];
        let (first, second) = word.split_at_mut(content.len());
        first.copy_from_slice(content);
        second.copy_from_slice(self.content(next)?.get(..second.len())?);
        Some(u64::from_le_bytes(word))
    }
}

#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|&word| u64::from_le_bytes(word))
}

/// True if a walk ended at a word that its copy of the stack lacks.
pub fn is_outside_copy(mark: Mark) -> bool {
    matches!(mark, Mark::StackTruncated | Mark::PageAbsent)
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

/// The distance from the end of a copy beyond which a word belongs to another stack: the signal handler runs on
/// that of sigaltstack(2), or the program has switched. Stacks have 8 MiB by default.
const FRAME_MAX_BYTES: u64 = 8 << 20;

/// The copied part of a user stack: its inner end without holes, and further segments, all copied at
/// the same instant.
#[derive(Clone, Debug)]
pub struct StackCopy<'a> {
    /// The stack pointer.
    start: u64,
    inner: &'a [u8],
    /// The address up to which the inner end was requested. It is shorter if a page of it was not in
    /// memory.
    requested_end: u64,
    outer: StackSegments<'a>,
    read_range: Cell<StackReadRange>,
    absent: Cell<Option<u64>>,
}

impl<'a> StackCopy<'a> {
    /// Creates a copy from the bytes at the address `start`, which is the stack pointer.
    #[inline]
    pub fn new(start: u64, inner: &'a [u8]) -> Self {
        Self::with_segments(start, inner, inner.len(), StackSegments::default())
    }

    /// Creates a copy from the bytes at the address `start`, which is the stack pointer, of which
    /// `requested_bytes` were requested, and from further segments.
    #[inline]
    pub fn with_segments(
        start: u64,
        inner: &'a [u8],
        requested_bytes: usize,
        outer: StackSegments<'a>,
    ) -> Self {
        let requested_end = start.saturating_add(requested_bytes as u64);
        let read_range = StackReadRange { end: start, gap: (0, 0) };
        let absent = None.into();
        Self { start, inner, requested_end, outer, read_range: read_range.into(), absent }
    }

    /// Returns the range that was read so far.
    #[inline]
    pub fn read_range(&self) -> StackReadRange {
        self.read_range.get()
    }

    /// Returns the address of the last word that was not read because its page was not in memory.
    pub fn absent(&self) -> Option<u64> {
        self.absent.get()
    }

    /// Reads the word at an address.
    ///
    /// # Errors
    ///
    /// [`Mark::NoStack`] if nothing was copied, [`Mark::UnwindFailed`] for an address below the stack
    /// pointer, [`Mark::PageAbsent`] for one that could not be copied, [`Mark::StackTruncated`] for one
    /// that was not requested, and [`Mark::OtherStack`] for one of another stack.
    #[inline]
    pub fn read(&self, address: u64) -> Result<u64, Mark> {
        // Nothing below the stack pointer outlives a call, so no rule may lead there.
        let Some(at) = address.checked_sub(self.start) else {
            let is_empty = self.inner.is_empty();
            return Err(if is_empty { Mark::NoStack } else { Mark::UnwindFailed });
        };
        let inner = usize::try_from(at).ok().and_then(|at| word_at(self.inner, at));
        let word = match inner {
            Some(word) => word,
            None => self.read_outer(address)?,
        };
        let mut read_range = self.read_range.get();
        // Only successful reads: the range is a hint for the next copy of this stack.
        read_range.note(address);
        self.read_range.set(read_range);
        Ok(word)
    }

    /// Reads the words below an address, at least one. None if the inner end lacks some.
    #[inline]
    pub(super) fn words_below(&self, end: u64, count: u8) -> Option<WordsBelow<'a>> {
        let bytes = usize::from(count) * size_of::<u64>();
        let at = usize::try_from(end.checked_sub(self.start)?).ok()?;
        let words = self.inner.get(at.checked_sub(bytes)?..at)?;
        let mut read_range = self.read_range.get();
        // Less than a gap has: the words between need not be noted.
        read_range.note(end - bytes as u64);
        read_range.end = read_range.end.max(end);
        self.read_range.set(read_range);
        Some(WordsBelow(words))
    }

    /// Reads a word beyond the inner end.
    fn read_outer(&self, address: u64) -> Result<u64, Mark> {
        if self.inner.is_empty() {
            return Err(Mark::NoStack);
        }
        if let Some(word) = self.outer.word(address) {
            return Ok(word);
        }
        let (gap_start, gap_end) = self.outer.gap;
        let is_in_gap = address >= gap_start && address < gap_end;
        let end = self.outer.end().max(self.requested_end);
        if is_in_gap || address >= end {
            // No larger copy would reach it.
            let is_other = !is_in_gap && address - end > FRAME_MAX_BYTES;
            return Err(if is_other { Mark::OtherStack } else { Mark::StackTruncated });
        }
        // A word may begin in the last bytes of the copy if it is not aligned.
        let copied_end = self.start.saturating_add(self.inner.len() as u64);
        if self.outer.places.is_empty() && copied_end >= self.requested_end {
            return Err(Mark::StackTruncated);
        }
        self.absent.set(Some(address));
        Err(Mark::PageAbsent)
    }
}

/// Words below an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordsBelow<'a>(&'a [u8]);

impl WordsBelow<'_> {
    /// Returns the word at a number of words below the address, from 1 on. None beyond the last.
    #[inline]
    pub(super) fn word(&self, distance: u8) -> Option<u64> {
        let at = self.0.len().checked_sub(usize::from(distance) * size_of::<u64>())?;
        word_at(self.0, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(places: [(u64, usize); 2]) -> [Segment; 2] {
        places.map(|(address, position)| Segment { address, position, length: 16 })
    }

    #[test]
    fn segments_are_read_as_one_stack_and_the_gap_is_noted() {
        let inner = [1u8; 12];
        let outer = [[2u8; 16], [3u8; 16]].concat();
        let places = places([(0x1004, 0), (0x9000, 16)]);
        let outer = StackSegments { bytes: &outer, places: &places, gap: (0x1014, 0x9000) };
        let stack = StackCopy::with_segments(0x1000, &inner, 12, outer);
        assert_eq!(stack.read(0x1000), Ok(u64::from_le_bytes([1; 8])));
        assert_eq!(stack.read(0x1008), Ok(u64::from_le_bytes([2; 8])), "it ends in the next piece");
        assert_eq!(stack.read(0x100c), Ok(u64::from_le_bytes([2; 8])));
        assert_eq!(stack.read_range(), StackReadRange { end: 0x1014, gap: (0, 0) });
        assert_eq!(stack.read(0x1014), Err(Mark::StackTruncated), "left out");
        assert_eq!(stack.read(0xff8), Err(Mark::UnwindFailed));
        assert_eq!(stack.read(u64::MAX - 3), Err(Mark::OtherStack));
        assert_eq!(stack.read(0x9008), Ok(u64::from_le_bytes([3; 8])));
        assert_eq!(stack.read_range(), StackReadRange { end: 0x9010, gap: (0x1014, 0x9008) });
        assert_eq!(stack.read(0x9000), Ok(u64::from_le_bytes([3; 8])));
        assert_eq!(stack.read_range(), StackReadRange { end: 0x9010, gap: (0x1014, 0x9000) });
    }

    #[test]
    fn words_of_absent_pages_are_told_from_those_beyond_the_copy() {
        let inner = [1u8; 0x10];
        // 0x3000 bytes were requested of the kernel, and its copy ended at the first absent page.
        let stack = StackCopy::with_segments(0x1ff0, &inner, 0x3000, StackSegments::default());
        assert_eq!(stack.read(0x1ff8), Ok(u64::from_le_bytes([1; 8])));
        assert_eq!(stack.absent(), None);
        assert_eq!(stack.read(0x2000), Err(Mark::PageAbsent));
        assert_eq!(stack.read(0x4fe8), Err(Mark::PageAbsent));
        assert_eq!(stack.absent(), Some(0x4fe8));
        assert_eq!(stack.read(0x4ff0), Err(Mark::StackTruncated), "not requested");
        assert_eq!(stack.read(0x4ff0 + FRAME_MAX_BYTES), Err(Mark::StackTruncated));
        assert_eq!(stack.read(0x5ff0 + FRAME_MAX_BYTES), Err(Mark::OtherStack));
        // The program has copied the pages around a hole.
        let outer = [2u8; 0x20];
        let places = places([(0x3000, 0), (0x5000, 0x10)]);
        let outer = StackSegments { bytes: &outer, places: &places, gap: (0, 0) };
        let stack = StackCopy::with_segments(0x1ff0, &inner, 0x1000, outer);
        assert_eq!(stack.read(0x3008), Ok(u64::from_le_bytes([2; 8])));
        assert_eq!(stack.read(0x5008), Ok(u64::from_le_bytes([2; 8])));
        assert_eq!(stack.read(0x300c), Err(Mark::PageAbsent), "it would end in another segment");
        assert_eq!(stack.read(0x2000), Err(Mark::PageAbsent));
        assert_eq!(stack.read(0x5010), Err(Mark::StackTruncated));
    }

    #[test]
    fn word_across_two_adjacent_segments_is_read_from_both() {
        let bytes: Vec<u8> = (0..40).collect();
        // Other bytes lie in front of each segment, as in a ring.
        let [near, far] = [(0x2000, 4), (0x2008, 20)].map(|(address, position)| Segment {
            address,
            position,
            length: 8,
        });
        let outer = StackSegments { bytes: &bytes, places: &[near, far], gap: (0, 0) };
        let stack = StackCopy::with_segments(0x1000, &[0; 8], 8, outer);
        assert_eq!(stack.read(0x2000), Ok(u64::from_le_bytes([4, 5, 6, 7, 8, 9, 10, 11])));
        assert_eq!(stack.read(0x2005), Ok(u64::from_le_bytes([9, 10, 11, 20, 21, 22, 23, 24])));
        assert_eq!(stack.read(0x2008), Ok(u64::from_le_bytes([20, 21, 22, 23, 24, 25, 26, 27])));
        assert_eq!(stack.read(0x2009), Err(Mark::PageAbsent), "it ends beyond the last");
        let apart = [near, Segment { address: 0x2009, ..far }];
        let outer = StackSegments { places: &apart, ..outer };
        let stack = StackCopy::with_segments(0x1000, &[0; 8], 8, outer);
        assert_eq!(stack.read(0x2005), Err(Mark::PageAbsent));
    }
}
