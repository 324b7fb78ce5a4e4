//! The rules of frame watches, on a simulated process.

use super::*;

use nprof_object::RuntimeAddress;
use nprof_unwind::arch;
use nprof_unwind::arch::rule::{Cfa, RegisterRule, UnwindRule};
use nprof_unwind::unwind::{FrameVisitor, UnwindInfo};
use std::cell::{Cell, RefCell};

const TID: u32 = 7;

/// A simulated process: its memory from [`BASE`] on, and its watches by slot.
#[derive(Default)]
struct SimulatedProcess {
    words: RefCell<Vec<u64>>,
    written: RefCell<Vec<u64>>,
    set: Cell<usize>,
    not_scheduled: Cell<bool>,
    refuses: Cell<bool>,
    time: Cell<u64>,
}

const BASE: u64 = 0x7000_0000;

impl DebugTarget for &SimulatedProcess {
    type Watch = u64;

    fn set(&mut self, _tid: u32, slot: u64, _old: Option<u64>) -> Option<u64> {
        self.set.set(self.set.get() + 1);
        self.written.borrow_mut().retain(|&other| other != slot);
        (!self.refuses.get()).then_some(slot)
    }

    fn unset(&mut self, _watch: &mut u64) {}

    fn state_of(&mut self, watch: &u64) -> WatchState {
        match self.not_scheduled.get() {
            _ if self.written.borrow().contains(watch) => WatchState::Written,
            true => WatchState::NotScheduled,
            false => WatchState::Unwritten,
        }
    }

    fn read(&mut self, _tid: u32, address: u64, bytes: &mut [u8]) -> usize {
        let words = self.words.borrow();
        let all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let Some(rest) = all.get((address - BASE) as usize..) else { return 0 };
        let length = rest.len().min(bytes.len());
        bytes[..length].copy_from_slice(&rest[..length]);
        length
    }

    fn now_ns(&mut self) -> u64 {
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

/// The word with the return address of the frame under test, at the end of the copy.
const SLOT: u64 = BASE + 24;

struct Scene<'a> {
    process: &'a SimulatedProcess,
    watches: FrameWatches<&'a SimulatedProcess>,
}

impl<'a> Scene<'a> {
    /// Creates a stack of frames of two words: 0x1001, 0x2001, 0x2101, 0x3001.
    fn new(process: &'a SimulatedProcess) -> Self {
        *process.words.borrow_mut() = vec![0, 0x1001, 0, 0x2001, 0, 0x2101, 0, 0x3001];
        Self { process, watches: FrameWatches::new(process, 1, 100) }
    }

    /// Takes a sample at this time; its walk visits the frame. Returns its mark and its addresses.
    fn sample(&mut self, tid: u32, time: u64, ip: Option<u64>) -> (Mark, Vec<u64>) {
        self.sample_of(tid, time, &[(2, ip)])
    }

    /// The same, with the number of addresses of each visited frame.
    fn sample_of(
        &mut self,
        tid: u32,
        time: u64,
        frames: &[(usize, Option<u64>)],
    ) -> (Mark, Vec<u64>) {
        let mut trace = self.watches.trace(tid, BASE, 24);
        for &(frames, ip) in frames {
            trace.visit(&caller(SLOT + 8, ip), frames);
        }
        let inside =
            [0x1100, 0x1001].map(|address| FrameAddress::Instruction(RuntimeAddress(address)));
        let mut addresses = inside.to_vec();
        let sample_id = SampleId { pid: TID, tid, time, cpu: 0 };
        let (mark, callers) =
            self.watches.complete(sample_id, trace, Mark::StackTruncated, &mut addresses);
        addresses.extend_from_slice(&callers.unwrap_or_default());
        (mark, addresses.iter().map(|address| address.value().0).collect())
    }

    fn batch(&mut self, time: u64) {
        self.process.time.set(time);
        for (_, tid) in self.watches.end_batch() {
            self.watches.adjust(tid, &mut Program);
        }
    }

    /// Creates a stack that was sampled twice before a batch at the time 10.
    fn settled(process: &'a SimulatedProcess) -> Self {
        let mut scene = Self::new(process);
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
    let process = SimulatedProcess::default();
    let mut scene = Scene::settled(&process);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), complete());
    assert_eq!(scene.sample(TID, 12, None), complete(), "the word is beyond the copy");
    scene.batch(13);
    *process.words.borrow_mut() = vec![0; 8];
    assert_eq!(scene.sample(TID, 14, Some(0x2001)), complete(), "it is not read again");
    assert_eq!(process.set.get(), 1, "nor is the watch moved");
}

#[test]
fn sample_older_than_the_watch_is_not_completed() {
    let process = SimulatedProcess::default();
    let mut scene = Scene::settled(&process);
    assert_eq!(scene.sample(TID, 10, Some(0x2001)), incomplete());
}

#[test]
fn written_word_proves_nothing() {
    let process = SimulatedProcess::default();
    let mut scene = Scene::settled(&process);
    process.written.borrow_mut().push(SLOT);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), incomplete());
    scene.batch(20);
    assert_eq!(scene.sample(TID, 19, Some(0x2001)), incomplete());
    assert_eq!(scene.sample(TID, 21, Some(0x2001)), complete(), "set and read again");
}

#[test]
fn word_of_a_thread_that_did_not_run_proves_nothing() {
    let process = SimulatedProcess::default();
    let mut scene = Scene::settled(&process);
    process.not_scheduled.set(true);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), incomplete());
}

#[test]
fn other_registers_are_unwound_again() {
    let process = SimulatedProcess::default();
    let mut scene = Scene::settled(&process);
    assert_eq!(scene.sample(TID, 11, Some(0x2009)), incomplete());
    process.words.borrow_mut()[3] = 0x2009;
    scene.batch(20);
    assert_eq!(scene.sample(TID, 20, Some(0x2009)), incomplete());
    let (mark, addresses) = scene.sample(TID, 21, Some(0x2009));
    assert_eq!((mark, addresses[2]), (Mark::None, 0x2009));
}

#[test]
fn innermost_frame_is_not_watched() {
    let process = SimulatedProcess::default();
    let mut scene = Scene::settled(&process);
    assert_eq!(scene.sample_of(TID, 11, &[(1, Some(0x2001))]), incomplete());
}

#[test]
fn signal_handler_frame_is_not_watched() {
    let process = SimulatedProcess::default();
    let mut scene = Scene::new(&process);
    process.words.borrow_mut()[3] = 0x4001;
    for time in [5, 15] {
        assert_eq!(scene.sample(TID, time, Some(0x4001)), incomplete());
        scene.batch(time + 5);
    }
    assert_eq!(scene.sample(TID, 30, Some(0x4001)), incomplete());
    assert_eq!(scene.sample(TID, 31, None), incomplete());
}

#[test]
fn frame_that_returned_before_reading_is_not_used() {
    let process = SimulatedProcess::default();
    let mut scene = Scene::new(&process);
    process.words.borrow_mut()[3] = 0x2009;
    for time in [5, 15] {
        assert_eq!(scene.sample(TID, time, Some(0x2001)), incomplete());
        scene.batch(time + 5);
    }
    assert_eq!(scene.sample(TID, 30, Some(0x2001)), incomplete());
}

#[test]
fn incomplete_callers_are_not_used() {
    let process = SimulatedProcess::default();
    let mut scene = Scene::new(&process);
    process.words.borrow_mut().truncate(6);
    for time in [5, 15] {
        assert_eq!(scene.sample(TID, time, Some(0x2001)), incomplete());
        scene.batch(time + 5);
    }
    assert_eq!(scene.sample(TID, 30, Some(0x2001)), incomplete());
}

#[test]
fn exited_threads_are_dropped() {
    let process = SimulatedProcess::default();
    let mut scene = Scene::settled(&process);
    scene.watches.forget(TID);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), incomplete());
    let mut scene = Scene::settled(&process);
    scene.watches.forget_process(TID);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), incomplete());
}

#[test]
fn watched_threads_are_bounded_and_a_refused_watch_is_ignored() {
    let process = SimulatedProcess::default();
    let mut scene = Scene::settled(&process);
    for _ in 0..3 {
        assert_eq!(scene.sample(8, 20, Some(0x2001)), incomplete());
        scene.batch(20);
    }
    assert_eq!(scene.watches.threads.len(), 1);
    for _ in 0..IDLE_BATCHES {
        scene.batch(30);
    }
    assert_eq!(scene.sample(8, 40, Some(0x2001)), incomplete());
    assert!(scene.watches.threads.contains_key(&8), "the idle one makes room");
    let process = SimulatedProcess { refuses: Cell::new(true), ..SimulatedProcess::default() };
    let mut scene = Scene::settled(&process);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), incomplete());
}

#[test]
fn completed_stack_is_cut_at_max_depth() {
    let process = SimulatedProcess::default();
    let mut scene = Scene::new(&process);
    scene.watches.depth = 4;
    for _ in 0..2 {
        assert_eq!(scene.sample(TID, 5, Some(0x2001)), incomplete());
        scene.batch(10);
    }
    let cut = (Mark::MaxDepth, vec![0x1100, 0x1001, 0x2001, 0x2101]);
    assert_eq!(scene.sample(TID, 11, Some(0x2001)), cut);
}

#[test]
fn sufficient_copies_release_watches() {
    let process = SimulatedProcess::default();
    for copies_suffice in [false, true] {
        let mut scene = Scene::settled(&process);
        if copies_suffice {
            scene.watches.rely_on_copies();
        }
        for _ in 0..=IDLE_BATCHES {
            scene.batch(20);
        }
        let trace = scene.watches.trace(TID, BASE, 24);
        let sample_id = SampleId { pid: TID, tid: TID, time: 30, cpu: 0 };
        let (mark, _) = scene.watches.complete(sample_id, trace, Mark::None, &mut Vec::new());
        assert_eq!((mark, scene.watches.threads.is_empty()), (Mark::None, copies_suffice));
    }
}
