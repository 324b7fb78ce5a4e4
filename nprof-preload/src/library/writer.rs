//! Writes records into the ring; `protocol::layout` describes the algorithm.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::compiler_fence;

use super::process::{self, Ring};
use super::thread::Thread;
use super::unfinished::{Caller, LEVELS, Reserved};
use super::{arch, clock, sys};
use crate::protocol::{ALIGNMENT, Kind, RecordHeader};

/// The time for which a thread waits for room: then the recorder is stopped, or a thread that reserved a record never
/// completes it, and the program must go on.
const MAXIMUM_WAIT_NS: u64 = 10_000_000_000;

/// The shortest time between two calls that wake the recorder for room. If records always fill the ring, it drains
/// anyway, and a call each millisecond would take a quarter of its time.
const WAKE_INTERVAL_NS: u64 = 4_000_000;

/// The distance to the part of the ring that a record makes the processor fetch. The recorder has read that part last:
/// from the cache of another processor it takes 0.04 to 0.2 us, in which several records are written.
const AHEAD_BYTES: u64 = 512;

/// A reserved record.
pub(super) struct Slot<'a> {
    thread: &'a Thread,
    /// The number of records of the thread that were unfinished before.
    level: usize,
    record: *mut u8,
    commit: u64,
    bytes: u64,
}

/// The records that may use the last part of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Frees, without which a block looks live forever: small, and at most one for each allocation.
    Vital,
    /// Others: an eighth of the ring stays free of them.
    Ordinary,
}

/// A place in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// The bytes of padding before the record, to the end of the data area.
    padding: u64,
    /// The head after the record.
    end: u64,
}

/// Returns the place of a record of `bytes` at `head`, a multiple of the alignment; None if it has no room.
fn place(head: u64, tail: u64, bytes: u64, data_bytes: u64, reserve: u64) -> Option<Place> {
    let to_end = data_bytes - (head & (data_bytes - 1));
    let padding = if bytes > to_end { to_end } else { 0 };
    let end = head + padding + bytes;
    (end.wrapping_sub(tail) <= data_bytes - reserve).then_some(Place { padding, end })
}

/// Reserves a record with `content` bytes after its header; None if the ring is full.
///
/// A call would return the slot through memory: 12 of the 157 ns that an exact recording adds to a pair of malloc(3)
/// and free(3).
#[inline(always)]
pub(super) fn reserve<'a>(
    thread: &'a Thread,
    ring: &Ring,
    caller: Caller,
    content: usize,
    class: Class,
) -> Option<Slot<'a>> {
    let header = ring.header();
    // A signal handler may have interrupted a hook of the thread that has reserved a record: the reader cannot make
    // room before that hook completes it. The handler's records do not wait, and may use the whole ring.
    let level = abandon_records(thread, ring, caller);
    let nested = level > 0;
    let unfinished = thread.unfinished.get(level)?;
    let mut may_wait = ring.wait && !nested;
    let mut waiting_since_ns = None;
    let bytes = (size_of::<RecordHeader>() + content).next_multiple_of(ALIGNMENT as usize) as u64;
    let reserve = if class == Class::Vital || nested { 0 } else { ring.data_bytes / 8 };
    loop {
        // Before the tail, so that `wait` notices room that the recorder makes after the check.
        let room = header.room.0.load(Acquire);
        // Relaxed: only the reservation counts, other writers' records are not read.
        let head = header.head.0.load(Relaxed);
        // Acquire: pairs with the reader's store after its copy, so that the copy cannot see this record.
        let tail = header.tail.0.load(Acquire);
        let Some(place) = place(head, tail, bytes, ring.data_bytes, reserve) else {
            // The head is a little old if other threads have moved it; then the tail may be new. Looks again.
            if head != header.head.0.load(Relaxed) {
                continue;
            }
            if !may_wait {
                process::probe_recorder(clock::now_ns(), process::PROBE_INTERVAL_NS);
                return None;
            }
            // The recorder may sleep: it expects records at the rate of those before.
            process::probe_recorder(clock::now_ns(), WAKE_INTERVAL_NS);
            if wait_for_room(ring, room, tail) {
                waiting_since_ns = None;
                continue;
            }
            // Each signal ends a wait: their number is no measure.
            let now_ns = clock::now_ns();
            process::probe_recorder(now_ns, process::PROBE_INTERVAL_NS / 10);
            let since_ns = *waiting_since_ns.get_or_insert(now_ns);
            may_wait = !process::is_quiet() && now_ns.wrapping_sub(since_ns) < MAXIMUM_WAIT_NS;
            if !may_wait {
                process::stop_waiting();
            }
            continue;
        };
        let position = head + place.padding;
        let commit = ring.key.wrapping_add(position);
        let (record, tid) = (ring.data(position), thread.tid.load(Relaxed));
        unfinished.begin(caller);
        compiler_fence(SeqCst);
        // Before the reservation: a handler between the two must not wait.
        thread.writing.store(level as u32 + 1, Relaxed);
        compiler_fence(SeqCst);
        // Again: a handler before that store has written its own record at this level.
        unfinished.begin(caller);
        compiler_fence(SeqCst);
        if header.head.0.compare_exchange_weak(head, place.end, Relaxed, Relaxed).is_err() {
            thread.writing.store(level as u32, Relaxed);
            continue;
        }
        // At once: if a handler leaves the hook or ends the thread before, the recorder waits seconds for the record.
        let padding = place.padding as u32;
        unfinished.reserved(Reserved { commit, bytes: bytes as u32, padding });
        // The first access to a page of the ring takes long.
        compiler_fence(SeqCst);
        announce(record, commit, bytes, tid);
        arch::expect_write(ring.data(place.end + AHEAD_BYTES));
        if place.padding > 0 {
            complete(ring.data(head), ring.key.wrapping_add(head), place.padding, Kind::Padding);
        }
        return Some(Slot { thread, level, record, commit, bytes });
    }
}

/// Completes the records of the thread that their hooks left, without content. Returns the number of unfinished
/// records that remain: those of hooks that the caller has interrupted.
fn abandon_records(thread: &Thread, ring: &Ring, caller: Caller) -> usize {
    let mut level = (thread.writing.load(Relaxed) as usize).min(LEVELS);
    while let Some(unfinished) = level.checked_sub(1).and_then(|last| thread.unfinished.get(last)) {
        if !unfinished.is_abandoned(caller) {
            break;
        }
        if let Some(record) = unfinished.record() {
            abandon(ring, record);
        }
        level -= 1;
        thread.writing.store(level as u32, Relaxed);
    }
    level
}

#[cold]
fn abandon(ring: &Ring, record: Reserved) {
    let position = record.commit.wrapping_sub(ring.key);
    let start = position.wrapping_sub(u64::from(record.padding));
    // A forked child does not have the ring of the record any more, and has another key.
    if !position.is_multiple_of(ALIGNMENT) {
        return;
    }
    let complete_missing = |position: u64, bytes: u32, kind| {
        let commit = ring.key.wrapping_add(position);
        // SAFETY: an aligned position leads to a place in the data area that has room for a header.
        let header = unsafe { &*ring.data(position).cast::<RecordHeader>() };
        let is_complete = header.commit.load(Acquire) == commit;
        // After the commit word: of a record that was complete, and was read and overwritten by now, the tail is
        // beyond it.
        let tail = ring.header().tail.0.load(Acquire);
        let is_missing = !is_complete && position.wrapping_sub(tail) < ring.data_bytes;
        if is_missing {
            complete(ring.data(position), commit, u64::from(bytes), kind);
        }
        is_missing
    };
    if record.padding > 0 {
        complete_missing(start, record.padding, Kind::Padding);
    }
    if complete_missing(position, record.bytes, Kind::Abandoned) {
        ring.header().lost_others.fetch_add(1, Relaxed);
    }
}

/// Waits until the recorder makes room, a signal, or a tenth of a second; false if there is no room.
#[cold]
fn wait_for_room(ring: &Ring, room: u32, tail: u64) -> bool {
    let header = ring.header();
    // SeqCst, here and in the reader: either this thread sees the new tail, or the reader sees this thread waiting
    // and changes `room`.
    header.waiters.fetch_add(1, SeqCst);
    if header.tail.0.load(SeqCst) == tail {
        sys::wait(&header.room.0, room);
    }
    header.waiters.fetch_sub(1, SeqCst);
    header.tail.0.load(Acquire) != tail || header.room.0.load(Acquire) != room
}

impl Slot<'_> {
    /// Writes words of the content, from the word `first` on.
    pub(super) fn write(&self, first: usize, words: &[u64]) {
        let start = size_of::<RecordHeader>() + 8 * first;
        debug_assert!(start + size_of_val(words) <= self.bytes as usize);
        for (index, &word) in words.iter().enumerate() {
            // SAFETY: the record was reserved with room for the content, and no other thread accesses it.
            unsafe { self.record.add(start + 8 * index).cast::<u64>().write(word) };
        }
    }

    /// Returns the address of a word of the content.
    pub(super) fn word(&self, index: usize) -> *mut u8 {
        // SAFETY: as in `write`.
        unsafe { self.record.add(size_of::<RecordHeader>() + 8 * index) }
    }

    /// Completes the record.
    pub(super) fn commit(self, kind: Kind) {
        complete(self.record, self.commit, self.bytes, kind);
        self.thread.writing.store(self.level as u32, Relaxed);
    }
}

/// Writes the header of a record that follows: the reader skips it if its thread ends before it is complete.
fn announce(record: *mut u8, commit: u64, bytes: u64, tid: u32) {
    // SAFETY: as in `complete`.
    let header = unsafe { &*record.cast::<RecordHeader>() };
    header.bytes.store(bytes as u32, Relaxed);
    header.kind.store(tid | RecordHeader::WRITER, Relaxed);
    // Release: the reader sees size and thread with it.
    header.commit.store(!commit, Release);
}

/// Writes the header of a reserved record, with its commit word last.
fn complete(record: *mut u8, commit: u64, bytes: u64, kind: Kind) {
    // SAFETY: a record is aligned to 16 bytes and has room for a header.
    let header = unsafe { &*record.cast::<RecordHeader>() };
    header.bytes.store(bytes as u32, Relaxed);
    header.kind.store(kind as u32, Relaxed);
    // Release: the reader, which loads it with acquire order, then sees the whole record.
    header.commit.store(commit, Release);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_are_contiguous_and_never_overtake_the_reader(
            steps in proptest::collection::vec((1..40_u64, 0..3_u64), 1..400),
        ) {
            let data_bytes = 1024;
            let (mut head, mut tail) = (0_u64, 0_u64);
            let mut ends = std::collections::VecDeque::new();
            for (units, reads) in steps {
                let bytes = units * ALIGNMENT;
                if let Some(place) = place(head, tail, bytes, data_bytes, 128) {
                    let start = (head + place.padding) % data_bytes;
                    prop_assert!(start + bytes <= data_bytes);
                    prop_assert!(place.end - tail <= data_bytes - 128);
                    prop_assert_eq!(place.end, head + place.padding + bytes);
                    head = place.end;
                    ends.push_back(head);
                } else {
                    // Less than the record and its padding is free.
                    prop_assert!(head - tail + 2 * bytes > data_bytes - 128);
                }
                for _ in 0..reads {
                    tail = ends.pop_front().unwrap_or(tail);
                }
            }
        }
    }
}
