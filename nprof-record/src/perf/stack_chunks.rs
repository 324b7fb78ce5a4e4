//! What a BPF program copied of a stack beyond the kernel's own copy: its parts, put together for
//! the sample they stand before, and what the program is told of a thread. Pure.
//!
//! Words shared with the program, in groups of [`GROUP`]. First one for each thread, that of its
//! id modulo [`HINTS`], which it may lose to another; it tells what is needed of its stack:
//! 1. up to where, its *top*, without the lowest [`TOP_SHIFT`] bits, above [`THREAD_BITS`] bits of
//!    the thread's id; 0 when nothing of it is wanted;
//! 2. from where on, and
//! 3. up to where nothing is needed, the *hole*: some functions have a frame of half a megabyte.
//!
//! Then one for each CPU: how many bytes of parts the program wrote, how many were read, and how
//! many parts were lost for want of room.
//!
//! The program reads these words while they change. What it copies tells its address, so that
//! the worst that can come of that is too little or too much of it.

use std::rc::Rc;

use nprof_stream::Mark;
use rustc_hash::FxHashMap;

use crate::sys::SharedWords;
use crate::unwind::stack_copy::{Piece, Seen};

/// How many words there are for threads, a power of two.
pub(crate) const HINTS: usize = 1 << 14;

/// The words of a group.
pub(crate) const GROUP: usize = 4;

/// The bits of a thread's id: PID_MAX_LIMIT of include/linux/threads.h.
pub(crate) const THREAD_BITS: u32 = 22;

/// The lowest bits of a top that are not told. With 64 - 22 above, this reaches 47 bits far: all
/// of user memory.
pub(crate) const TOP_SHIFT: u32 = 5;

/// The bytes of a part before those of the stack.
pub(crate) const PART_HEADER: usize = 32;

/// The most threads that are told of; beyond that all are forgotten.
const THREADS_MAX: usize = 1 << 16;

/// After how many samples it is tried again whether a stack is still deeper than is ever copied.
const PATIENCE: u32 = 1000;

/// How many words are shared, with those of CPUs up to this number.
pub(crate) fn word_count(last_cpu: u32) -> usize {
    GROUP * (HINTS + last_cpu as usize + 1)
}

/// The word with the bytes of parts that were read of a CPU's.
pub(crate) fn read_word(cpu: u32) -> usize {
    GROUP * (HINTS + cpu as usize) + 1
}

/// The word with the number of parts of a CPU's that were lost.
pub(crate) fn lost_word(cpu: u32) -> usize {
    GROUP * (HINTS + cpu as usize) + 2
}

/// A part of a stack, as the program wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// The thread's id as the program knows it: that of the outermost pid namespace.
    pub(crate) thread: u32,
    /// The stack pointer.
    pub(crate) sp: u64,
    /// The address of the first byte.
    pub(crate) start: u64,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// Reads a part: four little-endian words (thread, stack pointer, address, length) and the
    /// bytes. `None` when it is shorter than it says.
    pub(crate) fn read(raw: &'a [u8]) -> Option<Self> {
        let (header, bytes) = raw.split_at_checked(PART_HEADER)?;
        let word = |at: usize| {
            header.get(at * 8..).and_then(<[u8]>::first_chunk).map(|&word| u64::from_le_bytes(word))
        };
        let thread = u32::try_from(word(0)?).ok()?;
        let bytes = bytes.get(..usize::try_from(word(3)?).ok()?)?;
        Some(Self { thread, sp: word(1)?, start: word(2)?, bytes })
    }

    /// How much the program counts it for, bytes.
    pub(crate) fn counted(&self) -> u64 {
        (PART_HEADER + self.bytes.len()) as u64
    }
}

/// What was copied of a stack for a sample beyond the kernel's copy. Borrowed from [`Pending`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extension<'a> {
    /// The thread's id as the program knows it; 0 when there is none.
    pub(crate) thread: u32,
    /// Inner first; they do not touch.
    pub(crate) pieces: [Piece<'a>; 2],
}

impl Extension<'_> {
    /// The address behind its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.pieces[0].end().max(self.pieces[1].end())
    }
}

/// Whose parts they are: they go to the sample of that thread at that place and nowhere else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) tid: u32,
    /// The instruction pointer of the sample, in the kernel or not.
    pub(crate) ip: u64,
}

/// The parts that came last in a ring. A sample is written right behind its parts: what comes
/// behind another record is none of its.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    owner: Owner,
    thread: u32,
    sp: u64,
    /// The pieces, the second of which begins at `split` in `bytes`.
    starts: [u64; 2],
    split: usize,
    bytes: Vec<u8>,
}

impl Pending {
    /// Takes a part.
    pub(crate) fn take(&mut self, owner: Owner, part: &Part<'_>) {
        if self.is_empty() || (self.owner, self.sp) != (owner, part.sp) {
            self.bytes.clear();
            (self.owner, self.thread, self.sp) = (owner, part.thread, part.sp);
            self.starts = [part.start, 0];
            self.split = usize::MAX;
        }
        let second = self.bytes.len().checked_sub(self.split);
        let (start, before) = match second {
            Some(before) => (self.starts[1], before),
            None => (self.starts[0], self.bytes.len()),
        };
        match start.checked_add(before as u64) == Some(part.start) {
            true => {}
            false if second.is_none() => {
                self.starts[1] = part.start;
                self.split = self.bytes.len();
            }
            // There is one hole at most.
            false => return,
        }
        self.bytes.extend_from_slice(part.bytes);
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
    pub(crate) fn beyond(&self, owner: Owner, sp: Option<u64>) -> Extension<'_> {
        if self.is_empty() || self.owner != owner || Some(self.sp) != sp {
            return Extension::default();
        }
        let (first, second) = self.bytes.split_at(self.split.min(self.bytes.len()));
        let piece = |at: usize, bytes| Piece { start: self.starts[at], bytes };
        Extension { thread: self.thread, pieces: [piece(0, first), piece(1, second)] }
    }
}

/// Where words are set that the program reads.
pub(crate) trait Words {
    /// Sets one.
    fn set(&self, index: usize, value: u64);
}

impl Words for Rc<SharedWords> {
    fn set(&self, index: usize, value: u64) {
        SharedWords::set(self, index, value);
    }
}

/// What of the stack of a thread is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Unknown,
    Known(Seen),
    /// More than is ever copied, for so many samples more: then it is tried again.
    TooMuch(u32),
    /// Nothing of it is wanted.
    Nothing,
}

/// An address above all stacks.
const FAR: u64 = (1 << 47) - (1 << TOP_SHIFT);

/// A thread that had parts.
#[derive(Clone, Copy, Debug)]
struct Thread {
    /// Its id as the program knows it.
    id: u32,
    need: Need,
}

impl Thread {
    /// The number of its first word, and what its words are now.
    fn words(self) -> (usize, [u64; 3]) {
        let id = u64::from(self.id);
        let top = |top: u64| top.min(FAR).div_ceil(1 << TOP_SHIFT) << THREAD_BITS | id;
        let words = match self.need {
            Need::Unknown => [0; 3],
            Need::Known(Seen { top: end, hole }) => [top(end), hole.0, hole.1],
            Need::TooMuch(_) => [top(FAR), 0, 0],
            Need::Nothing => [id, 0, 0],
        };
        (self.id as usize % HINTS * GROUP, words)
    }
}

/// What the program is told of the threads that had parts, by their ids.
#[derive(Debug)]
pub(crate) struct Needs<W> {
    words: W,
    /// The most bytes of a stack that are copied.
    reach: u64,
    threads: FxHashMap<u32, Thread>,
}

impl<W: Words> Needs<W> {
    /// Of nobody yet; `reach` is the most bytes of a stack that are copied.
    pub(crate) fn new(words: W, reach: u64) -> Self {
        Self { words, reach, threads: FxHashMap::default() }
    }

    /// Takes what a walk over a thread's stack from `sp` up tells: why it ended, and what it read.
    pub(crate) fn learn(
        &mut self,
        tid: u32,
        sp: u64,
        extension: &Extension<'_>,
        mark: Mark,
        seen: Seen,
    ) {
        let id = extension.thread;
        if id == 0 && !self.threads.contains_key(&tid) {
            return;
        }
        let before = self.entry(tid, id).need;
        let end = extension.end();
        let need = match (mark, before) {
            (Mark::Copy, _) if end >= sp.saturating_add(self.reach) => Need::TooMuch(PATIENCE),
            (Mark::Copy, Need::TooMuch(left @ 1..)) => Need::TooMuch(left - 1),
            (Mark::Copy, _) => Need::Unknown,
            // Another time it may get farther.
            (mark, Need::Known(known)) if mark != Mark::None && known.top > seen.top => before,
            _ => Need::Known(seen),
        };
        // More than that was copied where another thread has taken the words.
        let is_lost = id != 0 && need != Need::Unknown && end > seen.top + (1 << TOP_SHIFT);
        self.tell(tid, id, need, is_lost);
    }

    /// Nothing of that thread is wanted.
    pub(crate) fn refuse(&mut self, tid: u32, id: u32) {
        self.tell(tid, id, Need::Nothing, true);
    }

    /// The thread is another one from now on, or no more.
    pub(crate) fn forget(&mut self, tid: u32) {
        if let Some(thread) = self.threads.remove(&tid) {
            let (index, _) = thread.words();
            self.words.set(index, 0);
        }
    }

    /// Tells what is needed of a thread, if that is new or has to be told `again`.
    fn tell(&mut self, tid: u32, id: u32, need: Need, again: bool) {
        let thread = self.entry(tid, id);
        let before = std::mem::replace(&mut thread.need, need);
        let (_, old) = Thread { need: before, ..*thread }.words();
        let (first, words) = thread.words();
        if again || words != old {
            for (index, word) in (first..).zip(words) {
                self.words.set(index, word);
            }
        }
    }

    fn entry(&mut self, tid: u32, id: u32) -> &mut Thread {
        if self.threads.len() >= THREADS_MAX {
            for (_, thread) in self.threads.drain() {
                self.words.set(thread.words().0, 0);
            }
        }
        let thread = self.threads.entry(tid).or_insert(Thread { id, need: Need::Unknown });
        if id != 0 {
            thread.id = id;
        }
        thread
    }
}

#[cfg(test)]
mod tests;
