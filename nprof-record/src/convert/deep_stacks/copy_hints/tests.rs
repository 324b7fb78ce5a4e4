use super::*;
use std::cell::RefCell;

use crate::perf::bpf::shared_array::{read_word, word_count};
use crate::unwind::stack_copy::Piece;

const SP: u64 = 0x7000_0000;

/// Keeps the words that were set last.
#[derive(Default)]
struct Kept(RefCell<FxHashMap<usize, u64>>);

impl Words for Kept {
    fn set(&self, index: usize, value: u64) {
        self.0.borrow_mut().insert(index, value);
    }
}

const REACH: u64 = 0x10_0000;

/// What the words of a thread tell: its id, its top, and its hole.
fn told(needs: &Needs<Kept>, id: u32) -> (u64, u64, [u64; 2]) {
    let words = needs.words.0.borrow();
    let word = |at: usize| words.get(&(id as usize * GROUP + at)).copied().unwrap_or(0);
    let (thread, top) = (word(0) & ((1 << THREAD_BITS) - 1), word(0) >> THREAD_BITS << TOP_SHIFT);
    (thread, top, [word(1), word(2)])
}

fn seen(top: u64) -> Seen {
    Seen { top, hole: (0, 0) }
}

/// What was copied up to some bytes above the stack pointer.
fn copied(bytes: &[u8]) -> Extension<'_> {
    Extension { thread: 9, pieces: [Piece { start: SP, bytes }, Piece::default()] }
}

#[test]
fn what_a_walk_read_is_needed_the_next_time() {
    let mut needs = Needs::new(Kept::default(), REACH);
    let (nothing, bytes) = (Extension::default(), vec![0; 0x8000]);
    needs.learn(7, SP, &nothing, Mark::None, seen(SP + 0x100));
    assert_eq!(told(&needs, 9), (0, 0, [0, 0]), "nobody asked");
    let hole = (SP + 0x200, SP + 0x5000);
    needs.learn(7, SP, &copied(&bytes), Mark::None, Seen { top: SP + 0x6001, hole });
    assert_eq!(told(&needs, 9), (9, SP + 0x6020, [SP + 0x200, SP + 0x5000]));
    needs.learn(7, SP, &nothing, Mark::Table, seen(SP + 0x40));
    assert_eq!(told(&needs, 9).1, SP + 0x6020, "another time it may get farther");
    needs.learn(7, SP, &nothing, Mark::None, seen(SP + 0x7000));
    assert_eq!(told(&needs, 9), (9, SP + 0x7000, [0, 0]));
    needs.learn(7, SP, &nothing, Mark::Copy, seen(SP + 0x7000));
    assert_eq!(told(&needs, 9).0, 0, "it was not enough");
}

#[test]
fn words_another_thread_has_taken_are_set_again() {
    let mut needs = Needs::new(Kept::default(), REACH);
    let (short, long) = (vec![0; 0x40], vec![0; 0x8000]);
    needs.learn(7, SP, &copied(&long), Mark::None, seen(SP + 0x40));
    needs.words.set(9 * GROUP, 0);
    needs.learn(7, SP, &copied(&short), Mark::None, seen(SP + 0x40));
    assert_eq!(told(&needs, 9).0, 0, "no more was copied than it takes");
    needs.learn(7, SP, &copied(&long), Mark::None, seen(SP + 0x40));
    assert_eq!(told(&needs, 9), (9, SP + 0x40, [0, 0]));
}

#[test]
fn too_deep_stacks_are_not_copied_in_vain() {
    let mut needs = Needs::new(Kept::default(), REACH);
    let (all, near) = (vec![0; REACH as usize], vec![0; 0x8000]);
    needs.learn(7, SP, &copied(&all), Mark::Copy, seen(SP + REACH));
    assert_eq!(told(&needs, 9), (9, FAR, [0, 0]));
    needs.learn(7, SP, &Extension::default(), Mark::Copy, seen(SP + 0x40));
    assert_eq!(told(&needs, 9).1, FAR, "the ring had no room");
    for _ in 1..PATIENCE {
        needs.learn(7, SP, &copied(&near), Mark::Copy, seen(SP + 0x40));
    }
    assert_eq!(told(&needs, 9).1, FAR);
    needs.learn(7, SP, &copied(&near), Mark::Copy, seen(SP + 0x40));
    assert_eq!(told(&needs, 9).0, 0, "it may be less deep by now");
}

#[test]
fn what_is_not_wanted_is_told_and_forgotten() {
    let mut needs = Needs::new(Kept::default(), REACH);
    needs.refuse(7, 9);
    assert_eq!(told(&needs, 9), (9, 0, [0, 0]));
    // From now on it is: it has executed the command.
    needs.learn(7, SP, &Extension::default(), Mark::Copy, seen(SP + 0x40));
    assert_eq!(told(&needs, 9).0, 0);
    needs.refuse(7, 9);
    needs.forget(7);
    assert_eq!(told(&needs, 9).0, 0);
    assert_eq!(word_count(3), read_word(3) + GROUP - 1);
}

#[test]
fn of_threads_that_are_forgotten_nothing_is_told() {
    let mut needs = Needs::new(Kept::default(), REACH);
    for tid in 0..=THREADS_MAX as u32 {
        needs.refuse(tid + 1, tid + 1);
    }
    let words = needs.words.0.borrow();
    let told: Vec<_> = words.iter().filter(|(_, word)| **word != 0).collect();
    let last = THREADS_MAX as u64 + 1;
    assert_eq!(told, [(&(last as usize % HINTS * GROUP), &last)], "of the last one only");
}
