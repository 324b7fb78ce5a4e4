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
//! Pure but for a [`Machine`].

use std::rc::Rc;

use nprof_stream::Mark;
use rustc_hash::FxHashMap;

use crate::convert::deep_stacks::caller_stack::{Outer, Reader};
use crate::convert::deep_stacks::walk_trace::{Passed, Trail};
use crate::perf::record::Stamp;
use crate::unwind::stack_copy::Seen;
use crate::unwind::{Address, Code, Registers};

/// How many sentinels a thread has at most. The processor has four breakpoints; one is left to
/// debuggers.
const SENTINELS: usize = 3;

/// After how many rounds without a deep sample a thread may lose its sentinels to another.
const IDLE: u64 = 100;

/// What became of a watched word since it was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// The thread ran and did not write to it.
    Untouched,
    /// The thread did not run.
    Asleep,
    /// The thread wrote to it, or nobody knows.
    Touched,
}

/// What watches memory and reads it.
pub(crate) trait Machine {
    /// A breakpoint. Dropped, it is gone.
    type Watch;

    /// Watches the word at `slot` for writes by a thread, with a breakpoint there was before if
    /// there is one; `None` when there is none to be had.
    fn set(&mut self, tid: u32, slot: u64, old: Option<Self::Watch>) -> Option<Self::Watch>;

    /// Stops watching, until it is set again.
    fn unset(&mut self, watch: &mut Self::Watch);

    /// What became of the word since it was set.
    fn watched(&mut self, watch: &Self::Watch) -> Watched;

    /// Reads a process's memory, as far as there is any: how many bytes.
    fn read(&mut self, pid: u32, address: u64, bytes: &mut [u8]) -> usize;

    /// The clock of the samples, ns.
    fn now(&mut self) -> u64;
}

/// A frame that is watched.
#[derive(Debug)]
struct Sentinel<W> {
    watch: W,
    /// The frame's CFA; 0 when it is off.
    cfa: u64,
    /// From when on it stands, ns.
    since: u64,
    /// What lies outside of the frame, if that could be found out.
    outer: Option<Outer>,
}

impl<W> Sentinel<W> {
    /// What lies outside of the frame whose caller has these registers in a sample of that time,
    /// provided that the word was not touched.
    fn outside_of(&self, caller: &Registers, time: u64) -> Option<&Outer> {
        let outer = self.outer.as_ref().filter(|outer| outer.is_whole())?;
        (time > self.since && outer.is_around(caller)).then_some(outer)
    }
}

/// The sentinels of a thread.
type Guard<W> = [Option<Sentinel<W>>; SENTINELS];

/// A thread with deep stacks.
#[derive(Debug)]
struct Thread<W> {
    pid: u32,
    guard: Guard<W>,
    /// What its last sample in this round left.
    latest: Option<Trail>,
    /// The round of its last deep sample.
    used: u64,
}

/// The sentinels of all threads.
#[derive(Debug)]
pub(crate) struct Sentinels<M: Machine> {
    machine: M,
    threads: FxHashMap<u32, Thread<M::Watch>>,
    /// How many threads may have some.
    limit: usize,
    /// The most frames of an outer part.
    depth: usize,
    /// The longest copy of a stack seen, bytes.
    reach: u64,
    /// Whether copies are made as long as is needed, if that is possible at all.
    is_enough: bool,
    round: u64,
    /// What is read of a stack.
    bytes: Vec<u8>,
}

impl<M: Machine> Sentinels<M> {
    /// For at most `limit` threads, and outer parts of at most `depth` frames.
    pub(crate) fn new(machine: M, limit: usize, depth: usize) -> Self {
        let threads = FxHashMap::default();
        Self {
            machine,
            threads,
            limit,
            depth,
            reach: 0,
            is_enough: false,
            round: 0,
            bytes: Vec::new(),
        }
    }

    /// More of a stack is copied where it is needed: only what is still too short needs sentinels.
    pub(crate) fn expect_enough(&mut self) {
        self.is_enough = true;
    }

    /// To be handed to the walk over a sample's stack, of which `copied` bytes are at hand.
    pub(crate) fn trail(&mut self, tid: u32, sp: u64, copied: u64) -> Trail {
        self.reach = self.reach.max(copied);
        let thread = self.threads.get_mut(&tid);
        let is_kept = thread.is_some();
        let mut frames = thread.and_then(|thread| thread.latest.take()).unwrap_or_default().frames;
        frames.clear();
        Trail { sp, top: sp, copied, seen: Seen::default(), is_kept, frames }
    }

    /// Takes what the walk over a sample's stack left, and completes the stack if it can: why it
    /// is incomplete, if it still is, and the outer part that was known before, which goes
    /// behind `addresses`.
    pub(crate) fn complete(
        &mut self,
        Stamp { pid, tid, time, .. }: Stamp,
        trail: Trail,
        mark: Mark,
        addresses: &mut Vec<Address>,
    ) -> (Mark, Option<Rc<[Address]>>) {
        let is_long = trail.top.saturating_sub(trail.sp) > self.reach / 2;
        let is_deep = mark == Mark::Copy || is_long && !self.is_enough;
        if !is_deep && !self.keeps(tid) {
            return (mark, None);
        }
        if is_deep && !self.admit(pid, tid) {
            return (mark, None);
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return (mark, None) };
        let known = if mark == Mark::Copy {
            proven(&mut self.machine, &thread.guard, time, &trail)
        } else {
            None
        };
        thread.latest = Some(trail);
        let Some((frames, outer)) = known else { return (mark, None) };
        addresses.truncate(frames);
        let room = self.depth.saturating_sub(frames);
        match outer.addresses.get(..room) {
            Some(kept) if room < outer.addresses.len() => (Mark::Depth, Some(kept.into())),
            _ => (outer.mark, Some(outer.addresses.clone())),
        }
    }

    /// Whether a thread without a deep stack has sentinels all the same: if they are hardly ever
    /// needed, for some time.
    fn keeps(&mut self, tid: u32) -> bool {
        let Some(thread) = self.threads.get(&tid) else { return false };
        let keeps = !self.is_enough || thread.used + IDLE >= self.round;
        if !keeps {
            self.threads.remove(&tid);
        }
        keeps
    }

    /// Whether a thread has sentinels or may have some.
    fn admit(&mut self, pid: u32, tid: u32) -> bool {
        if !self.threads.contains_key(&tid) && self.threads.len() >= self.limit {
            let idlest = self.threads.iter().min_by_key(|(_, thread)| thread.used);
            let idlest = idlest.filter(|(_, thread)| thread.used + IDLE < self.round);
            let Some((&idlest, _)) = idlest else { return false };
            self.threads.remove(&idlest);
        }
        let thread = self.threads.entry(tid).or_insert_with(|| Thread {
            pid,
            guard: [const { None }; SENTINELS],
            latest: None,
            used: 0,
        });
        thread.used = self.round;
        true
    }

    /// A round is over: the threads that were sampled in it, with their processes. Each is to be
    /// given to [`Sentinels::adjust`].
    pub(crate) fn end_round(&mut self) -> Vec<(u32, u32)> {
        self.round += 1;
        let seen = self.threads.iter().filter(|(_, thread)| thread.latest.is_some());
        seen.map(|(&tid, thread)| (thread.pid, tid)).collect()
    }

    /// Whether threads have deep stacks at present, and it counts how soon a round follows.
    pub(crate) fn is_busy(&self) -> bool {
        self.threads.values().any(|thread| thread.used + IDLE >= self.round)
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
    pub(crate) fn adjust(&mut self, tid: u32, code: &mut impl Code) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let Some(trail) = thread.latest.take() else { return };
        let (machine, guard) = (&mut self.machine, &mut thread.guard);
        let mut ground = Ground { pid: thread.pid, depth: self.depth, bytes: &mut self.bytes };
        relieve(machine, guard, &trail, self.round);
        let mut free = [true; SENTINELS];
        for at in 0..SENTINELS {
            let Some(sentinel) = guard[at].as_ref().filter(|one| one.cfa != 0) else { continue };
            let Some(&Passed { caller, .. }) = trail.find(sentinel.cfa) else { continue };
            free[at] = false;
            if sentinel.outside_of(&caller, u64::MAX).is_none() {
                ground.survey(machine, guard, at, caller, code);
            }
        }
        let reach = if self.is_enough { trail.copied } else { self.reach };
        let close = reach / 10;
        for &Passed { cfa, caller, .. } in posts(&trail, reach).into_iter().flatten() {
            let Some(at) = spare(guard, &free) else { break };
            let is_near = |one: &Sentinel<_>| one.cfa.abs_diff(cfa) <= close;
            let mut kept = guard.iter().zip(free).filter(|(_, free)| !free);
            let Some(slot) = slot_of(cfa) else { continue };
            if kept.any(|(one, _)| one.as_ref().is_some_and(is_near)) {
                continue;
            }
            let old = guard[at].take().map(|sentinel| sentinel.watch);
            let Some(watch) = machine.set(tid, slot, old) else { break };
            free[at] = false;
            guard[at] = Some(Sentinel { watch, cfa, since: u64::MAX, outer: None });
            ground.survey(machine, guard, at, caller, code);
        }
    }
}

/// The frames of a trail that should have a sentinel, unless one is near: the outermost, which
/// will live longest, and two nearer to the stack's end, which serve when it gets deeper.
fn posts(trail: &Trail, reach: u64) -> [Option<&Passed>; SENTINELS] {
    let beyond = |distance| {
        let is_beyond = |passed: &&Passed| passed.cfa.saturating_sub(trail.sp) >= distance;
        trail.frames.iter().find(is_beyond)
    };
    [trail.frames.last(), beyond(reach / 2), beyond(reach / 4)]
}

/// The word a frame with that CFA returns through, if it can be watched.
fn slot_of(cfa: u64) -> Option<u64> {
    cfa.checked_sub(8).filter(|slot| slot % 8 == 0)
}

/// Switches those off whose frame is gone. That takes a look at the breakpoint, which interrupts
/// the thread: one of them in each round will do.
fn relieve<M: Machine>(machine: &mut M, guard: &mut Guard<M::Watch>, trail: &Trail, turn: u64) {
    for (at, sentinel) in (0..).zip(guard.iter_mut()) {
        let Some(sentinel) = sentinel.as_mut().filter(|one| one.cfa != 0) else { continue };
        let was_missed =
            trail.find(sentinel.cfa).is_none() && sentinel.cfa <= trail.top.max(trail.sp);
        let is_its_turn = turn % SENTINELS as u64 == at;
        if was_missed || is_its_turn && machine.watched(&sentinel.watch) == Watched::Touched {
            sentinel.cfa = 0;
            sentinel.outer = None;
            machine.unset(&mut sentinel.watch);
        }
    }
}

/// The sentinel to move: one that is off, else one the walk did not get to.
fn spare<W>(guard: &Guard<W>, free: &[bool; SENTINELS]) -> Option<usize> {
    let is_off = |at: &usize| guard[*at].as_ref().is_none_or(|sentinel| sentinel.cfa == 0);
    let is_free = |at: &usize| free[*at];
    (0..SENTINELS).filter(is_free).find(is_off).or_else(|| (0..SENTINELS).find(is_free))
}

/// The outer part of a thread's sample of that time, from the outermost sentinel that proves
/// one: how many frames lie inside of it, and what lies outside.
fn proven<'a, M: Machine>(
    machine: &mut M,
    guard: &'a Guard<M::Watch>,
    time: u64,
    trail: &Trail,
) -> Option<(usize, &'a Outer)> {
    let mut passed: Vec<_> = (guard.iter().flatten())
        .filter_map(|sentinel| {
            let Passed { frames, caller, .. } = trail.find(sentinel.cfa)?;
            Some((*frames, sentinel, sentinel.outside_of(caller, time)?))
        })
        .collect();
    passed.sort_unstable_by_key(|&(frames, ..)| std::cmp::Reverse(frames));
    let mut passed = passed.into_iter();
    passed
        .find(|(_, sentinel, _)| machine.watched(&sentinel.watch) == Watched::Untouched)
        .map(|(frames, _, outer)| (frames, outer))
}

/// The memory a thread's stack is in.
struct Ground<'a> {
    pid: u32,
    depth: usize,
    bytes: &'a mut Vec<u8>,
}

impl Ground<'_> {
    /// Finds out what lies outside of a sentinel's frame, and lets it stand from now on.
    fn survey<M: Machine>(
        &mut self,
        machine: &mut M,
        guard: &mut Guard<M::Watch>,
        at: usize,
        caller: Registers,
        code: &mut impl Code,
    ) {
        let (others, outers): (Vec<_>, Vec<_>) = (guard.iter().enumerate())
            .filter(|&(other, _)| other != at)
            .filter_map(|(other, sentinel)| Some((other, sentinel.as_ref()?)))
            .filter_map(|(other, one)| Some((other, (one.cfa, one.outer.as_ref()?))))
            .unzip();
        let pid = self.pid;
        let read = |address, bytes: &mut [u8]| machine.read(pid, address, bytes);
        let mut reader = Reader { read, bytes: self.bytes, depth: self.depth };
        let mut outside = reader.outside_of(caller, &outers, code);
        if let Some((_, Some(joined))) = outside {
            // What was known must still have been so when the rest was read.
            let holds = guard[others[joined]]
                .as_ref()
                .is_some_and(|sentinel| machine.watched(&sentinel.watch) == Watched::Untouched);
            if !holds {
                let read = |address, bytes: &mut [u8]| machine.read(pid, address, bytes);
                let mut reader = Reader { read, bytes: self.bytes, depth: self.depth };
                outside = reader.outside_of(caller, &[], code);
            }
        }
        let since = machine.now();
        if let Some(sentinel) = &mut guard[at] {
            sentinel.outer = outside.map(|(outer, _)| outer);
            sentinel.since = since;
        }
    }
}

#[cfg(test)]
mod tests;
