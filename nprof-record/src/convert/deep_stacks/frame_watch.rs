//! Stacks deeper than their copy: what is known of a thread's outer frames, and the proof that
//! it still holds.
//!
//! What the outer part of a stack was at an earlier time is of no use by itself: a function may
//! have returned, and another one with a frame of the same size called the same function, which
//! looks just the same up to where the copy ends. So frames get *sentinels*: a hardware
//! breakpoint on the word where the frame's return address is. Every call that makes a frame in
//! the same place writes that word. The rules:
//!
//! 1. A sentinel is set, then the stack from its word outwards is read from the living process
//!    and unwound, then the clock is read. From then on it *stands*.
//! 2. A sample taken while it stands, whose own walk comes by a frame with the sentinel's CFA,
//!    when the word was not written to since it was set, has found the very frame that was
//!    there when the sentinel was set: only a call could have made another. While a frame
//!    lives, its callers wait: their return addresses and what they saved do not change. So what
//!    was read is the outer part of this sample's stack, as far as the registers it was unwound
//!    with are those the sample's walk found.
//! 3. Words *inside* of the sentinel's are never read: the frame goes on running.
//! 4. The innermost frame of a sample proves nothing: its call may be the write that is being
//!    noticed.
//! 5. A signal's frame is written by the kernel, unseen by a breakpoint that may only watch user
//!    code. So frames that return from a signal get no sentinel, and since the return address is
//!    among the registers that must agree, none is taken for a frame that had one.
//!
//! Pure but for a [`DebugTarget`].

use std::rc::Rc;

use nprof_stream::Mark;
use rustc_hash::FxHashMap;

use crate::arch;
use crate::convert::deep_stacks::caller_stack::{CallerReader, CallerStack};
use crate::convert::deep_stacks::walk_trace::{VisitedFrame, WalkTrace};
use crate::perf::record::SampleId;
use crate::unwind::stack_copy::StackReadRange;
use crate::unwind::{CodeMap, FrameAddress, Registers};

/// Watches of a thread, at most: one hardware breakpoint is left to debuggers.
const WATCHES: usize = arch::BREAKPOINTS - 1;

/// After how many rounds without a deep sample a thread may lose its sentinels to another.
const IDLE_BATCHES: u64 = 100;

/// What became of a watched word since it was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchState {
    /// The thread ran and did not write to it.
    Unwritten,
    /// The thread did not run.
    NotScheduled,
    /// The thread wrote to it, or nobody knows.
    Written,
}

/// What watches memory and reads it.
pub(crate) trait DebugTarget {
    /// A breakpoint. Dropped, it is gone.
    type Watch;

    /// Watches the word at `slot` for writes by a thread, with a breakpoint there was before if
    /// there is one; `None` when there is none to be had.
    fn set(&mut self, tid: u32, slot: u64, old: Option<Self::Watch>) -> Option<Self::Watch>;

    /// Stops watching, until it is set again.
    fn unset(&mut self, watch: &mut Self::Watch);

    /// What became of the word since it was set.
    fn state_of(&mut self, watch: &Self::Watch) -> WatchState;

    /// Reads a process's memory, as far as there is any: how many bytes.
    fn read(&mut self, pid: u32, address: u64, bytes: &mut [u8]) -> usize;

    /// The clock of the samples, ns.
    fn now(&mut self) -> u64;
}

/// A frame that is watched.
#[derive(Debug)]
struct FrameWatch<W> {
    watch: W,
    /// The frame's CFA; 0 when it is off.
    cfa: u64,
    /// From when on it stands, ns.
    since: u64,
    /// What lies outside of the frame, if that could be found out.
    outer: Option<CallerStack>,
}

impl<W> FrameWatch<W> {
    /// What lies outside of the frame whose caller has these registers in a sample of that time,
    /// provided that the word was not touched.
    fn read_callers(&self, caller: &Registers, time: u64) -> Option<&CallerStack> {
        let outer = self.outer.as_ref().filter(|outer| outer.is_complete())?;
        (time > self.since && outer.matches_caller(caller)).then_some(outer)
    }
}

/// The sentinels of a thread.
type ThreadWatches<W> = [Option<FrameWatch<W>>; WATCHES];

/// A thread with deep stacks.
#[derive(Debug)]
struct Thread<W> {
    pid: u32,
    watches: ThreadWatches<W>,
    /// What its last sample in this round left.
    latest: Option<WalkTrace>,
    /// The round of its last deep sample.
    used: u64,
}

/// The sentinels of all threads.
#[derive(Debug)]
pub(crate) struct FrameWatches<M: DebugTarget> {
    target: M,
    threads: FxHashMap<u32, Thread<M::Watch>>,
    /// How many threads may have some.
    limit: usize,
    /// The most frames of an outer part.
    depth: usize,
    /// The longest copy of a stack seen, bytes.
    longest_copy: u64,
    /// Whether copies are made as long as is needed, if that is possible at all.
    copies_suffice: bool,
    batch: u64,
    /// What is read of a stack.
    bytes: Vec<u8>,
}

impl<M: DebugTarget> FrameWatches<M> {
    /// For at most `limit` threads, and outer parts of at most `depth` frames.
    pub(crate) fn new(target: M, limit: usize, depth: usize) -> Self {
        let threads = FxHashMap::default();
        Self {
            target,
            threads,
            limit,
            depth,
            longest_copy: 0,
            copies_suffice: false,
            batch: 0,
            bytes: Vec::new(),
        }
    }

    /// More of a stack is copied where it is needed: only what is still too short needs sentinels.
    pub(crate) fn rely_on_copies(&mut self) {
        self.copies_suffice = true;
    }

    /// To be handed to the walk over a sample's stack, of which `copied` bytes are at hand.
    pub(crate) fn trace(&mut self, tid: u32, sp: u64, copied: u64) -> WalkTrace {
        self.longest_copy = self.longest_copy.max(copied);
        let thread = self.threads.get_mut(&tid);
        let is_kept = thread.is_some();
        let mut frames = thread.and_then(|thread| thread.latest.take()).unwrap_or_default().frames;
        frames.clear();
        WalkTrace { sp, top: sp, copied, read_range: StackReadRange::default(), is_kept, frames }
    }

    /// Takes what the walk over a sample's stack left, and completes the stack if it can: why it
    /// is incomplete, if it still is, and the outer part that was known before, which goes
    /// behind `addresses`.
    pub(crate) fn complete(
        &mut self,
        SampleId { pid, tid, time, .. }: SampleId,
        trace: WalkTrace,
        mark: Mark,
        addresses: &mut Vec<FrameAddress>,
    ) -> (Mark, Option<Rc<[FrameAddress]>>) {
        let is_long = trace.top.saturating_sub(trace.sp) > self.longest_copy / 2;
        let is_deep = mark == Mark::StackTruncated || is_long && !self.copies_suffice;
        if !is_deep && !self.keeps_watches(tid) {
            return (mark, None);
        }
        if is_deep && !self.admit(pid, tid) {
            return (mark, None);
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return (mark, None) };
        let known = if mark == Mark::StackTruncated {
            find_matching_watch(&mut self.target, &thread.watches, time, &trace)
        } else {
            None
        };
        thread.latest = Some(trace);
        let Some((frames, outer)) = known else { return (mark, None) };
        addresses.truncate(frames);
        let room = self.depth.saturating_sub(frames);
        match outer.addresses.get(..room) {
            Some(kept) if room < outer.addresses.len() => (Mark::MaxDepth, Some(kept.into())),
            _ => (outer.mark, Some(outer.addresses.clone())),
        }
    }

    /// Whether a thread without a deep stack has sentinels all the same: if they are hardly ever
    /// needed, for some time.
    fn keeps_watches(&mut self, tid: u32) -> bool {
        let Some(thread) = self.threads.get(&tid) else { return false };
        let keeps_watches = !self.copies_suffice || thread.used + IDLE_BATCHES >= self.batch;
        if !keeps_watches {
            self.threads.remove(&tid);
        }
        keeps_watches
    }

    /// Whether a thread has sentinels or may have some.
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

    /// A round is over: the threads that were sampled in it, with their processes. Each is to be
    /// given to [`FrameWatches::adjust`].
    pub(crate) fn end_batch(&mut self) -> Vec<(u32, u32)> {
        self.batch += 1;
        let read_range = self.threads.iter().filter(|(_, thread)| thread.latest.is_some());
        read_range.map(|(&tid, thread)| (thread.pid, tid)).collect()
    }

    /// Whether threads have deep stacks at present, and it counts how soon a round follows.
    pub(crate) fn is_busy(&self) -> bool {
        self.threads.values().any(|thread| thread.used + IDLE_BATCHES >= self.batch)
    }

    /// A thread is no more.
    pub(crate) fn forget(&mut self, tid: u32) {
        self.threads.remove(&tid);
    }

    /// All of a process's threads are no more, or it has another memory.
    pub(crate) fn forget_process(&mut self, pid: u32) {
        self.threads.retain(|_, thread| thread.pid != pid);
    }

    /// Sets a thread's sentinels by what its last sample left: those that are of no use any more
    /// go to zones that have none.
    pub(crate) fn adjust(&mut self, tid: u32, code: &mut impl CodeMap) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let Some(trace) = thread.latest.take() else { return };
        let (target, watches) = (&mut self.target, &mut thread.watches);
        let mut stack = ProcessStack { pid: thread.pid, depth: self.depth, bytes: &mut self.bytes };
        release_stale(target, watches, &trace, self.batch);
        let mut free = [true; WATCHES];
        for at in 0..WATCHES {
            let Some(watch) = watches[at].as_ref().filter(|one| one.cfa != 0) else { continue };
            let Some(&VisitedFrame { caller, .. }) = trace.find(watch.cfa) else { continue };
            free[at] = false;
            if watch.read_callers(&caller, u64::MAX).is_none() {
                stack.refresh(target, watches, at, caller, code);
            }
        }
        let longest_copy = if self.copies_suffice { trace.copied } else { self.longest_copy };
        let close = longest_copy / 10;
        for &VisitedFrame { cfa, caller, .. } in
            frames_to_watch(&trace, longest_copy).into_iter().flatten()
        {
            let Some(at) = free_slot(watches, &free) else { break };
            let is_near = |one: &FrameWatch<_>| one.cfa.abs_diff(cfa) <= close;
            let mut kept = watches.iter().zip(free).filter(|(_, free)| !free);
            let Some(slot) = slot_of(cfa) else { continue };
            if kept.any(|(one, _)| one.as_ref().is_some_and(is_near)) {
                continue;
            }
            let old = watches[at].take().map(|watch| watch.watch);
            let Some(watch) = target.set(tid, slot, old) else { break };
            free[at] = false;
            watches[at] = Some(FrameWatch { watch, cfa, since: u64::MAX, outer: None });
            stack.refresh(target, watches, at, caller, code);
        }
    }
}

/// The frames of a trail that should have a sentinel, unless one is near: the outermost, which
/// will live longest, and two nearer to the stack's end, which serve when it gets deeper.
fn frames_to_watch(trace: &WalkTrace, longest_copy: u64) -> [Option<&VisitedFrame>; WATCHES] {
    let beyond = |distance| {
        let is_beyond = |passed: &&VisitedFrame| passed.cfa.saturating_sub(trace.sp) >= distance;
        trace.frames.iter().find(is_beyond)
    };
    [trace.frames.last(), beyond(longest_copy / 2), beyond(longest_copy / 4)]
}

/// The word a frame with that CFA returns through, if it can be watched.
fn slot_of(cfa: u64) -> Option<u64> {
    arch::return_address_slot(cfa).filter(|slot| slot.is_multiple_of(arch::WORD))
}

/// Switches those off whose frame is gone. That takes a look at the breakpoint, which interrupts
/// the thread: one of them in each round will do.
fn release_stale<M: DebugTarget>(
    target: &mut M,
    watches: &mut ThreadWatches<M::Watch>,
    trace: &WalkTrace,
    turn: u64,
) {
    for (at, watch) in (0..).zip(watches.iter_mut()) {
        let Some(watch) = watch.as_mut().filter(|one| one.cfa != 0) else { continue };
        let was_missed = trace.find(watch.cfa).is_none() && watch.cfa <= trace.top.max(trace.sp);
        let is_its_turn = turn % WATCHES as u64 == at;
        if was_missed || is_its_turn && target.state_of(&watch.watch) == WatchState::Written {
            watch.cfa = 0;
            watch.outer = None;
            target.unset(&mut watch.watch);
        }
    }
}

/// The sentinel to move: one that is off, else one the walk did not get to.
fn free_slot<W>(watches: &ThreadWatches<W>, free: &[bool; WATCHES]) -> Option<usize> {
    let is_off = |at: &usize| watches[*at].as_ref().is_none_or(|watch| watch.cfa == 0);
    let is_free = |at: &usize| free[*at];
    (0..WATCHES).filter(is_free).find(is_off).or_else(|| (0..WATCHES).find(is_free))
}

/// The outer part of a thread's sample of that time, from the outermost sentinel that proves
/// one: how many frames lie inside of it, and what lies outside.
fn find_matching_watch<'a, M: DebugTarget>(
    target: &mut M,
    watches: &'a ThreadWatches<M::Watch>,
    time: u64,
    trace: &WalkTrace,
) -> Option<(usize, &'a CallerStack)> {
    let mut passed: Vec<_> = (watches.iter().flatten())
        .filter_map(|watch| {
            let VisitedFrame { frames, caller, .. } = trace.find(watch.cfa)?;
            Some((*frames, watch, watch.read_callers(caller, time)?))
        })
        .collect();
    passed.sort_unstable_by_key(|&(frames, ..)| std::cmp::Reverse(frames));
    let mut passed = passed.into_iter();
    passed
        .find(|(_, watch, _)| target.state_of(&watch.watch) == WatchState::Unwritten)
        .map(|(frames, _, outer)| (frames, outer))
}

/// The memory a thread's stack is in.
struct ProcessStack<'a> {
    pid: u32,
    depth: usize,
    bytes: &'a mut Vec<u8>,
}

impl ProcessStack<'_> {
    /// Finds out what lies outside of a sentinel's frame, and lets it stand from now on.
    fn refresh<M: DebugTarget>(
        &mut self,
        target: &mut M,
        watches: &mut ThreadWatches<M::Watch>,
        at: usize,
        caller: Registers,
        code: &mut impl CodeMap,
    ) {
        let (others, outers): (Vec<_>, Vec<_>) = (watches.iter().enumerate())
            .filter(|&(other, _)| other != at)
            .filter_map(|(other, watch)| Some((other, watch.as_ref()?)))
            .filter_map(|(other, one)| Some((other, (one.cfa, one.outer.as_ref()?))))
            .unzip();
        let pid = self.pid;
        let read = |address, bytes: &mut [u8]| target.read(pid, address, bytes);
        let mut reader = CallerReader { read, bytes: self.bytes, depth: self.depth };
        let mut outside = reader.read_callers(caller, &outers, code);
        if let Some((_, Some(joined))) = outside {
            // What was known must still have been so when the rest was read.
            let holds = watches[others[joined]]
                .as_ref()
                .is_some_and(|watch| target.state_of(&watch.watch) == WatchState::Unwritten);
            if !holds {
                let read = |address, bytes: &mut [u8]| target.read(pid, address, bytes);
                let mut reader = CallerReader { read, bytes: self.bytes, depth: self.depth };
                outside = reader.read_callers(caller, &[], code);
            }
        }
        let since = target.now();
        if let Some(watch) = &mut watches[at] {
            watch.outer = outside.map(|(outer, _)| outer);
            watch.since = since;
        }
    }
}

#[cfg(test)]
mod tests;
