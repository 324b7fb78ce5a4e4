//! Puts records in order of time. Pure.
//!
//! perf writes the rings of the CPUs one after the other, and a mark after each round. All records of a
//! round are earlier than those of the round after the next.

/// Most records that wait for their turn. Without marks, as in compressed files, records that are
/// farther apart than this come late.
const MAX_WAITING: usize = 1 << 19;

/// Records that wait for their turn.
#[derive(Debug)]
pub(super) struct Order<T> {
    /// Time, number, record.
    waiting: Vec<(u64, u64, T)>,
    next_number: u64,
    /// The latest time of this round and of those before it.
    latest: u64,
    latest_before: u64,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { waiting: Vec::new(), next_number: 0, latest: 0, latest_before: 0 }
    }
}

impl<T> Order<T> {
    /// Adds a record; returns the records that no later one can precede.
    pub(super) fn add(&mut self, time: u64, record: T) -> Vec<(u64, T)> {
        self.waiting.push((time, self.next_number, record));
        self.next_number += 1;
        self.latest = self.latest.max(time);
        if self.waiting.len() < MAX_WAITING {
            return Vec::new();
        }
        // The later half may still get records before its own.
        self.sort();
        let rest = self.waiting.split_off(MAX_WAITING / 2);
        ready(std::mem::replace(&mut self.waiting, rest))
    }

    /// Ends a round; returns the records that no later one can precede.
    pub(super) fn finish_round(&mut self) -> Vec<(u64, T)> {
        self.sort();
        let count = self.waiting.partition_point(|(time, ..)| *time <= self.latest_before);
        self.latest_before = self.latest;
        let rest = self.waiting.split_off(count);
        ready(std::mem::replace(&mut self.waiting, rest))
    }

    /// Returns all records.
    pub(super) fn finish(&mut self) -> Vec<(u64, T)> {
        self.sort();
        ready(std::mem::take(&mut self.waiting))
    }

    fn sort(&mut self) {
        // Records of one time stay in their order.
        self.waiting.sort_unstable_by_key(|(time, number, _)| (*time, *number));
    }
}

fn ready<T>(records: Vec<(u64, u64, T)>) -> Vec<(u64, T)> {
    records.into_iter().map(|(time, _, record)| (time, record)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_release_the_records_that_no_later_round_precedes() {
        let mut order = Order::default();
        for time in [30, 10, 20] {
            assert!(order.add(time, time).is_empty());
        }
        assert!(order.finish_round().is_empty());
        for time in [25, 50] {
            order.add(time, time);
        }
        let times = |records: Vec<(u64, u64)>| records.into_iter().map(|(time, _)| time);
        assert!(times(order.finish_round()).eq([10, 20, 25, 30]));
        assert!(times(order.finish()).eq([50]));
    }
}
