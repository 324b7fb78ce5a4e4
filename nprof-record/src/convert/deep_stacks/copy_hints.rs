//! What the BPF program is told of a thread: how much of its stack is needed. Pure.

use std::rc::Rc;

use nprof_stream::Mark;
use rustc_hash::FxHashMap;

use crate::perf::bpf::shared_array::{GROUP, HINT_SLOTS, THREAD_BITS, TOP_SHIFT};
use crate::perf::stack_chunks::ExtraStack;
use crate::sys::SharedWords;
use crate::unwind::stack_copy::StackReadRange;

/// The most threads that are told of; beyond that all are forgotten.
const THREADS_MAX: usize = 1 << 16;

/// After how many samples it is tried again whether a stack is still deeper than is ever copied.
const RETRY_SAMPLES: u32 = 1000;

/// Where words are set that the program reads.
pub(crate) trait SharedArray {
    /// Sets one.
    fn set(&self, index: usize, value: u64);
}

impl SharedArray for Rc<SharedWords> {
    fn set(&self, index: usize, value: u64) {
        SharedWords::set(self, index, value);
    }
}

/// What of the stack of a thread is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyNeed {
    Unknown,
    Known(StackReadRange),
    /// More than is ever copied, for so many samples more: then it is tried again.
    TooMuch(u32),
    /// Nothing of it is wanted.
    Nothing,
}

/// An address above all stacks.
const ABOVE_ALL_STACKS: u64 = (1 << 47) - (1 << TOP_SHIFT);

/// A thread that had parts.
#[derive(Clone, Copy, Debug)]
struct Thread {
    /// Its id as the program knows it.
    id: u32,
    need: CopyNeed,
}

impl Thread {
    /// The number of its first word, and what its words are now.
    fn words(self) -> (usize, [u64; 3]) {
        let id = u64::from(self.id);
        let top = |top: u64| top.min(ABOVE_ALL_STACKS).div_ceil(1 << TOP_SHIFT) << THREAD_BITS | id;
        let words = match self.need {
            CopyNeed::Unknown => [0; 3],
            CopyNeed::Known(StackReadRange { end, gap }) => [top(end), gap.0, gap.1],
            CopyNeed::TooMuch(_) => [top(ABOVE_ALL_STACKS), 0, 0],
            CopyNeed::Nothing => [id, 0, 0],
        };
        (self.id as usize % HINT_SLOTS * GROUP, words)
    }
}

/// What the program is told of the threads that had parts, by their ids.
#[derive(Debug)]
pub(crate) struct CopyHints<W> {
    words: W,
    /// The most bytes of a stack that are copied.
    max_copy_bytes: u64,
    threads: FxHashMap<u32, Thread>,
}

impl<W: SharedArray> CopyHints<W> {
    /// Of nobody yet; `reach` is the most bytes of a stack that are copied.
    pub(crate) fn new(words: W, max_copy_bytes: u64) -> Self {
        Self { words, max_copy_bytes, threads: FxHashMap::default() }
    }

    /// Takes what a walk over a thread's stack from `sp` up tells: why it ended, and what it read.
    pub(crate) fn update(
        &mut self,
        tid: u32,
        sp: u64,
        extra_stack: &ExtraStack<'_>,
        mark: Mark,
        read_range: StackReadRange,
    ) {
        let id = extra_stack.thread;
        if id == 0 && !self.threads.contains_key(&tid) {
            return;
        }
        let before = self.entry(tid, id).need;
        let end = extra_stack.end();
        let need = match (mark, before) {
            (Mark::StackTruncated, _) if end >= sp.saturating_add(self.max_copy_bytes) => {
                CopyNeed::TooMuch(RETRY_SAMPLES)
            }
            (Mark::StackTruncated, CopyNeed::TooMuch(left @ 1..)) => CopyNeed::TooMuch(left - 1),
            (Mark::StackTruncated, _) => CopyNeed::Unknown,
            // Another time it may get farther.
            (mark, CopyNeed::Known(known)) if mark != Mark::None && known.end > read_range.end => {
                before
            }
            _ => CopyNeed::Known(read_range),
        };
        // More than that was copied where another thread has taken the words.
        let is_lost =
            id != 0 && need != CopyNeed::Unknown && end > read_range.end + (1 << TOP_SHIFT);
        self.publish(tid, id, need, is_lost);
    }

    /// Nothing of that thread is wanted.
    pub(crate) fn ignore_thread(&mut self, tid: u32, id: u32) {
        self.publish(tid, id, CopyNeed::Nothing, true);
    }

    /// The thread is another one from now on, or no more.
    pub(crate) fn forget(&mut self, tid: u32) {
        if let Some(thread) = self.threads.remove(&tid) {
            let (index, _) = thread.words();
            self.words.set(index, 0);
        }
    }

    /// Tells what is needed of a thread, if that is new or has to be told `again`.
    fn publish(&mut self, tid: u32, id: u32, need: CopyNeed, again: bool) {
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
        let thread = self.threads.entry(tid).or_insert(Thread { id, need: CopyNeed::Unknown });
        if id != 0 {
            thread.id = id;
        }
        thread
    }
}

#[cfg(test)]
mod tests;
