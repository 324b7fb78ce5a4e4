//! The data of the programs in `bpf/calls.bpf.c`, in the layout of its structures. Pure.

/// The length of a slice in ns: sums of calls by function, thread and slice are exact.
pub(crate) const SLICE_NS: u64 = 1_000_000_000;

/// The words that the recorder shares with the programs, by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// The start of the first slice in ns.
    Begin,
    /// 1 if all threads are followed.
    Everyone,
    /// The smallest number of calls of which one is sampled.
    Floor,
    /// One call is sampled of the calls of a slice divided by 2^`Shift`.
    Shift,
    /// The number of threads for which there was no room.
    MissedThreads = 5,
    /// The number of CPUs.
    Cpus,
    /// The number of samples so far.
    Sampled,
    /// How often there was no room for a thread with routines, a path of them, or the events of both.
    MissedRoutines = 9,
    /// How often the event that is counted by routine could not be read.
    Unreadable,
    /// 1 if events are not added to routines any more.
    Stopped,
    /// The number of samples of all slices but this.
    SampledBefore,
}

/// The number of those words.
pub(crate) const SETTINGS: usize = 13;

/// Bytes of `struct counter`.
const COUNTER_BYTES: usize = 88;

/// A call that is sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// The function and the thread.
    pub(crate) key: CallKey,
    /// The calls of the slice since the last sample, with this one.
    pub(crate) calls: u64,
    /// The number of the slice.
    pub(crate) slice: u64,
}

/// A function and a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    /// The number of the function's place in the list.
    pub(crate) point: u32,
    /// The number of the thread: unlike ids of threads, none is used twice. 0 for all threads
    /// without a counter.
    pub(crate) serial: u32,
}

impl CallKey {
    /// Returns the key in the map.
    pub(crate) fn bytes(self) -> [u8; 8] {
        (u64::from(self.serial) << 32 | u64::from(self.point)).to_ne_bytes()
    }

    /// Returns the key of a word.
    pub(crate) fn of(word: u64) -> Self {
        Self { point: word as u32, serial: (word >> 32) as u32 }
    }
}

impl Call {
    /// Reads `struct call`. None if it is too short.
    pub(crate) fn read(raw: &[u8]) -> Option<Self> {
        let mut words = words(raw);
        let key = CallKey::of(words.next()?);
        Some(Self { key, calls: words.next()?, slice: words.next()? })
    }
}

/// The calls of a function by a thread after the last sample of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallRest {
    pub(crate) key: CallKey,
    /// The number of calls.
    pub(crate) calls: u64,
    /// The number of the slice.
    pub(crate) slice: u64,
    /// True if the thread lived at the end of the slice.
    pub(crate) is_living: bool,
}

/// The events of a thread in a slice while it was on a path of routines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoutineCount {
    /// The places of the routines, that in which the events occurred first, its callers after it.
    pub(crate) points: Vec<u32>,
    pub(crate) events: u64,
    /// True if the thread lived at the end of the slice.
    pub(crate) is_living: bool,
}

/// The part of a sum up to the end of a slice, and its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) tid: u32,
    pub(crate) pid: u32,
    pub(crate) sum: u64,
}

/// `struct charge` as it was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    total: u64,
    before: u64,
    tid: u32,
    pid: u32,
    began: u64,
}

impl Charge {
    /// Reads a copy. None if it is too short, or the copy was made while a slice ended.
    pub(crate) fn read(raw: &[u8]) -> Option<Self> {
        let mut words = words(raw);
        let mut next = || words.next();
        let (ended, total, before) = (next()?, next()?, next()?);
        let (ids, began) = (next()?, next()?);
        let (tid, pid) = (ids as u32, (ids >> 32) as u32);
        (ended == began).then_some(Self { total, before, tid, pid, began })
    }

    /// Returns the events up to and with `slice`, which must have ended.
    pub(crate) fn part(&self, slice: u64) -> Part {
        let sum = if self.began > slice { self.before } else { self.total };
        Part { tid: self.tid, pid: self.pid, sum }
    }
}

/// A function that is not counted any more, because it was called too often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenOff {
    /// The number of its place.
    pub(crate) point: u32,
    /// The calls per second.
    pub(crate) rate: u64,
}

/// `struct counter` as it was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    ended: u64,
    total: u64,
    before: u64,
    sampled: u64,
    rests: u64,
    tid: u32,
    pid: u32,
    began: u64,
}

impl Counter {
    /// Reads a copy. None if it is too short, or the copy was made while a slice ended.
    pub(crate) fn read(raw: &[u8]) -> Option<Self> {
        let mut words = words(raw.get(..COUNTER_BYTES)?);
        let mut next = || words.next();
        let (ended, total, before) = (next()?, next()?, next()?);
        let (sampled, rests) = (next()?, next()?);
        let (_left, _point, _last) = (next()?, next()?, next()?);
        let (ids, _generation, began) = (next()?, next()?, next()?);
        let (tid, pid) = (ids as u32, (ids >> 32) as u32);
        let counter = Self { ended, total, before, sampled, rests, tid, pid, began };
        (ended == began).then_some(counter)
    }

    /// Returns the calls after the last sample of each slice, up to and with `slice`, which must have
    /// ended.
    pub(crate) fn part(&self, slice: u64) -> Part {
        let rest = self.total.saturating_sub(self.sampled.max(self.before));
        let sum = self.rests + if self.began > slice { 0 } else { rest };
        Part { tid: self.tid, pid: self.pid, sum }
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + use<'_> {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn call_is_read_in_the_layout_of_the_program() {
        let key = CallKey { point: 5, serial: 7 };
        let raw = bytes(&[7 << 32 | 5, 100, 3]);
        assert_eq!(Call::read(&raw), Some(Call { key, calls: 100, slice: 3 }));
        assert_eq!(Call::read(&raw[..16]), None);
        assert_eq!(key.bytes()[..], raw[..8]);
    }

    #[test]
    fn rest_of_a_slice_is_the_calls_after_its_last_sample() {
        // 50 calls before slice 4, a sample at 70, 90 in all; 8 calls left over from earlier slices.
        let counter = |began| {
            let words = [4, 90, 50, 70, 8, 0, 0, 0, 9 | 5 << 32, 1, began];
            Counter::read(&bytes(&words))
        };
        let whole = counter(4).expect("a whole copy");
        let part = |sum| Part { tid: 9, pid: 5, sum };
        assert_eq!([3, 4, 9].map(|slice| whole.part(slice)), [8, 28, 28].map(part));
        assert_eq!(counter(5), None, "a slice has ended during the copy");
        assert_eq!(Counter::read(&[0; COUNTER_BYTES - 1]), None);
        let unsampled = Counter { sampled: 30, ..whole };
        assert_eq!(unsampled.part(4), part(48), "the last sample was in an earlier slice");
    }

    #[test]
    fn events_of_a_slice_end_with_it() {
        // 50 events before slice 4, 90 in all.
        let charge = |began| Charge::read(&bytes(&[4, 90, 50, 9 | 5 << 32, began]));
        let whole = charge(4).expect("a whole copy");
        let part = |sum| Part { tid: 9, pid: 5, sum };
        assert_eq!([3, 4, 9].map(|slice| whole.part(slice)), [50, 90, 90].map(part));
        assert_eq!(charge(5), None, "a slice has ended during the copy");
        assert_eq!(Charge::read(&[0; 39]), None);
    }
}
