//! When a ring is to be read next. Pure.
//!
//! A full ring wakes the recorder in the very interrupt that takes a sample. What it then does on
//! the CPU that is sampled is mostly over before the next sample, which so never finds it there,
//! and its time counts as that of whoever it interrupted. So rings are read by the clock, before
//! they are half as full as would wake it; being woken is for what comes faster than that.

/// It is not told how fast a ring fills from less than this, ns.
const INTERVAL_MIN: u64 = 1_000_000;

/// How fast a ring fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FillRate {
    /// Up to where it was filled, and when, ns.
    head: u64,
    at: u64,
    /// Bytes per ms. It follows at once when there is more, and slowly when there is less.
    rate: u64,
}

impl FillRate {
    /// At the time `now` the ring is filled up to `head`.
    pub(super) fn note(&mut self, now: u64, head: u64) {
        let elapsed = now.saturating_sub(self.at);
        if elapsed < INTERVAL_MIN {
            return;
        }
        let grown = u128::from(head.saturating_sub(self.head)) * 1_000_000 / u128::from(elapsed);
        self.rate = u64::try_from(grown).unwrap_or(u64::MAX).max(self.rate / 2);
        (self.head, self.at) = (head, now);
    }

    /// After how many ms there will be `room` bytes more in it; `None` when nothing comes.
    pub(super) fn until(&self, room: u64) -> Option<u64> {
        room.checked_div(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_ring_is_as_full_as_it_was_in_as_much_time() {
        let mut fill_rate = FillRate::default();
        assert_eq!(fill_rate.until(5000), None);
        fill_rate.note(1000 * MS, 0);
        assert_eq!(fill_rate.until(5000), None, "nothing has come yet");
        fill_rate.note(1010 * MS, 10_000);
        assert_eq!(fill_rate.until(5000), Some(5));
        fill_rate.note(1010 * MS + 1, 20_000);
        assert_eq!(fill_rate.until(5000), Some(5), "too soon to tell");
        fill_rate.note(1020 * MS, 20_000);
        assert_eq!(fill_rate.until(5000), Some(5));
    }

    #[test]
    fn more_counts_at_once_and_less_by_and_by() {
        let mut fill_rate = FillRate::default();
        fill_rate.note(1000 * MS, 0);
        fill_rate.note(1001 * MS, 8000);
        fill_rate.note(1011 * MS, 8000);
        assert_eq!(fill_rate.until(8000), Some(2));
        fill_rate.note(1021 * MS, 8000);
        assert_eq!(fill_rate.until(8000), Some(4));
        fill_rate.note(1031 * MS, u64::MAX);
        assert_eq!(fill_rate.until(8000), Some(0));
        for round in 0..64 {
            fill_rate.note((1041 + round * 10) * MS, u64::MAX);
        }
        assert_eq!(fill_rate.until(8000), None, "it has come to rest");
    }
}
