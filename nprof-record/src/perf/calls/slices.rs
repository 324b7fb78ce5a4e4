//! Reads the sums of threads slice by slice, from a map that programs go on changing.

use std::io;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::perf::calls::data::{CallKey, Part};
use crate::sys::BpfMap;

/// The sums of a map that were read before.
#[derive(Debug, Default)]
pub(super) struct SliceReader {
    /// The sums that were returned.
    written: FxHashMap<CallKey, u64>,
    /// Those of threads that had ended when they were read: nothing changes them any more.
    ended: FxHashSet<CallKey>,
}

/// What was added to a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Added {
    pub(super) key: CallKey,
    /// The thread and the sum.
    pub(super) part: Part,
    /// True if the thread lives.
    pub(super) is_living: bool,
}

impl SliceReader {
    /// Returns what was added to the sums of a map and was not returned before, in the order of threads, and
    /// removes the sums of threads that have ended. `read` returns the part of a sum up to the end of the
    /// slice; None if it was copied while the program changed it.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(super) fn take(
        &mut self,
        map: &BpfMap,
        read: impl Fn(&[u8]) -> Option<Part>,
        lives: impl Fn(u32, CallKey) -> bool,
    ) -> io::Result<Vec<Added>> {
        let Self { written, ended } = self;
        let (mut all, mut unneeded, mut torn) = (Vec::new(), Vec::new(), Vec::new());
        let mut take = |key: CallKey, part: Part| {
            let known = written.entry(key).or_default();
            let sum = part.sum.saturating_sub(*known);
            *known += sum;
            let is_living = lives(part.tid, key);
            // A thread that has ended since the last time may have events after the copy, or in the
            // slice that goes on.
            if !is_living && !ended.insert(key) && sum == 0 {
                unneeded.push(key);
            }
            if sum > 0 {
                all.push(Added { key, part: Part { sum, ..part }, is_living });
            }
        };
        map.visit(|key, value| {
            let key = CallKey::of(key.try_into().map_or(0, u64::from_ne_bytes));
            match read(value) {
                Some(part) => take(key, part),
                None => torn.push(key),
            }
        })?;
        // Copied while a slice began, which takes nanoseconds.
        for key in torn {
            if let Some(part) = (0..1000).find_map(|_| read(&map.get(&key.bytes())?)) {
                take(key, part);
            }
        }
        for key in unneeded {
            map.remove(&key.bytes());
            written.remove(&key);
            ended.remove(&key);
        }
        all.sort_unstable_by_key(|added| (added.key.serial, added.key.point));
        Ok(all)
    }
}
