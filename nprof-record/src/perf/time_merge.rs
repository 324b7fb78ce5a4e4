//! Time order across rings: which ring has the oldest record, and which records must wait.
//!
//! The kernel takes the time stamp of a record before its place in the ring, so an older record may
//! still overtake those that are in the rings. Each drain therefore reads the clock first,
//! then the rings, and hands over only records that are older than the clock by the longest time it
//! takes to write one. A record that comes even later is handed over as well.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The time of the oldest record of each ring.
#[derive(Debug, Default)]
pub(crate) struct TimeMerge {
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
}

impl TimeMerge {
    /// Adds a ring; its oldest record is from `time_ns`.
    pub(crate) fn push(&mut self, time_ns: u64, ring: usize) {
        self.waiting.push(Reverse((time_ns, ring)));
    }

    /// Returns the time of the oldest record. None if no ring waits.
    pub(crate) fn next_timestamp(&self) -> Option<u64> {
        self.waiting.peek().map(|Reverse((time_ns, _))| *time_ns)
    }

    /// Removes and returns the ring with the oldest record. None if all are later than `limit_ns`.
    ///
    /// The caller must then take the record, and those after it as long as [`Self::continues`] returns
    /// true, and push the next one of that ring.
    pub(crate) fn pop(&mut self, limit_ns: u64) -> Option<usize> {
        let &Reverse((time_ns, ring)) = self.waiting.peek()?;
        if time_ns > limit_ns {
            return None;
        }
        self.waiting.pop();
        Some(ring)
    }

    /// Returns true if the next record of the ring that was returned last, from `time_ns`, comes before
    /// those of all other rings and is not later than `limit_ns`: the caller must then take it, too.
    #[inline]
    pub(crate) fn continues(&self, time_ns: u64, ring: usize, limit_ns: u64) -> bool {
        let is_oldest = self.waiting.peek().is_none_or(|Reverse(next)| (time_ns, ring) < *next);
        is_oldest && time_ns <= limit_ns
    }

    /// Removes all rings, for the next drain.
    pub(crate) fn restart(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes records up to the limit from rings that hold the times of their records.
    fn drain(merge: &mut TimeMerge, rings: &mut [Vec<u64>], limit: u64) -> Vec<u64> {
        merge.restart();
        for (ring, times) in rings.iter().enumerate() {
            times.first().into_iter().for_each(|&time| merge.push(time, ring));
        }
        let mut taken = Vec::new();
        while let Some(ring) = merge.pop(limit) {
            taken.push(rings[ring].remove(0));
            while let Some(&time) = rings[ring].first() {
                if !merge.continues(time, ring, limit) {
                    merge.push(time, ring);
                    break;
                }
                taken.push(rings[ring].remove(0));
            }
        }
        taken
    }

    #[test]
    fn rings_are_merged_by_time_up_to_the_limit() {
        let mut merge = TimeMerge::default();
        let mut rings = [vec![1, 4, 9], vec![2, 3, 8], vec![]];
        assert_eq!(drain(&mut merge, &mut rings, 5), [1, 2, 3, 4]);
        assert_eq!(rings, [vec![9], vec![8], vec![]]);
        rings[2].push(6);
        assert_eq!(drain(&mut merge, &mut rings, u64::MAX), [6, 8, 9]);
    }

    #[test]
    fn rings_with_equal_times_are_merged_by_number() {
        let mut merge = TimeMerge::default();
        let mut rings = [vec![2, 2, 5], vec![1, 2, 5]];
        merge.push(2, 0);
        merge.push(1, 1);
        assert_eq!(merge.pop(9), Some(1));
        assert!(!merge.continues(2, 1, 9), "ring 0 comes first");
        assert_eq!(drain(&mut merge, &mut rings, 9), [1, 2, 2, 2, 5, 5]);
    }

    #[test]
    fn late_record_is_handed_over() {
        let mut merge = TimeMerge::default();
        let mut rings = [vec![5], vec![]];
        assert_eq!(drain(&mut merge, &mut rings, 9), [5]);
        rings[1].extend([3, 4, 6]);
        assert_eq!(drain(&mut merge, &mut rings, 9), [3, 4, 6]);
    }

    #[test]
    fn older_record_waits_after_later_one_of_its_ring() {
        let mut merge = TimeMerge::default();
        let mut rings = [vec![7, 2]];
        assert_eq!(drain(&mut merge, &mut rings, 5), [] as [u64; 0]);
        assert_eq!(drain(&mut merge, &mut rings, 7), [7, 2]);
    }
}
