use super::*;
use std::cell::RefCell;

const OWNER: Owner = Owner { tid: 7, ip: 0x1234 };
const SP: u64 = 0x7000_0000;

fn part(start: u64, bytes: &[u8]) -> Part<'_> {
    Part { thread: 9, sp: SP, start, bytes }
}

fn raw(words: [u64; 4], bytes: &[u8]) -> Vec<u8> {
    let mut raw: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    raw.extend_from_slice(bytes);
    raw
}

#[test]
fn a_part_is_as_long_as_it_says() {
    let raw = raw([9, SP, SP + 64, 3], &[1, 2, 3, 0, 0]);
    assert_eq!(Part::read(&raw), Some(part(SP + 64, &[1, 2, 3])));
    assert_eq!(Part::read(&raw).map(|part| part.counted()), Some(35));
    for length in 0..35 {
        assert_eq!(Part::read(&raw[..length]), None, "{length}");
    }
    let mut wild = raw.clone();
    wild[24..32].fill(0xff);
    assert_eq!(Part::read(&wild), None);
    wild[24..32].fill(0);
    wild[..8].fill(0xff);
    assert_eq!(Part::read(&wild), None, "no thread has that id");
}

#[test]
fn parts_are_put_together_around_a_hole() {
    let mut pending = Pending::default();
    for (start, bytes) in [(SP + 64, [1, 2]), (SP + 66, [3, 4]), (SP + 90, [5, 6])] {
        pending.take(OWNER, &part(start, &bytes));
    }
    pending.take(OWNER, &part(SP + 92, &[7]));
    pending.take(OWNER, &part(SP + 99, &[8]));
    let extension = pending.beyond(OWNER, Some(SP));
    let first = Piece { start: SP + 64, bytes: &[1, 2, 3, 4] };
    let second = Piece { start: SP + 90, bytes: &[5, 6, 7] };
    assert_eq!(extension, Extension { thread: 9, pieces: [first, second] });
    assert_eq!(extension.end(), SP + 93);
}

#[test]
fn parts_go_to_their_own_sample_only() {
    let nothing = Extension::default();
    let mut pending = Pending::default();
    assert_eq!(pending.beyond(OWNER, Some(0)), nothing);
    pending.take(OWNER, &part(SP + 64, &[1, 2]));
    let others = [Owner { tid: 8, ..OWNER }, Owner { ip: 0x1235, ..OWNER }];
    assert!(others.iter().all(|&other| pending.beyond(other, Some(SP)) == nothing));
    assert_eq!(pending.beyond(OWNER, Some(SP + 8)), nothing);
    assert_eq!(pending.beyond(OWNER, None), nothing);
    assert_eq!(pending.beyond(OWNER, Some(SP)).pieces[0].bytes, [1, 2]);
    // Another thread's first part: those before have lost their sample.
    pending.take(Owner { tid: 8, ..OWNER }, &part(SP + 66, &[3]));
    assert_eq!(pending.beyond(OWNER, Some(SP)), nothing);
    pending.take(OWNER, &part(SP + 67, &[4]));
    assert_eq!(pending.beyond(OWNER, Some(SP)).pieces[0].bytes, [4]);
    pending.clear();
    assert!(pending.is_empty() && pending.beyond(OWNER, Some(SP)) == nothing);
}

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
