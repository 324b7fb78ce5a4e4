use super::*;
use std::cell::RefCell;

use nprof_unwind::unwind::stack_copy::{Segment, StackSegments};

use crate::perf::bpf::shared_array::{read_word, word_count};

const SP: u64 = 0x7000_0000;

/// Keeps the words that were set last.
#[derive(Default)]
struct Kept(RefCell<FxHashMap<usize, u64>>);

impl SharedArray for Kept {
    fn set(&self, index: usize, value: u64) {
        self.0.borrow_mut().insert(index, value);
    }

    fn get(&self, index: usize) -> u64 {
        self.0.borrow().get(&index).copied().unwrap_or(0)
    }
}

const REACH: u64 = 0x10_0000;

/// Decodes the words of a thread: its id, its top, and its gap.
fn published(hints: &CopyHints<Kept>, id: u32) -> (u64, u64, [u64; 2]) {
    let words = hints.words.0.borrow();
    let word = |at: usize| words.get(&(id as usize * GROUP + at)).copied().unwrap_or(0);
    let (thread, top) = (word(0) & ((1 << THREAD_BITS) - 1), word(0) >> THREAD_BITS << TOP_SHIFT);
    (thread, top, [word(1), word(2)])
}

fn read_range(top: u64) -> StackReadRange {
    StackReadRange { end: top, gap: (0, 0) }
}

/// Creates a stack that was copied up to some bytes above the stack pointer.
fn copied(bytes: &[u8]) -> ExtraStack<'_> {
    let place = Segment { address: SP, position: 0, length: bytes.len() };
    let places = Box::leak(Box::new([place]));
    ExtraStack { thread: 9, segments: StackSegments { bytes, places, gap: (0, 0) } }
}

#[test]
fn range_of_last_walk_is_published() {
    let mut hints = CopyHints::new(Kept::default(), REACH, true);
    let (nothing, bytes) = (ExtraStack::default(), vec![0; 0x8000]);
    hints.update(7, SP, &nothing, Mark::None, read_range(SP + 0x100));
    assert_eq!(published(&hints, 9), (0, 0, [0, 0]), "the program copied nothing");
    let gap = (SP + 0x200, SP + 0x5000);
    hints.update(7, SP, &copied(&bytes), Mark::None, StackReadRange { end: SP + 0x6001, gap });
    assert_eq!(published(&hints, 9), (9, SP + 0x6040, [SP + 0x200, SP + 0x5000]));
    hints.update(7, SP, &nothing, Mark::NoUnwindInfo, read_range(SP + 0x40));
    assert_eq!(published(&hints, 9).1, SP + 0x6040, "another time it may get farther");
    hints.update(7, SP, &nothing, Mark::None, read_range(SP + 0x7000));
    assert_eq!(published(&hints, 9), (9, SP + 0x7000, [0, 0]));
    hints.update(7, SP, &nothing, Mark::StackTruncated, read_range(SP + 0x7000));
    assert_eq!(published(&hints, 9).0, 0, "it was not enough");
}

#[test]
fn gap_excludes_the_needs_of_all_recent_walks() {
    let mut hints = CopyHints::new(Kept::default(), REACH, true);
    let bytes = vec![0; 0x8000];
    let mut walk = |sp: u64, gap: (u64, u64)| {
        hints.update(7, sp, &copied(&bytes), Mark::None, StackReadRange { end: SP + 0x9000, gap });
        let [start, end] = published(&hints, 9).2;
        (start, end)
    };
    let (one, other, both) =
        ((SP + 0x1000, SP + 0x7000), (SP + 0x3000, SP + 0x8000), (SP + 0x3000, SP + 0x7000));
    assert_eq!(walk(SP, one), one);
    assert_eq!(walk(SP, other), both, "the first may come again");
    assert_eq!(walk(SP + 0x8000, (0, 0)), both, "its stack is above");
    assert_eq!(walk(SP + 0x6000, (0, 0)), (SP + 0x3000, SP + 0x6000));
    assert_eq!(walk(SP, one), (SP + 0x3000, SP + 0x6000));
    // The walks before are long ago.
    let last = (0..2 * WINDOW_WALKS).map(|_| walk(SP, one)).last();
    assert_eq!(last, Some(one));
    assert_eq!(walk(SP, (0, 0)), (0, 0));
}

/// Updates the hints after an incomplete sample of which `bytes` were copied.
fn incomplete(hints: &mut CopyHints<Kept>, extra_stack: &ExtraStack<'_>) {
    hints.update(7, SP, extra_stack, Mark::PageAbsent, read_range(SP + 0x40));
}

#[test]
fn absent_pages_are_crossed_some_times_before_giving_up() {
    let mut hints = CopyHints::new(Kept::default(), REACH, true);
    let (nothing, bytes) = (ExtraStack::default(), vec![0; 0x2000]);
    incomplete(&mut hints, &copied(&bytes));
    let everything = |hints: &CopyHints<Kept>| {
        let words = hints.words.0.borrow();
        words.get(&(9 * GROUP + 3)).copied() == Some(1)
    };
    assert!(everything(&hints), "more absent pages in a row than are skipped for unknown threads");
    assert_eq!(published(&hints, 9), (9, ABOVE_ALL_STACKS, [0, 0]));
    for _ in 0..EVERYTHING_SAMPLES {
        incomplete(&mut hints, &copied(&bytes));
        incomplete(&mut hints, &nothing);
    }
    assert!(everything(&hints), "samples without room in the ring do not count");
    incomplete(&mut hints, &copied(&bytes));
    assert!(!everything(&hints));
    assert_eq!(published(&hints, 9).1, ABOVE_ALL_STACKS, "only the near part from now on");
    // A stack with a known top is copied across all absent pages.
    hints.update(7, SP, &copied(&bytes), Mark::None, read_range(SP + 0x6000));
    assert_eq!(published(&hints, 9), (9, SP + 0x6000, [0, 0]));
    incomplete(&mut hints, &copied(&bytes));
    assert_eq!(published(&hints, 9).0, 0, "a page of it was absent");
}

#[test]
fn words_taken_by_another_thread_are_set_again() {
    let mut hints = CopyHints::new(Kept::default(), REACH, true);
    let (short, long) = (vec![0; 0x40], vec![0; 0x8000]);
    hints.update(7, SP, &copied(&long), Mark::None, read_range(SP + 0x40));
    hints.words.set(9 * GROUP, 0);
    hints.update(7, SP, &copied(&short), Mark::None, read_range(SP + 0x40));
    assert_eq!(published(&hints, 9).0, 0, "no more was copied than it takes");
    hints.update(7, SP, &copied(&long), Mark::None, read_range(SP + 0x40));
    assert_eq!(published(&hints, 9), (9, SP + 0x40, [0, 0]));
}

#[test]
fn accepting_a_thread_keeps_the_words_of_another_one() {
    let mut hints = CopyHints::new(Kept::default(), REACH, true);
    let bytes = vec![0; 0x2000];
    hints.reject_thread(9 + HINT_SLOTS as u32, 0);
    incomplete(&mut hints, &copied(&bytes));
    assert_eq!(hints.words.get(9 * GROUP + 3), 1, "across absent pages");
    hints.accept_all();
    assert_eq!(hints.words.get(9 * GROUP + 3), 1);
}

#[test]
fn stack_beyond_the_limit_is_retried_after_many_samples() {
    let mut hints = CopyHints::new(Kept::default(), REACH, true);
    let (all, near) = (vec![0; REACH as usize], vec![0; 0x8000]);
    hints.update(7, SP, &copied(&all), Mark::StackTruncated, read_range(SP + REACH));
    assert_eq!(published(&hints, 9), (9, ABOVE_ALL_STACKS, [0, 0]));
    hints.update(7, SP, &ExtraStack::default(), Mark::StackTruncated, read_range(SP + 0x40));
    assert_eq!(published(&hints, 9).1, ABOVE_ALL_STACKS, "the ring had no room");
    for _ in 1..RETRY_SAMPLES {
        hints.update(7, SP, &copied(&near), Mark::StackTruncated, read_range(SP + 0x40));
    }
    assert_eq!(published(&hints, 9).1, ABOVE_ALL_STACKS);
    hints.update(7, SP, &copied(&near), Mark::StackTruncated, read_range(SP + 0x40));
    assert_eq!(published(&hints, 9).0, 0, "it may be less deep by now");
}

#[test]
fn ignored_thread_is_published_and_forgotten() {
    let mut hints = CopyHints::new(Kept::default(), REACH, true);
    hints.ignore_thread(7, 9);
    assert_eq!(published(&hints, 9), (9, 0, [0, 0]));
    // It has executed the command, and is followed from now on.
    hints.update(7, SP, &ExtraStack::default(), Mark::StackTruncated, read_range(SP + 0x40));
    assert_eq!(published(&hints, 9).0, 0);
    hints.ignore_thread(7, 9);
    hints.forget(7);
    assert_eq!(published(&hints, 9).0, 0);
    assert_eq!(word_count(3), read_word(3) + GROUP - 1);
}

#[test]
fn dropped_threads_are_unpublished() {
    let mut hints = CopyHints::new(Kept::default(), REACH, true);
    for tid in 0..=THREADS_MAX as u32 {
        hints.ignore_thread(tid + 1, tid + 1);
    }
    let words = hints.words.0.borrow();
    let published: Vec<_> = words.iter().filter(|(_, word)| **word != 0).collect();
    let last = THREADS_MAX as u64 + 1;
    assert_eq!(published, [(&(last as usize % HINT_SLOTS * GROUP), &last)], "of the last one only");
}

#[test]
fn samples_of_rejected_threads_are_dropped_until_they_are_accepted() {
    let mut hints = CopyHints::new(Kept::default(), REACH, true);
    let is_dropped = |hints: &CopyHints<Kept>, id: u32| {
        let words = hints.words.0.borrow();
        let first = id as usize % HINT_SLOTS * GROUP;
        let word = |at| words.get(&(first + at)).copied().unwrap_or(0);
        word(0) == u64::from(id) && word(3) != 0
    };
    for tid in [7, 8] {
        hints.reject_thread(tid, 0);
        assert!(is_dropped(&hints, tid));
    }
    hints.accept_thread(7);
    assert!(!is_dropped(&hints, 7) && is_dropped(&hints, 8));
    hints.reject_thread(7, 0);
    hints.forget(7);
    assert!(!is_dropped(&hints, 7), "another thread may get its id");
    hints.reject_thread(7, 0);
    hints.accept_all();
    assert!(!is_dropped(&hints, 7) && !is_dropped(&hints, 8));
    hints.renew(5 * REJECTION_NS);
    hints.reject_thread(7, 0);
    hints.renew(6 * REJECTION_NS - 1);
    assert!(is_dropped(&hints, 7));
    hints.renew(6 * REJECTION_NS);
    assert!(!is_dropped(&hints, 7), "the thread may have exited before its last sample");
    assert_eq!(published(&hints, 7), (7, 0, [0, 0]), "nothing is copied of it");
    hints.accept_thread(7);
    assert_eq!(published(&hints, 7).0, 0);
    // The id of a released task, and that of tasks in other namespaces.
    for tid in [u32::MAX, 0] {
        hints.reject_thread(tid, 0);
        assert!(!is_dropped(&hints, tid & ((1 << THREAD_BITS) - 1)));
    }
}

#[test]
fn no_sample_is_dropped_by_an_id_of_another_namespace() {
    let mut hints = CopyHints::new(Kept::default(), REACH, false);
    hints.reject_thread(7, 0);
    assert!(hints.words.0.borrow().is_empty(), "the id 7 is that of another thread");
    hints.reject_thread(7, 9);
    assert_eq!(published(&hints, 9), (9, 0, [0, 0]));
    assert_eq!(hints.words.0.borrow().get(&(9 * GROUP + 3)), Some(&0));
}
