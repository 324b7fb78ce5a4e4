//! Time order across rings: which ring's oldest record comes next, and which have to wait.
//!
//! A record is stamped before its place in the ring is taken, so what is in the rings at one
//! moment may still be overtaken by an older record. Each round therefore reads the clock first,
//! then the rings, and only lets go what is older than that by as much as it takes to write a
//! record. One that comes even later is not dropped, only counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The oldest record of each ring, and what was let go.
#[derive(Debug, Default)]
pub(crate) struct TimeMerge {
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    released: u64,
    late: u64,
}

impl TimeMerge {
    /// The oldest record of ring `ring` is from `time`, ns.
    pub(crate) fn push(&mut self, time: u64, ring: usize) {
        self.waiting.push(Reverse((time, ring)));
    }

    /// The ring whose oldest record comes next; `None` when all are younger than `limit`, ns.
    ///
    /// The ring's record must then be taken, and the one behind it be pushed.
    pub(crate) fn pop(&mut self, limit: u64) -> Option<usize> {
        let &Reverse((time, ring)) = self.waiting.peek()?;
        if time > limit {
            return None;
        }
        self.waiting.pop();
        self.late += u64::from(time < self.released);
        self.released = self.released.max(time);
        Some(ring)
    }

    /// Forgets what waits: the next round asks all rings again.
    pub(crate) fn restart(&mut self) {
        self.waiting.clear();
    }

    /// How many records came after younger ones had been let go.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes what may be taken from the rings, each the times of its records.
    fn round(merge: &mut TimeMerge, rings: &mut [Vec<u64>], limit: u64) -> Vec<u64> {
        merge.restart();
        for (ring, times) in rings.iter().enumerate() {
            times.first().into_iter().for_each(|&time| merge.push(time, ring));
        }
        let mut taken = Vec::new();
        while let Some(ring) = merge.pop(limit) {
            taken.push(rings[ring].remove(0));
            rings[ring].first().into_iter().for_each(|&time| merge.push(time, ring));
        }
        taken
    }

    #[test]
    fn rings_are_merged_by_time_up_to_the_limit() {
        let mut merge = TimeMerge::default();
        let mut rings = [vec![1, 4, 9], vec![2, 3, 8], vec![]];
        assert_eq!(round(&mut merge, &mut rings, 5), [1, 2, 3, 4]);
        assert_eq!(rings, [vec![9], vec![8], vec![]]);
        rings[2].push(6);
        assert_eq!(round(&mut merge, &mut rings, u64::MAX), [6, 8, 9]);
        assert_eq!(merge.late(), 0);
    }

    #[test]
    fn what_comes_late_is_taken_and_counted() {
        let mut merge = TimeMerge::default();
        let mut rings = [vec![5], vec![]];
        assert_eq!(round(&mut merge, &mut rings, 9), [5]);
        rings[1].extend([3, 4, 6]);
        assert_eq!(round(&mut merge, &mut rings, 9), [3, 4, 6]);
        assert_eq!(merge.late(), 2);
    }

    #[test]
    fn an_older_record_behind_a_younger_one_waits_with_it() {
        let mut merge = TimeMerge::default();
        let mut rings = [vec![7, 2]];
        assert_eq!(round(&mut merge, &mut rings, 5), [] as [u64; 0]);
        assert_eq!(round(&mut merge, &mut rings, 7), [7, 2]);
        assert_eq!(merge.late(), 1);
    }
}
