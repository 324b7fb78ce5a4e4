//! What was lost for want of room in a ring that several events share. Pure.
//!
//! The kernel writes a record when there is room again, on behalf of the event that comes first
//! then: how many records were lost, whosesoever they were. Since Linux 6.0 each event tells how
//! many it lost itself. Before, they are told with the first event of the ring.

use crate::perf::record::SampleId;

/// What was lost and is not accounted for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LostTracker {
    /// When a record last told of it, and how much all of them did.
    noticed: Option<(SampleId, u64)>,
    /// How many parts of stacks were lost in all, and how many of those records have told of.
    chunks: u64,
    chunks_reported: u64,
}

impl LostTracker {
    /// A record tells that so many were lost.
    pub(super) fn note(&mut self, sample_id: SampleId, count: u64) {
        let before = self.noticed.map_or(0, |(_, count)| count);
        self.noticed = Some((sample_id, count.saturating_add(before)));
    }

    /// When something was lost that is not accounted for; it is from now on.
    pub(super) fn take(&mut self) -> Option<(SampleId, u64)> {
        self.noticed.take()
    }

    /// How many of `count` lost records were samples, when `parts` parts of stacks were lost in
    /// all. No record may have told of the last parts yet.
    pub(super) fn samples(&mut self, count: u64, chunks: u64) -> u64 {
        self.chunks = self.chunks.max(chunks);
        let of_parts = count.min(self.chunks - self.chunks_reported);
        self.chunks_reported += of_parts;
        count - of_parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noticed_adds_up() {
        let mut tracker = LostTracker::default();
        assert_eq!(tracker.take(), None);
        tracker.note(SampleId { time: 1, ..SampleId::default() }, 3);
        tracker.note(SampleId { time: 2, ..SampleId::default() }, 4);
        assert_eq!(tracker.take(), Some((SampleId { time: 2, ..SampleId::default() }, 7)));
        assert_eq!(tracker.take(), None);
    }

    #[test]
    fn parts_of_stacks_are_no_samples() {
        let mut tracker = LostTracker::default();
        assert_eq!(tracker.samples(5, 2), 3);
        assert_eq!(tracker.samples(5, 2), 5);
        // Lost after the record was written: the next one tells of them.
        assert_eq!(tracker.samples(1, 6), 0);
        assert_eq!(tracker.samples(4, 6), 1);
        assert_eq!(tracker.samples(4, 0), 4, "numbers do not shrink");
    }
}
