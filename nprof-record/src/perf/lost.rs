//! Records lost in a ring that several events share. Pure.
//!
//! The kernel reports a loss once there is space again, with the first event written afterwards;
//! the count covers all events of the ring. Since Linux 6.0 each event counts its own lost records
//! (PERF_FORMAT_LOST). Before, all are attributed to the first event of the ring.

use crate::perf::record::SampleId;

/// Losses that were reported by records and are not yet written to the stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LostTracker {
    /// The id of the last record that reported a loss, and the sum of all since [`Self::take`].
    noted: Option<(SampleId, u64)>,
    /// Stack chunks lost in total, and how many of them are part of counts passed to
    /// [`Self::samples`].
    chunks: u64,
    chunks_reported: u64,
}

impl LostTracker {
    /// Adds a loss that a record reported.
    pub(super) fn note(&mut self, sample_id: SampleId, count: u64) {
        let before = self.noted.map_or(0, |(_, count)| count);
        self.noted = Some((sample_id, count.saturating_add(before)));
    }

    /// Removes and returns the losses noted so far. None if there are none.
    pub(super) fn take(&mut self) -> Option<(SampleId, u64)> {
        self.noted.take()
    }

    /// Returns how many of `count` lost records were samples, if `chunks` stack chunks were lost in
    /// total. The kernel may not have reported the latest of these chunks yet.
    pub(super) fn samples(&mut self, count: u64, chunks: u64) -> u64 {
        self.chunks = self.chunks.max(chunks);
        let lost_chunks = count.min(self.chunks - self.chunks_reported);
        self.chunks_reported += lost_chunks;
        count - lost_chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noted_losses_add_up() {
        let mut tracker = LostTracker::default();
        assert_eq!(tracker.take(), None);
        tracker.note(SampleId { time: 1, ..SampleId::default() }, 3);
        tracker.note(SampleId { time: 2, ..SampleId::default() }, 4);
        assert_eq!(tracker.take(), Some((SampleId { time: 2, ..SampleId::default() }, 7)));
        assert_eq!(tracker.take(), None);
    }

    #[test]
    fn lost_chunks_do_not_count_as_samples() {
        let mut tracker = LostTracker::default();
        assert_eq!(tracker.samples(5, 2), 3);
        assert_eq!(tracker.samples(5, 2), 5);
        // Lost after the record was written: the next one reports them.
        assert_eq!(tracker.samples(1, 6), 0);
        assert_eq!(tracker.samples(4, 6), 1);
        assert_eq!(tracker.samples(4, 0), 4, "numbers do not shrink");
    }
}
