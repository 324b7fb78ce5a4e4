//! Records lost in a ring that several events share. Pure.
//!
//! The kernel reports a loss once there is space again, with the first event written afterwards;
//! the count covers all events of the ring. Since Linux 6.0 each event counts its own lost records
//! (PERF_FORMAT_LOST). Before, all are attributed to the first event of the ring.
//!
//! A ring of all tasks also loses samples of processes that are not recorded. The kernel does not
//! report the tasks of lost samples, so their parts are estimated from the samples that were kept.

use crate::perf::record::SampleId;

/// Lost samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostSamples {
    /// Samples of the recorded processes.
    pub(crate) own: u64,
    /// Samples of other processes. If there are any, both numbers are estimates.
    pub(crate) others: u64,
}

impl LostSamples {
    /// Returns samples that all belong to the recorded processes.
    pub(crate) fn own(count: u64) -> Self {
        Self { own: count, others: 0 }
    }
}

/// The share of the recorded processes in the latest samples of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnShare {
    own: u64,
    others: u64,
}

/// Number of samples from which on older ones count for half. A full ring of 4 MiB has some 450.
const SHARE_WINDOW: u64 = 1024;

impl OwnShare {
    /// Notes a sample.
    pub(super) fn note(&mut self, is_own: bool) {
        if self.own + self.others >= SHARE_WINDOW {
            (self.own, self.others) = (self.own / 2, self.others / 2);
        }
        self.own += u64::from(is_own);
        self.others += u64::from(!is_own);
    }

    /// Divides lost samples in the proportion of those that were kept.
    pub(super) fn divide(self, count: u64) -> LostSamples {
        let all = u128::from(self.own + self.others);
        // Rounded to the nearest. Without any sample, others are not known to exist.
        let own = (u128::from(count) * u128::from(self.own) + all / 2).checked_div(all);
        let own = own.map_or(count, |own| u64::try_from(own).unwrap_or(count));
        LostSamples { own, others: count - own }
    }
}

/// Losses that were reported by records and are not yet written to the stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LostTracker {
    /// The id of the last record that reported a loss, and the sum of all since [`Self::take`].
    noted: Option<(SampleId, u64)>,
    /// Stack chunks lost in total, and how many of them are part of counts passed to
    /// [`Self::samples`].
    chunks: u64,
    chunks_reported: u64,
    /// Lost sideband records that records have reported.
    sideband: u64,
    /// All lost records of the ring that records have reported.
    total: u64,
    /// The samples that the ring kept.
    pub(super) kept: OwnShare,
}

impl LostTracker {
    /// Adds a loss that a record reported.
    pub(super) fn note(&mut self, sample_id: SampleId, count: u64) {
        let before = self.noted.map_or(0, |(_, count)| count);
        self.noted = Some((sample_id, count.saturating_add(before)));
        self.total = self.total.saturating_add(count);
    }

    /// Adds lost sideband records that a record reported.
    pub(super) fn note_sideband(&mut self, count: u64) {
        self.sideband = self.sideband.saturating_add(count);
        self.total = self.total.saturating_add(count);
    }

    /// Returns the number of lost records of any kind that records have reported.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of lost sideband records that no record reported, of `total`.
    pub(super) fn remaining_sideband(&self, total: u64) -> u64 {
        total.saturating_sub(self.sideband)
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
    fn sideband_losses_count_once() {
        let mut tracker = LostTracker::default();
        tracker.note_sideband(3);
        tracker.note_sideband(4);
        assert_eq!(tracker.remaining_sideband(9), 2, "records have reported 7");
        assert_eq!(tracker.remaining_sideband(7), 0);
        assert_eq!(tracker.take(), None, "they are no samples");
        assert_eq!(tracker.total(), 7);
    }

    #[test]
    fn losses_of_shared_ring_are_divided_like_its_samples() {
        let mut kept = OwnShare::default();
        assert_eq!(kept.divide(5), LostSamples { own: 5, others: 0 }, "no sample of others");
        (0..30).for_each(|number| kept.note(number % 10 == 0));
        assert_eq!(kept.divide(9452), LostSamples { own: 945, others: 8507 });
        assert_eq!(kept.divide(1), LostSamples { own: 0, others: 1 });
        (0..SHARE_WINDOW * 20).for_each(|_| kept.note(true));
        assert_eq!(kept.divide(100), LostSamples { own: 100, others: 0 }, "others are long past");
        assert_eq!(kept.divide(u64::MAX).own, u64::MAX);
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
