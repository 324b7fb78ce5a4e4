//! Puts records in order of time. Pure.
//!
//! perf writes the rings of the CPUs one after the other, and a mark after each round. All records of a
//! round are earlier than those of the round after the next.

/// Most records that wait for their turn. Without marks, as in compressed files, records that are
/// farther apart than this come late.
const MAX_WAITING: usize = 1 << 19;

/// Most bytes of them: a copy of a stack has up to 64 KiB.
const MAX_WAITING_BYTES: usize = 256 << 20;

/// Records that wait for their turn.
#[derive(Debug)]
pub(super) struct Order<T> {
    /// Time, number, memory in bytes, record.
    waiting: Vec<(u64, u64, usize, T)>,
    /// The memory of all.
    bytes: usize,
    next_number: u64,
    /// The latest time of this round and of those before it.
    latest: u64,
    latest_before: u64,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { waiting: Vec::new(), bytes: 0, next_number: 0, latest: 0, latest_before: 0 }
    }
}

impl<T> Order<T> {
    /// Adds a record with its memory in bytes; returns the records that no later one can precede.
    pub(super) fn add(&mut self, time: u64, bytes: usize, record: T) -> Vec<(u64, T)> {
        self.waiting.push((time, self.next_number, bytes, record));
        self.bytes += bytes;
        self.next_number += 1;
        self.latest = self.latest.max(time);
        if self.waiting.len() < MAX_WAITING && self.bytes < MAX_WAITING_BYTES {
            return Vec::new();
        }
        // The later half may still get records before its own.
        self.sort();
        let rest = self.waiting.split_off(self.waiting.len().div_ceil(2));
        self.ready(rest)
    }

    /// Ends a round; returns the records that no later one can precede.
    pub(super) fn finish_round(&mut self) -> Vec<(u64, T)> {
        self.sort();
        let count = self.waiting.partition_point(|(time, ..)| *time <= self.latest_before);
        self.latest_before = self.latest;
        let rest = self.waiting.split_off(count);
        self.ready(rest)
    }

    /// Returns all records.
    pub(super) fn finish(&mut self) -> Vec<(u64, T)> {
        self.sort();
        self.ready(Vec::new())
    }

    fn sort(&mut self) {
        // Records of one time stay in their order.
        self.waiting.sort_unstable_by_key(|(time, number, ..)| (*time, *number));
    }

    /// Returns the waiting records but for the rest.
    fn ready(&mut self, rest: Vec<(u64, u64, usize, T)>) -> Vec<(u64, T)> {
        let ready = std::mem::replace(&mut self.waiting, rest);
        self.bytes -= ready.iter().map(|(_, _, bytes, _)| bytes).sum::<usize>();
        ready.into_iter().map(|(time, _, _, record)| (time, record)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_release_the_records_that_no_later_round_precedes() {
        let mut order = Order::default();
        for time in [30, 10, 20] {
            assert!(order.add(time, 8, time).is_empty());
        }
        assert!(order.finish_round().is_empty());
        for time in [25, 50] {
            order.add(time, 8, time);
        }
        let times = |records: Vec<(u64, u64)>| records.into_iter().map(|(time, _)| time);
        assert!(times(order.finish_round()).eq([10, 20, 25, 30]));
        assert!(times(order.finish()).eq([50]));
    }

    #[test]
    fn large_records_are_released_before_they_take_too_much_memory() {
        let mut order = Order::default();
        let bytes = MAX_WAITING_BYTES / 4;
        for time in [40, 10, 30] {
            assert!(order.add(time, bytes, time).is_empty());
        }
        let released: Vec<u64> =
            order.add(20, bytes, 20).into_iter().map(|(time, _)| time).collect();
        assert_eq!(released, [10, 20]);
        assert_eq!(order.bytes, 2 * bytes);
        assert!(order.add(50, bytes, 50).is_empty());
    }
}
