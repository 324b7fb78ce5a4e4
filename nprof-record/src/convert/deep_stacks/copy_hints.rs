//! Hints for the BPF program: the part of each thread's stack that the last walk needed. Pure.

use std::rc::Rc;

use nprof_stream::Mark;
use nprof_unwind::unwind::stack_copy::{StackReadRange, is_outside_copy};
use rustc_hash::FxHashMap;

use crate::perf::bpf::shared_array::{GROUP, HINT_SLOTS, THREAD_BITS, TOP_SHIFT};
use crate::perf::stack_chunks::ExtraStack;
use crate::sys::SharedWords;

/// The most threads with hints; with more, all are dropped.
const THREADS_MAX: usize = 1 << 16;

/// Samples of a stack deeper than is ever copied, until it is tried again whether it still is.
const RETRY_SAMPLES: u32 = 1000;

/// Samples with all that can be copied, until a stack counts as deeper than that. More than one,
/// since the ring may have had no room for all of it.
const EVERYTHING_SAMPLES: u32 = 8;

/// The time after which rejected threads are accepted again. A sample after the exit record of a
/// thread rejects an id that another thread may get; ids are not used again within this time.
const REJECTION_NS: u64 = 1_000_000_000;

/// The array of words that the program reads.
pub(crate) trait SharedArray {
    /// Sets a word.
    fn set(&self, index: usize, value: u64);
    /// Returns a word.
    fn get(&self, index: usize) -> u64;
}

impl SharedArray for Rc<SharedWords> {
    fn set(&self, index: usize, value: u64) {
        SharedWords::set(self, index, value);
    }

    fn get(&self, index: usize) -> u64 {
        SharedWords::get(self, index)
    }
}

/// The number of walks of a window, see [`UnneededPart`].
const WINDOW_WALKS: u32 = 1000;

/// The part of a stack that none of the last walks needed, one to two windows of them. The rings are
/// drained twice a second: a program may have many other stacks until the next hint.
#[derive(Clone, Copy, Debug, Default)]
struct UnneededPart {
    /// That of the last window. `None` before its end.
    last: Option<(u64, u64)>,
    /// That of this window, with its number of walks so far.
    current: (u64, u64),
    walks: u32,
}

impl UnneededPart {
    /// Adds a walk of a stack from `sp` up that did not need `gap`. Returns the part.
    fn add(&mut self, sp: u64, gap: (u64, u64)) -> (u64, u64) {
        self.current = if self.walks == 0 { gap } else { narrowed(self.current, sp, gap) };
        let part = self.last.map_or(self.current, |last| common(last, self.current));
        self.walks += 1;
        if self.walks == WINDOW_WALKS {
            (self.last, self.walks) = (Some(self.current), 0);
        }
        part
    }
}

/// Returns the part of a gap that a walk of a stack from `sp` up does not need, either, given its own gap.
fn narrowed(known: (u64, u64), sp: u64, gap: (u64, u64)) -> (u64, u64) {
    // It says nothing of the memory below.
    if known.1 <= sp {
        return known;
    }
    match common(known, gap) {
        (0, 0) => common(known, (0, sp)),
        part => part,
    }
}

/// Returns the part that two gaps have in common; (0, 0) if there is none.
fn common(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    let (start, end) = (one.0.max(other.0), one.1.min(other.1));
    if start < end { (start, end) } else { (0, 0) }
}

/// The part of a thread's stack that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyNeed {
    /// The program copies as much as it can, up to a number of absent pages in a row.
    Unknown,
    /// It copies as much as it can. Another need is tried after this number of samples.
    Everything(u32),
    Range(StackReadRange),
    /// The stack is deeper than is ever copied, so all of it is useless; tried again after this
    /// number of samples.
    TooMuch(u32),
    /// The samples of the thread are filtered out.
    Nothing,
    /// So are they, and the kernel need not write them.
    NoSample,
}

/// An address above all stacks.
const ABOVE_ALL_STACKS: u64 = (1 << 48) - (1 << TOP_SHIFT);

/// A thread with hints.
#[derive(Clone, Copy, Debug)]
struct Thread {
    /// Its id as the program knows it.
    id: u32,
    need: CopyNeed,
    unneeded: UnneededPart,
}

impl Thread {
    /// Returns the index of its first word, and its words.
    fn words(self) -> (usize, [u64; GROUP]) {
        let id = u64::from(self.id);
        let top = |end: u64| end.min(ABOVE_ALL_STACKS).div_ceil(1 << TOP_SHIFT) << THREAD_BITS | id;
        let words = match self.need {
            CopyNeed::Unknown => [0; GROUP],
            CopyNeed::Everything(_) => [top(ABOVE_ALL_STACKS), 0, 0, 1],
            CopyNeed::Range(StackReadRange { end, gap }) => [top(end), gap.0, gap.1, 0],
            CopyNeed::TooMuch(_) => [top(ABOVE_ALL_STACKS), 0, 0, 0],
            CopyNeed::Nothing => [id, 0, 0, 0],
            CopyNeed::NoSample => [id, 0, 0, 1],
        };
        (self.id as usize % HINT_SLOTS * GROUP, words)
    }
}

/// The hints for all threads of which the program copied a stack.
#[derive(Debug)]
pub(crate) struct CopyHints<W> {
    words: W,
    /// The most bytes of a stack that are copied.
    max_copy_bytes: u64,
    /// True if the program knows threads by the ids in records: both are those of the initial pid
    /// namespace.
    has_global_ids: bool,
    /// By thread id.
    threads: FxHashMap<u32, Thread>,
    /// The time at which all threads were accepted.
    accepted_ns: u64,
}

impl<W: SharedArray> CopyHints<W> {
    /// Creates hints without threads.
    pub(crate) fn new(words: W, max_copy_bytes: u64, has_global_ids: bool) -> Self {
        let threads = FxHashMap::default();
        Self { words, max_copy_bytes, has_global_ids, threads, accepted_ns: 0 }
    }

    /// Updates the hints for a thread after a walk over its stack from `sp` up, which ended with
    /// `mark` and read `read_range`.
    pub(crate) fn update(
        &mut self,
        tid: u32,
        sp: u64,
        extra_stack: &ExtraStack<'_>,
        mark: Mark,
        read_range: StackReadRange,
    ) {
        let id = extra_stack.thread;
        // The program never copied anything of it, so the kernel's own copy is enough.
        if id == 0 && !self.threads.contains_key(&tid) {
            return;
        }
        let thread = self.entry(tid, id);
        let before = thread.need;
        let is_complete = mark == Mark::None;
        let gap =
            if is_complete { thread.unneeded.add(sp, read_range.gap) } else { read_range.gap };
        let end = extra_stack.segments.end();
        let need = match (is_outside_copy(mark), before) {
            (true, _) if end >= sp.saturating_add(self.max_copy_bytes) => {
                CopyNeed::TooMuch(RETRY_SAMPLES)
            }
            (true, CopyNeed::TooMuch(left @ 1..)) => CopyNeed::TooMuch(left - 1),
            // Nothing was copied: the ring had no room, which proves nothing.
            (true, CopyNeed::Unknown | CopyNeed::Everything(_)) if id == 0 => before,
            (true, CopyNeed::Unknown) => CopyNeed::Everything(EVERYTHING_SAMPLES),
            (true, CopyNeed::Everything(left @ 1..)) => CopyNeed::Everything(left - 1),
            (true, CopyNeed::Everything(0)) => CopyNeed::TooMuch(RETRY_SAMPLES),
            (true, _) => CopyNeed::Unknown,
            // A walk that failed for another reason may get further the next time.
            (false, CopyNeed::Range(known)) if !is_complete && known.end > read_range.end => before,
            _ => CopyNeed::Range(StackReadRange { gap, ..read_range }),
        };
        // More was copied than the hint says: another thread has overwritten the words.
        let is_overwritten =
            id != 0 && need != CopyNeed::Unknown && end > read_range.end + (1 << TOP_SHIFT);
        self.publish(tid, id, need, is_overwritten);
    }

    /// Makes the program copy nothing of a thread with the id `id`; 0 if nothing was copied.
    pub(crate) fn ignore_thread(&mut self, tid: u32, id: u32) {
        if id != 0 {
            self.publish(tid, id, CopyNeed::Nothing, true);
        }
    }

    /// Makes the kernel drop the samples of a thread, if its id is certain, or the program copy
    /// nothing of it.
    pub(crate) fn reject_thread(&mut self, tid: u32, id: u32) {
        if self.has_global_ids && (1..1 << THREAD_BITS).contains(&tid) {
            self.publish(tid, tid, CopyNeed::NoSample, true);
        } else {
            self.ignore_thread(tid, id);
        }
    }

    /// Accepts the samples of a thread again, if they were rejected.
    pub(crate) fn accept_thread(&mut self, tid: u32) {
        let is_rejected =
            |thread: &Thread| matches!(thread.need, CopyNeed::NoSample | CopyNeed::Nothing);
        if self.threads.get(&tid).is_some_and(is_rejected) {
            self.forget(tid);
        }
    }

    /// Accepts the samples of all threads if that was long ago.
    pub(crate) fn renew(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.accepted_ns) >= REJECTION_NS {
            self.accepted_ns = now_ns;
            self.accept_all();
        }
    }

    /// Accepts the samples of all threads.
    pub(crate) fn accept_all(&mut self) {
        let rejected = self.threads.values_mut().filter(|thread| thread.need == CopyNeed::NoSample);
        for thread in rejected {
            let (first, words) = thread.words();
            // Without the hint, all of the stack would be copied of a thread that is rejected again.
            thread.need = CopyNeed::Nothing;
            // Another thread may have overwritten the words.
            if self.words.get(first) == words[0] {
                self.words.set(first + 3, 0);
            }
        }
    }

    /// Removes a thread, which has exited or executed another image.
    pub(crate) fn forget(&mut self, tid: u32) {
        if let Some(thread) = self.threads.remove(&tid) {
            let (index, _) = thread.words();
            self.words.set(index, 0);
        }
    }

    /// Sets the words of a thread, if they have changed or with `is_overwritten`.
    fn publish(&mut self, tid: u32, id: u32, need: CopyNeed, is_overwritten: bool) {
        let thread = self.entry(tid, id);
        let before = std::mem::replace(&mut thread.need, need);
        let (_, old) = Thread { need: before, ..*thread }.words();
        let (first, words) = thread.words();
        if is_overwritten || words != old {
            // The fourth word comes first, see `shared_array`.
            for (at, word) in words.into_iter().enumerate().rev() {
                self.words.set(first + at, word);
            }
        }
    }

    fn entry(&mut self, tid: u32, id: u32) -> &mut Thread {
        if self.threads.len() >= THREADS_MAX {
            for (_, thread) in self.threads.drain() {
                self.words.set(thread.words().0, 0);
            }
        }
        let thread = self.threads.entry(tid).or_insert(Thread {
            id,
            need: CopyNeed::Unknown,
            unneeded: UnneededPart::default(),
        });
        if id != 0 {
            thread.id = id;
        }
        thread
    }
}

#[cfg(test)]
mod tests;
