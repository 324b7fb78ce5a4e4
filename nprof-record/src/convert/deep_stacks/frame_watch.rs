//! Frame watches: the callers of watched frames, and the proof that they have not changed.
//!
//! The callers of a frame as they were at an earlier time are of no use by themselves: a function
//! may have returned, and another one with a frame of the same size may have called the same
//! function. The stack then looks the same up to the end of the copy. So frames are *watched*: a
//! hardware breakpoint lies on the word that holds the frame's return address. Every call that
//! creates a frame in the same place writes that word. The rules:
//!
//! 1. The breakpoint is set, then the stack from its word outwards is read from the live process and
//!    unwound, then the clock is read. From then on the watch is *valid*.
//! 2. If the walk of a sample that is taken while the watch is valid visits a frame with the watched
//!    CFA, it has found the very frame that was watched, if the word was not written since:
//!    only a call could have created another. While a frame exists its callers wait, so their return
//!    addresses and saved registers do not change. The callers that were read are those of this
//!    sample, if they were unwound with the registers that the sample's walk found.
//! 3. Frames *inside* of the watched frame are taken from the sample, never from the watch: they
//!    change.
//! 4. A watch on the innermost frame is ignored: the call that created it may be the write that is
//!    still being reported.
//! 5. The kernel writes the frame of a signal handler, unseen by a breakpoint that may only watch
//!    user code. So frames that return from a signal are not watched; and since the return address
//!    is among the registers that must agree, none of them matches a watched frame.
//!
//! Pure except for a [`DebugTarget`].

use std::cmp::Reverse;
use std::rc::Rc;

use nprof_stream::Mark;
use nprof_unwind::arch;
use nprof_unwind::unwind::stack_copy::{StackReadRange, is_outside_copy};
use nprof_unwind::unwind::{CodeMap, FrameAddress, Registers};
use rustc_hash::FxHashMap;

use crate::arch::BREAKPOINTS;
use crate::convert::deep_stacks::caller_stack::{CallerReader, CallerStack, ReadCallers};
use crate::convert::deep_stacks::walk_trace::{VisitedFrame, WalkTrace};
use crate::perf::record::SampleId;

/// Watches of a thread, at most: one hardware breakpoint is left to debuggers.
const WATCHES: usize = BREAKPOINTS - 1;

/// Batches without a deep sample after which a thread may lose its watches to another.
const IDLE_BATCHES: u64 = 100;

/// The state of a watched word since it was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchState {
    /// The thread has run, and has not written it.
    Unwritten,
    /// The thread has not run, so the breakpoint could not have fired.
    NotScheduled,
    /// The thread has written it, or its state is unknown.
    Written,
}

/// Sets breakpoints in the recorded threads and reads their memory.
pub(crate) trait DebugTarget {
    /// A breakpoint; removed when dropped.
    type Watch;

    /// Watches the word at `slot` for writes by a thread. Moves the breakpoint `old` if there is
    /// one. None if the breakpoint cannot be set.
    fn set(&mut self, tid: u32, slot: u64, old: Option<Self::Watch>) -> Option<Self::Watch>;

    /// Stops watching until the breakpoint is moved.
    fn unset(&mut self, watch: &mut Self::Watch);

    /// Returns the state of the word since it was set. Interrupts the thread.
    fn state_of(&mut self, watch: &Self::Watch) -> WatchState;

    /// Reads the memory of a thread. Returns the number of bytes read, up to the first that is not
    /// mapped.
    fn read(&mut self, tid: u32, address: u64, bytes: &mut [u8]) -> usize;

    /// Returns the time on the clock of the samples.
    fn now_ns(&mut self) -> u64;
}

/// A watched frame.
#[derive(Debug)]
struct FrameWatch<W> {
    watch: W,
    /// The CFA of the frame; 0 if the watch is unused.
    cfa: u64,
    /// The time from which on it is valid.
    valid_from_ns: u64,
    /// The callers of the frame; `None` if they could not be read.
    callers: Option<CallerStack>,
}

impl<W> FrameWatch<W> {
    /// Returns the callers of the frame in a sample of this time, if `caller` are the registers of
    /// the first one. The word must not have been written.
    fn callers_at(&self, caller: &Registers, time_ns: u64) -> Option<&CallerStack> {
        let callers = self.callers.as_ref().filter(|callers| callers.is_complete())?;
        (time_ns > self.valid_from_ns && callers.matches_caller(caller)).then_some(callers)
    }
}

/// The watches of a thread.
type ThreadWatches<W> = [Option<FrameWatch<W>>; WATCHES];

/// A thread with deep stacks.
#[derive(Debug)]
struct Thread<W> {
    pid: u32,
    watches: ThreadWatches<W>,
    /// The trace of its last sample in this batch.
    latest: Option<WalkTrace>,
    /// The batch of its last deep sample.
    used: u64,
}

/// The watches of all threads.
#[derive(Debug)]
pub(crate) struct FrameWatches<T: DebugTarget> {
    target: T,
    threads: FxHashMap<u32, Thread<T::Watch>>,
    /// The most threads that may have watches.
    limit: usize,
    /// The most callers that are kept of a frame.
    depth: usize,
    /// The longest copy of a stack so far.
    longest_copy_bytes: u64,
    /// True if a BPF program copies as much of a stack as is needed, up to a limit.
    copies_suffice: bool,
    /// The number of the batch.
    batch: u64,
    /// The part of a stack that was read last; kept for its memory.
    buffer: Vec<u8>,
}

impl<T: DebugTarget> FrameWatches<T> {
    /// Creates watches for at most `limit` threads, with at most `depth` callers of a frame.
    pub(crate) fn new(target: T, limit: usize, depth: usize) -> Self {
        Self {
            target,
            threads: FxHashMap::default(),
            limit,
            depth,
            longest_copy_bytes: 0,
            copies_suffice: false,
            batch: 0,
            buffer: Vec::new(),
        }
    }

    /// Notes that copies are as long as needed: only stacks that are still too short get watches.
    pub(crate) fn rely_on_copies(&mut self) {
        self.copies_suffice = true;
    }

    /// Returns an empty trace for the walk over a sample's stack, of which `copied_bytes` were
    /// copied.
    pub(crate) fn trace(&mut self, tid: u32, sp: u64, copied_bytes: u64) -> WalkTrace {
        self.longest_copy_bytes = self.longest_copy_bytes.max(copied_bytes);
        let thread = self.threads.get_mut(&tid);
        let keeps_frames = thread.is_some();
        // The memory of the last trace is used again.
        let latest = thread.and_then(|thread| thread.latest.take());
        let mut frames = latest.unwrap_or_default().frames;
        frames.clear();
        WalkTrace {
            sp,
            outermost_cfa: sp,
            copied_bytes,
            read_range: StackReadRange::default(),
            absent: None,
            keeps_frames,
            frames,
        }
    }

    /// Takes the trace of a sample's walk, and completes the stack if it can. Returns the reason
    /// why the stack is still incomplete, and the callers that complete it, which follow
    /// `addresses`.
    pub(crate) fn complete(
        &mut self,
        sample_id: SampleId,
        trace: WalkTrace,
        mark: Mark,
        addresses: &mut Vec<FrameAddress>,
    ) -> (Mark, Option<Rc<[FrameAddress]>>) {
        let SampleId { pid, tid, time, .. } = sample_id;
        let length = trace.outermost_cfa.saturating_sub(trace.sp);
        let is_long = length > self.longest_copy_bytes / 2;
        // A long stack may soon be too deep: watch it while its outer frames are in the copy.
        let is_deep = is_outside_copy(mark) || is_long && !self.copies_suffice;
        let is_watched = if is_deep { self.admit(pid, tid) } else { self.keeps_watches(tid) };
        let Some(thread) = self.threads.get_mut(&tid).filter(|_| is_watched) else {
            return (mark, None);
        };
        let known = if is_outside_copy(mark) {
            find_matching_watch(&mut self.target, &thread.watches, time, &trace)
        } else {
            None
        };
        thread.latest = Some(trace);
        let Some((frames, callers)) = known else { return (mark, None) };
        // The rest comes from the watch, even if the copy reached a little further.
        addresses.truncate(frames);
        let room = self.depth.saturating_sub(frames);
        match callers.addresses.get(..room) {
            Some(kept) if room < callers.addresses.len() => (Mark::MaxDepth, Some(kept.into())),
            _ => (callers.mark, Some(callers.addresses.clone())),
        }
    }

    /// True if a thread keeps its watches after a stack that is not deep: for some time if copies
    /// mostly suffice, else always.
    fn keeps_watches(&mut self, tid: u32) -> bool {
        let Some(thread) = self.threads.get(&tid) else { return false };
        let is_kept = !self.copies_suffice || thread.used + IDLE_BATCHES >= self.batch;
        if !is_kept {
            self.threads.remove(&tid);
        }
        is_kept
    }

    /// Gives a thread with a deep stack watches. Returns false if too many threads have some.
    fn admit(&mut self, pid: u32, tid: u32) -> bool {
        if !self.threads.contains_key(&tid) && self.threads.len() >= self.limit {
            let idlest = self.threads.iter().min_by_key(|(_, thread)| thread.used);
            let idlest = idlest.filter(|(_, thread)| thread.used + IDLE_BATCHES < self.batch);
            let Some((&idlest, _)) = idlest else { return false };
            self.threads.remove(&idlest);
        }
        let thread = self.threads.entry(tid).or_insert_with(|| Thread {
            pid,
            watches: [const { None }; WATCHES],
            latest: None,
            used: 0,
        });
        thread.used = self.batch;
        true
    }

    /// Ends a batch of samples. Returns the threads that were sampled in it, as (pid, tid); each is
    /// to be given to [`Self::adjust`].
    pub(crate) fn end_batch(&mut self) -> Vec<(u32, u32)> {
        self.batch += 1;
        let sampled = self.threads.iter().filter(|(_, thread)| thread.latest.is_some());
        sampled.map(|(&tid, thread)| (thread.pid, tid)).collect()
    }

    /// True if any thread had a deep stack recently; the rings should then be drained often.
    pub(crate) fn is_busy(&self) -> bool {
        self.threads.values().any(|thread| thread.used + IDLE_BATCHES >= self.batch)
    }

    /// Removes a thread that has exited.
    pub(crate) fn forget(&mut self, tid: u32) {
        self.threads.remove(&tid);
    }

    /// Removes the threads of a process that has exited or executed another image.
    pub(crate) fn forget_process(&mut self, pid: u32) {
        self.threads.retain(|_, thread| thread.pid != pid);
    }

    /// Sets the watches of a thread by the trace of its last sample: moves those that are useless to
    /// frames that are not covered.
    pub(crate) fn adjust(&mut self, tid: u32, code: &mut impl CodeMap) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let Some(trace) = thread.latest.take() else { return };
        let (target, watches) = (&mut self.target, &mut thread.watches);
        let mut stack = ThreadStack { tid, depth: self.depth, buffer: &mut self.buffer };
        release_stale(target, watches, &trace, self.batch);
        let mut is_free = [true; WATCHES];
        for at in 0..WATCHES {
            let Some(watch) = watches[at].as_ref().filter(|watch| watch.cfa != 0) else { continue };
            let Some(&VisitedFrame { caller, .. }) = trace.find(watch.cfa) else { continue };
            is_free[at] = false;
            // Other registers: callers before, but not the present ones.
            if watch.callers_at(&caller, u64::MAX).is_none() {
                stack.refresh(target, watches, at, caller, code);
            }
        }
        let reach_bytes =
            if self.copies_suffice { trace.copied_bytes } else { self.longest_copy_bytes };
        let near_bytes = reach_bytes / 10;
        for &VisitedFrame { cfa, caller, .. } in
            frames_to_watch(&trace, reach_bytes).into_iter().flatten()
        {
            let Some(at) = free_slot(watches, &is_free) else { break };
            let Some(slot) = slot_of(cfa) else { continue };
            let mut kept = watches.iter().zip(is_free).filter(|(_, is_free)| !is_free);
            // A watch near the frame proves about as much, so the breakpoint is saved.
            let is_near = |watch: &FrameWatch<_>| watch.cfa.abs_diff(cfa) <= near_bytes;
            if kept.any(|(watch, _)| watch.as_ref().is_some_and(is_near)) {
                continue;
            }
            let old = watches[at].take().map(|watch| watch.watch);
            let Some(watch) = target.set(tid, slot, old) else { break };
            is_free[at] = false;
            watches[at] = Some(FrameWatch { watch, cfa, valid_from_ns: u64::MAX, callers: None });
            stack.refresh(target, watches, at, caller, code);
        }
    }
}

/// Returns the frames that should be watched, unless one near them is: the outermost, which will
/// exist longest, and two nearer to the stack pointer, which are still in the copy when the stack
/// gets deeper.
fn frames_to_watch(trace: &WalkTrace, reach_bytes: u64) -> [Option<&VisitedFrame>; WATCHES] {
    let beyond =
        |bytes| trace.frames.iter().find(|frame| frame.cfa.saturating_sub(trace.sp) >= bytes);
    [trace.frames.last(), beyond(reach_bytes / 2), beyond(reach_bytes / 4)]
}

/// Returns the address of the word with the return address of a frame. None if it cannot be
/// watched: a breakpoint must be aligned.
fn slot_of(cfa: u64) -> Option<u64> {
    arch::return_address_slot(cfa).filter(|slot| slot.is_multiple_of(arch::WORD))
}

/// Stops watching frames that have returned: those in the range of the walk that it did not visit,
/// and one with a written word. Reading the state of a word interrupts the thread, so only one is
/// read in each batch.
fn release_stale<T: DebugTarget>(
    target: &mut T,
    watches: &mut ThreadWatches<T::Watch>,
    trace: &WalkTrace,
    batch: u64,
) {
    let outermost_cfa = trace.outermost_cfa.max(trace.sp);
    for (at, watch) in (0..).zip(watches.iter_mut()) {
        let Some(watch) = watch.as_mut().filter(|watch| watch.cfa != 0) else { continue };
        let was_missed = trace.find(watch.cfa).is_none() && watch.cfa <= outermost_cfa;
        let is_its_turn = batch % WATCHES as u64 == at;
        if was_missed || is_its_turn && target.state_of(&watch.watch) == WatchState::Written {
            watch.cfa = 0;
            watch.callers = None;
            target.unset(&mut watch.watch);
        }
    }
}

/// Returns the index of the watch to move: an unused one, else one of a frame that the walk did not
/// reach. None if all watch frames that were visited.
fn free_slot<W>(watches: &ThreadWatches<W>, is_free: &[bool; WATCHES]) -> Option<usize> {
    let is_unused = |at: &usize| watches[*at].as_ref().is_none_or(|watch| watch.cfa == 0);
    let free = || (0..WATCHES).filter(|at| is_free[*at]);
    free().find(is_unused).or_else(|| free().next())
}

/// Returns the callers that complete a thread's sample of this time, by the outermost watch that
/// proves some, and the number of frames up to them.
fn find_matching_watch<'a, T: DebugTarget>(
    target: &mut T,
    watches: &'a ThreadWatches<T::Watch>,
    time_ns: u64,
    trace: &WalkTrace,
) -> Option<(usize, &'a CallerStack)> {
    let mut matching: Vec<_> = (watches.iter().flatten())
        .filter_map(|watch| {
            let VisitedFrame { frames, caller, .. } = trace.find(watch.cfa)?;
            Some((*frames, watch, watch.callers_at(caller, time_ns)?))
        })
        .collect();
    matching.sort_unstable_by_key(|&(frames, ..)| Reverse(frames));
    let proven = matching
        .into_iter()
        .find(|(_, watch, _)| target.state_of(&watch.watch) == WatchState::Unwritten);
    proven.map(|(frames, _, callers)| (frames, callers))
}

/// The stack of a thread in the memory of its process.
struct ThreadStack<'a> {
    /// The memory is that of its process. The kernel does not give it by the process id once the
    /// first thread has exited.
    tid: u32,
    depth: usize,
    buffer: &'a mut Vec<u8>,
}

impl ThreadStack<'_> {
    /// Reads the callers of a watched frame, and makes the watch valid from now on.
    fn refresh<T: DebugTarget>(
        &mut self,
        target: &mut T,
        watches: &mut ThreadWatches<T::Watch>,
        at: usize,
        caller: Registers,
        code: &mut impl CodeMap,
    ) {
        let (others, known): (Vec<_>, Vec<_>) = (watches.iter().enumerate())
            .filter(|&(other, _)| other != at)
            .filter_map(|(other, watch)| Some((other, watch.as_ref()?)))
            .filter_map(|(other, watch)| Some((other, (watch.cfa, watch.callers.as_ref()?))))
            .unzip();
        let mut read = self.read_callers(target, caller, &known, code);
        if let Some(ReadCallers { joined: Some(joined), .. }) = read {
            // The known callers must still have been the callers when the rest was read.
            let is_unwritten = watches[others[joined]]
                .as_ref()
                .is_some_and(|watch| target.state_of(&watch.watch) == WatchState::Unwritten);
            if !is_unwritten {
                read = self.read_callers(target, caller, &[], code);
            }
        }
        let valid_from_ns = target.now_ns();
        if let Some(watch) = &mut watches[at] {
            watch.callers = read.map(|read| read.callers);
            watch.valid_from_ns = valid_from_ns;
        }
    }

    fn read_callers<T: DebugTarget>(
        &mut self,
        target: &mut T,
        caller: Registers,
        known: &[(u64, &CallerStack)],
        code: &mut impl CodeMap,
    ) -> Option<ReadCallers> {
        let tid = self.tid;
        let read = |address, bytes: &mut [u8]| target.read(tid, address, bytes);
        let mut reader = CallerReader { read, buffer: self.buffer, depth: self.depth };
        reader.read_callers(caller, known, code)
    }
}

#[cfg(test)]
mod tests;
