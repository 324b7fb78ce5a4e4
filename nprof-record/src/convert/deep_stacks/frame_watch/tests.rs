//! The rules, played.

use super::*;

use crate::arch;
use crate::arch::rule::{Cfa, RegisterRule, UnwindRule};
use crate::unwind::{FrameVisitor, UnwindInfo};
use nprof_object::RuntimeAddress;
use std::cell::{Cell, RefCell};

const TID: u32 = 7;

/// A process that can be played: its memory from [`BASE`] on, and its watches by slot.
#[derive(Default)]
struct Played {
    words: RefCell<Vec<u64>>,
    touched: RefCell<Vec<u64>>,
    set: Cell<usize>,
    asleep: Cell<bool>,
    refuses: Cell<bool>,
    time: Cell<u64>,
}

const BASE: u64 = 0x7000_0000;

impl DebugTarget for &Played {
    type Watch = u64;

    fn set(&mut self, _tid: u32, slot: u64, _old: Option<u64>) -> Option<u64> {
        self.set.set(self.set.get() + 1);
        self.touched.borrow_mut().retain(|&other| other != slot);
        (!self.refuses.get()).then_some(slot)
    }

    fn unset(&mut self, _watch: &mut u64) {}

    fn state_of(&mut self, watch: &u64) -> WatchState {
        match self.asleep.get() {
            _ if self.touched.borrow().contains(watch) => WatchState::Written,
            true => WatchState::NotScheduled,
            false => WatchState::Unwritten,
        }
    }

    fn read(&mut self, _pid: u32, address: u64, bytes: &mut [u8]) -> usize {
        let words = self.words.borrow();
        let all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let Some(rest) = all.get((address - BASE) as usize..) else { return 0 };
        let length = rest.len().min(bytes.len());
        bytes[..length].copy_from_slice(&rest[..length]);
        length
    }

    fn now(&mut self) -> u64 {
        self.time.get()
    }
}

/// Frames of two words; the stack ends at 0x3000, and signal handlers return to 0x4001.
struct Program;

impl CodeMap for Program {
    fn unwind_info(&mut self, RuntimeAddress(address): RuntimeAddress) -> UnwindInfo {
        let root = (0x3000..0x4000).contains(&address);
        UnwindInfo::Rule(Rc::new(UnwindRule {
            cfa: Cfa::Register(arch::SP, 16),
            return_address: if root {
                RegisterRule::Undefined
            } else {
                RegisterRule::AtCfaOffset(-8)
            },
            registers: [].into(),
            signal: address >= 0x4000,
        }))
    }
}

fn caller(cfa: u64, ip: Option<u64>) -> Registers {
    let mut registers = Registers::default();
    registers.set(arch::SP, cfa);
    if let Some(ip) = ip {
        registers.set(arch::IP, ip);
    }
    registers
}

/// The frame every test is about returns through this word, at the end of the copy.
const SLOT: u64 = BASE + 24;

struct Scene<'a> {
    played: &'a Played,
    sentinels: FrameWatches<&'a Played>,
}

impl<'a> Scene<'a> {
    /// A stack of frames of two words: 0x1001, 0x2001, 0x2101, 0x3001.
    fn new(played: &'a Played) -> Self {
        *played.words.borrow_mut() = vec![0, 0x1001, 0, 0x2001, 0, 0x2101, 0, 0x3001];
        Self { played, sentinels: FrameWatches::new(played, 1, 100) }
    }

    /// A sample at this time, that came by the frame; gives how it ends and its addresses.
    fn sample(&mut self, tid: u32, time: u64, ip: Option<u64>) -> (Mark, Vec<u64>) {
        self.sample_of(tid, time, &[(2, ip)])
    }

    /// The same, where the frame has so many addresses inside of its caller.
    fn sample_of(
        &mut self,
        tid: u32,
        time: u64,
        frames: &[(usize, Option<u64>)],
    ) -> (Mark, Vec<u64>) {
        let mut trace = self.sentinels.trace(tid, BASE, 24);
        for &(frames, ip) in frames {
            trace.visit(&caller(SLOT + 8, ip), frames);
        }
        let inside =
            [0x1100, 0x1001].map(|address| FrameAddress::Instruction(RuntimeAddress(address)));
        let mut addresses = inside.to_vec();
        let sample_id = SampleId { pid: TID, tid, time, cpu: 0 };
        let (mark, outer) =
            self.sentinels.complete(sample_id, trace, Mark::StackTruncated, &mut addresses);
        addresses.extend_from_slice(&outer.unwrap_or_default());
        (mark, addresses.iter().map(|address| address.value().0).collect())
    }

    fn batch(&mut self, time: u64) {
        self.played.time.set(time);
        for (_, tid) in self.sentinels.end_batch() {
            self.sentinels.adjust(tid, &mut Program);
        }
    }

    /// A stack seen twice before a round of time 10.
    fn settled(played: &'a Played) -> Self {
        let mut scene = Self::new(played);
        for _ in 0..2 {
            assert_eq!(scene.sample(TID, 5, Some(0x2001)), incomplete());
            scene.batch(10);
        }
        scene
    }
}

fn incomplete() -> (Mark, Vec<u64>) {
    (Mark::StackTruncated, vec![0x1100, 0x1001])
}

fn complete() -> (Mark, Vec<u64>) {
    (Mark::None, vec![0x1100, 0x1001, 0x2001, 0x2101, 0x3001])
}

#[test]
fn callers_read_once_complete_later_samples() {
    let played = Played::default();
    let mut scene = Scene::settled(&played);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), complete());
    assert_eq!(scene.sample(TID, 12, None), complete(), "the word is beyond the copy");
    scene.batch(13);
    *played.words.borrow_mut() = vec![0; 8];
    assert_eq!(scene.sample(TID, 14, Some(0x2001)), complete(), "it is not read again");
    assert_eq!(played.set.get(), 1, "nor is the sentinel moved");
}

#[test]
fn sample_older_than_the_watch_is_not_completed() {
    let played = Played::default();
    let mut scene = Scene::settled(&played);
    assert_eq!(scene.sample(TID, 10, Some(0x2001)), incomplete());
}

#[test]
fn written_word_proves_nothing() {
    let played = Played::default();
    let mut scene = Scene::settled(&played);
    played.touched.borrow_mut().push(SLOT);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), incomplete());
    scene.batch(20);
    assert_eq!(scene.sample(TID, 19, Some(0x2001)), incomplete());
    assert_eq!(scene.sample(TID, 21, Some(0x2001)), complete(), "set and read again");
}

#[test]
fn word_of_a_thread_that_did_not_run_proves_nothing() {
    let played = Played::default();
    let mut scene = Scene::settled(&played);
    played.asleep.set(true);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), incomplete());
}

#[test]
fn other_registers_are_unwound_again() {
    let played = Played::default();
    let mut scene = Scene::settled(&played);
    assert_eq!(scene.sample(TID, 11, Some(0x2009)), incomplete());
    played.words.borrow_mut()[3] = 0x2009;
    scene.batch(20);
    assert_eq!(scene.sample(TID, 20, Some(0x2009)), incomplete());
    let (mark, addresses) = scene.sample(TID, 21, Some(0x2009));
    assert_eq!((mark, addresses[2]), (Mark::None, 0x2009));
}

#[test]
fn innermost_frame_is_not_watched() {
    let played = Played::default();
    let mut scene = Scene::settled(&played);
    assert_eq!(scene.sample_of(TID, 11, &[(1, Some(0x2001))]), incomplete());
}

#[test]
fn signal_handler_frame_is_not_watched() {
    let played = Played::default();
    let mut scene = Scene::new(&played);
    played.words.borrow_mut()[3] = 0x4001;
    for time in [5, 15] {
        assert_eq!(scene.sample(TID, time, Some(0x4001)), incomplete());
        scene.batch(time + 5);
    }
    assert_eq!(scene.sample(TID, 30, Some(0x4001)), incomplete());
    assert_eq!(scene.sample(TID, 31, None), incomplete());
}

#[test]
fn frame_that_returned_before_reading_is_not_used() {
    let played = Played::default();
    let mut scene = Scene::new(&played);
    played.words.borrow_mut()[3] = 0x2009;
    for time in [5, 15] {
        assert_eq!(scene.sample(TID, time, Some(0x2001)), incomplete());
        scene.batch(time + 5);
    }
    assert_eq!(scene.sample(TID, 30, Some(0x2001)), incomplete());
}

#[test]
fn incomplete_callers_are_not_used() {
    let played = Played::default();
    let mut scene = Scene::new(&played);
    played.words.borrow_mut().truncate(6);
    for time in [5, 15] {
        assert_eq!(scene.sample(TID, time, Some(0x2001)), incomplete());
        scene.batch(time + 5);
    }
    assert_eq!(scene.sample(TID, 30, Some(0x2001)), incomplete());
}

#[test]
fn exited_threads_are_dropped() {
    let played = Played::default();
    let mut scene = Scene::settled(&played);
    scene.sentinels.forget(TID);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), incomplete());
    let mut scene = Scene::settled(&played);
    scene.sentinels.forget_process(TID);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), incomplete());
}

#[test]
fn watched_threads_are_bounded_and_a_refused_watch_is_ignored() {
    let played = Played::default();
    let mut scene = Scene::settled(&played);
    for _ in 0..3 {
        assert_eq!(scene.sample(8, 20, Some(0x2001)), incomplete());
        scene.batch(20);
    }
    assert_eq!(scene.sentinels.threads.len(), 1);
    for _ in 0..IDLE_BATCHES {
        scene.batch(30);
    }
    assert_eq!(scene.sample(8, 40, Some(0x2001)), incomplete());
    assert!(scene.sentinels.threads.contains_key(&8), "the idle one makes room");
    let played = Played { refuses: Cell::new(true), ..Played::default() };
    let mut scene = Scene::settled(&played);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), incomplete());
}

#[test]
fn completed_stack_is_cut_at_max_depth() {
    let played = Played::default();
    let mut scene = Scene::new(&played);
    scene.sentinels.depth = 4;
    for _ in 0..2 {
        assert_eq!(scene.sample(TID, 5, Some(0x2001)), incomplete());
        scene.batch(10);
    }
    let cut = (Mark::MaxDepth, vec![0x1100, 0x1001, 0x2001, 0x2101]);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), cut);
}

#[test]
fn sufficient_copies_release_watches() {
    let played = Played::default();
    for copies_suffice in [false, true] {
        let mut scene = Scene::settled(&played);
        if copies_suffice {
            scene.sentinels.rely_on_copies();
        }
        for _ in 0..=IDLE_BATCHES {
            scene.batch(20);
        }
        let trace = scene.sentinels.trace(TID, BASE, 24);
        let sample_id = SampleId { pid: TID, tid: TID, time: 30, cpu: 0 };
        let (mark, _) = scene.sentinels.complete(sample_id, trace, Mark::None, &mut Vec::new());
        assert_eq!((mark, scene.sentinels.threads.is_empty()), (Mark::None, copies_suffice));
    }
}
