//! Stack chunks: the parts of a deep stack that the BPF program copies in addition to the kernel's
//! own copy, joined for the sample that follows them in the ring. Pure.

use nprof_unwind::unwind::stack_copy::{Segment, StackSegments};

/// Bytes of a chunk before those of the stack.
pub(crate) const CHUNK_HEADER_BYTES: usize = 32;

/// Set in the word with the thread id if the chunk lies beyond the gap that the hints exclude. A
/// thread id has 22 bits.
pub(crate) const AFTER_GAP: u32 = 1 << 30;

/// A part of a stack, as the program writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackChunk<'a> {
    /// The id of the thread in the outermost pid namespace, which is the one the program sees.
    pub(crate) thread: u32,
    /// The stack pointer.
    pub(crate) sp: u64,
    /// The address of the first byte.
    pub(crate) start: u64,
    /// True if it lies beyond the gap that the hints exclude.
    pub(crate) is_after_gap: bool,
    pub(crate) bytes: &'a [u8],
}

impl<'a> StackChunk<'a> {
    /// Reads a chunk: four little-endian words (thread, stack pointer, address, length) and the
    /// bytes. None if it is shorter than its length.
    pub(crate) fn read(raw: &'a [u8]) -> Option<Self> {
        let (header, bytes) = raw.split_at_checked(CHUNK_HEADER_BYTES)?;
        let word = |at: usize| {
            header.get(at * 8..).and_then(<[u8]>::first_chunk).map(|&word| u64::from_le_bytes(word))
        };
        let thread = u32::try_from(word(0)?).ok()?;
        let is_after_gap = thread & AFTER_GAP != 0;
        let thread = thread & !AFTER_GAP;
        let bytes = bytes.get(..usize::try_from(word(3)?).ok()?)?;
        Some(Self { thread, sp: word(1)?, start: word(2)?, is_after_gap, bytes })
    }

    /// Returns the bytes that the program counts for it.
    pub(crate) fn ring_bytes(&self) -> u64 {
        (CHUNK_HEADER_BYTES + self.bytes.len()) as u64
    }
}

/// The chunks of a stack, joined. Borrowed from [`ChunkAssembler`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtraStack<'a> {
    /// The id of the thread as the program sees it; 0 if there are no chunks.
    pub(crate) thread: u32,
    pub(crate) segments: StackSegments<'a>,
}

/// The sample that chunks belong to: that of the same thread at the same instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleKey {
    pub(crate) tid: u32,
    /// The instruction pointer of the sample, in the kernel or not; 0 for a wait.
    pub(crate) ip: u64,
}

impl SampleKey {
    /// Returns the key of the sample of a wait: its instruction pointer is that of a call in the BPF
    /// program, and another one than that of its chunks.
    pub(crate) fn of_wait(tid: u32) -> Self {
        Self { tid, ip: 0 }
    }
}

/// Collects the chunks read last from a ring. The sample is written directly after its chunks; if
/// another record comes between, they are not its own.
#[derive(Debug, Default)]
pub(crate) struct ChunkAssembler {
    owner: SampleKey,
    thread: u32,
    sp: u64,
    /// See [`StackSegments`].
    places: Vec<Segment>,
    gap: (u64, u64),
    /// Copies of the chunks; empty as long as all of them lie in the ring.
    bytes: Vec<u8>,
}

impl ChunkAssembler {
    /// Adds a chunk that stays in the ring, where its stack begins at `position` from the first chunk
    /// on. Returns false if chunks were copied, or belong to another sample: it must be copied as well.
    pub(crate) fn keep(
        &mut self,
        owner: SampleKey,
        chunk: &StackChunk<'_>,
        position: usize,
    ) -> bool {
        if !self.bytes.is_empty() || !self.is_empty() && !self.is_of(owner, chunk.sp) {
            return false;
        }
        self.begin(owner, chunk);
        self.add(chunk, position);
        true
    }

    /// Copies the chunks that were kept in the ring, which are `kept`.
    pub(crate) fn copy_kept(&mut self, kept: &[u8]) {
        if !self.bytes.is_empty() {
            return;
        }
        for place in &mut self.places {
            let content = kept.get(place.position..).and_then(|from| from.get(..place.length));
            place.position = self.bytes.len();
            self.bytes.extend_from_slice(content.unwrap_or_default());
        }
    }

    /// Adds a chunk and copies it.
    pub(crate) fn take(&mut self, owner: SampleKey, chunk: &StackChunk<'_>) {
        self.begin(owner, chunk);
        if self.add(chunk, self.bytes.len()) {
            self.bytes.extend_from_slice(chunk.bytes);
        }
    }

    fn is_of(&self, owner: SampleKey, sp: u64) -> bool {
        (self.owner, self.sp) == (owner, sp)
    }

    /// Drops the chunks of another sample: they have lost theirs.
    fn begin(&mut self, owner: SampleKey, chunk: &StackChunk<'_>) {
        if self.is_empty() || !self.is_of(owner, chunk.sp) {
            self.clear();
            self.gap = (0, 0);
            (self.owner, self.thread, self.sp) = (owner, chunk.thread, chunk.sp);
        }
    }

    /// Adds the place of a chunk. Returns false if it begins before the end of the last one.
    fn add(&mut self, chunk: &StackChunk<'_>, position: usize) -> bool {
        let end = self.places.last().map_or(0, Segment::end);
        // The program copies outwards.
        if chunk.start < end || chunk.bytes.is_empty() {
            return false;
        }
        if chunk.start > end && chunk.is_after_gap && !self.is_empty() && self.gap.1 == 0 {
            self.gap = (end, chunk.start);
        }
        self.places.push(Segment { address: chunk.start, position, length: chunk.bytes.len() });
        true
    }

    /// True if there are no chunks.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Drops the chunks, since another record followed them.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// Returns the id of their thread as the program sees it.
    pub(crate) fn thread(&self) -> u32 {
        self.thread
    }

    /// Returns the chunks if they belong to the sample `owner` with the stack pointer `sp`. `kept` are
    /// the bytes of those that were kept in the ring.
    pub(crate) fn extra_stack_for<'a>(
        &'a self,
        owner: SampleKey,
        sp: Option<u64>,
        kept: &'a [u8],
    ) -> ExtraStack<'a> {
        if self.is_empty() || self.owner != owner || Some(self.sp) != sp {
            return ExtraStack::default();
        }
        let bytes = if self.bytes.is_empty() { kept } else { &self.bytes };
        let segments = StackSegments { bytes, places: &self.places, gap: self.gap };
        ExtraStack { thread: self.thread, segments }
    }
}

#[cfg(test)]
mod tests;
