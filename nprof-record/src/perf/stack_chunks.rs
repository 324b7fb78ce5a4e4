//! What a BPF program copied of a stack beyond the kernel's own copy: its parts, put together for
//! the sample they stand before. Pure.

use crate::unwind::stack_copy::StackSegment;

/// The bytes of a part before those of the stack.
pub(crate) const CHUNK_HEADER_BYTES: usize = 32;

/// A part of a stack, as the program wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackChunk<'a> {
    /// The thread's id as the program knows it: that of the outermost pid namespace.
    pub(crate) thread: u32,
    /// The stack pointer.
    pub(crate) sp: u64,
    /// The address of the first byte.
    pub(crate) start: u64,
    pub(crate) bytes: &'a [u8],
}

impl<'a> StackChunk<'a> {
    /// Reads a part: four little-endian words (thread, stack pointer, address, length) and the
    /// bytes. `None` when it is shorter than it says.
    pub(crate) fn read(raw: &'a [u8]) -> Option<Self> {
        let (header, bytes) = raw.split_at_checked(CHUNK_HEADER_BYTES)?;
        let word = |at: usize| {
            header.get(at * 8..).and_then(<[u8]>::first_chunk).map(|&word| u64::from_le_bytes(word))
        };
        let thread = u32::try_from(word(0)?).ok()?;
        let bytes = bytes.get(..usize::try_from(word(3)?).ok()?)?;
        Some(Self { thread, sp: word(1)?, start: word(2)?, bytes })
    }

    /// How much the program counts it for, bytes.
    pub(crate) fn ring_bytes(&self) -> u64 {
        (CHUNK_HEADER_BYTES + self.bytes.len()) as u64
    }
}

/// What was copied of a stack for a sample beyond the kernel's copy. Borrowed from [`ChunkAssembler`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtraStack<'a> {
    /// The thread's id as the program knows it; 0 when there is none.
    pub(crate) thread: u32,
    /// Inner first; they do not touch.
    pub(crate) pieces: [StackSegment<'a>; 2],
}

impl ExtraStack<'_> {
    /// The address behind its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.pieces[0].end().max(self.pieces[1].end())
    }
}

/// Whose parts they are: they go to the sample of that thread at that place and nowhere else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleKey {
    pub(crate) tid: u32,
    /// The instruction pointer of the sample, in the kernel or not.
    pub(crate) ip: u64,
}

/// The parts that came last in a ring. A sample is written right behind its parts: what comes
/// behind another record is none of its.
#[derive(Debug, Default)]
pub(crate) struct ChunkAssembler {
    owner: SampleKey,
    thread: u32,
    sp: u64,
    /// The pieces, the second of which begins at `split` in `bytes`.
    starts: [u64; 2],
    split: usize,
    bytes: Vec<u8>,
}

impl ChunkAssembler {
    /// Takes a part.
    pub(crate) fn take(&mut self, owner: SampleKey, chunk: &StackChunk<'_>) {
        if self.is_empty() || (self.owner, self.sp) != (owner, chunk.sp) {
            self.bytes.clear();
            (self.owner, self.thread, self.sp) = (owner, chunk.thread, chunk.sp);
            self.starts = [chunk.start, 0];
            self.split = usize::MAX;
        }
        let second = self.bytes.len().checked_sub(self.split);
        let (start, before) = match second {
            Some(before) => (self.starts[1], before),
            None => (self.starts[0], self.bytes.len()),
        };
        match start.checked_add(before as u64) == Some(chunk.start) {
            true => {}
            false if second.is_none() => {
                self.starts[1] = chunk.start;
                self.split = self.bytes.len();
            }
            // There is one hole at most.
            false => return,
        }
        self.bytes.extend_from_slice(chunk.bytes);
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Another record came: no sample is theirs any more.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Whose they are, as the program knows it.
    pub(crate) fn thread(&self) -> u32 {
        self.thread
    }

    /// What they add to the sample of `owner` with the stack pointer `sp` that comes right behind.
    pub(crate) fn extra_stack_for(&self, owner: SampleKey, sp: Option<u64>) -> ExtraStack<'_> {
        if self.is_empty() || self.owner != owner || Some(self.sp) != sp {
            return ExtraStack::default();
        }
        let (first, second) = self.bytes.split_at(self.split.min(self.bytes.len()));
        let piece = |at: usize, bytes| StackSegment { start: self.starts[at], bytes };
        ExtraStack { thread: self.thread, pieces: [piece(0, first), piece(1, second)] }
    }
}

#[cfg(test)]
mod tests;
