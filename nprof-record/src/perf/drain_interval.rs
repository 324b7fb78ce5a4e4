//! The time until a ring must be drained, by the rate at which it fills. Pure.
//!
//! A full ring wakes the recorder from the interrupt that takes a sample. If the recorder then runs
//! on the sampled CPU, it is mostly done before the next sample: samples never hit it there, and its
//! time counts as that of the program it interrupted. So rings are drained by the clock; wake-ups remain
//! for bursts.

use std::time::Duration;

/// Shortest interval over which a fill rate is estimated.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// The rate at which a ring fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FillRate {
    /// The position of the ring's head at the time `at_ns`.
    head: u64,
    at_ns: u64,
    /// Rises at once when more comes, and halves at most when less comes.
    bytes_per_ms: u64,
}

impl FillRate {
    /// Updates the rate: at the time `now_ns` the ring is filled up to `head`.
    pub(super) fn update(&mut self, now_ns: u64, head: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.at_ns);
        if u128::from(elapsed_ns) < INTERVAL_MIN.as_nanos() {
            return;
        }
        let grown = u128::from(head.saturating_sub(self.head)) * 1_000_000 / u128::from(elapsed_ns);
        let bytes_per_ms = u64::try_from(grown).unwrap_or(u64::MAX);
        self.bytes_per_ms = bytes_per_ms.max(self.bytes_per_ms / 2);
        (self.head, self.at_ns) = (head, now_ns);
    }

    /// Returns the time until the ring holds `bytes` more. None if nothing comes.
    pub(super) fn time_until(&self, bytes: u64) -> Option<Duration> {
        bytes.checked_div(self.bytes_per_ms).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn time_until_follows_the_fill_rate() {
        let mut fill_rate = FillRate::default();
        assert_eq!(fill_rate.time_until(5000), None);
        fill_rate.update(1000 * MS, 0);
        assert_eq!(fill_rate.time_until(5000), None, "nothing has come yet");
        fill_rate.update(1010 * MS, 10_000);
        assert_eq!(fill_rate.time_until(5000), Some(Duration::from_millis(5)));
        fill_rate.update(1010 * MS + 1, 20_000);
        assert_eq!(
            fill_rate.time_until(5000),
            Some(Duration::from_millis(5)),
            "too short an interval"
        );
        fill_rate.update(1020 * MS, 20_000);
        assert_eq!(fill_rate.time_until(5000), Some(Duration::from_millis(5)));
    }

    #[test]
    fn rate_rises_at_once_and_falls_by_halves() {
        let mut fill_rate = FillRate::default();
        fill_rate.update(1000 * MS, 0);
        fill_rate.update(1001 * MS, 8000);
        fill_rate.update(1011 * MS, 8000);
        assert_eq!(fill_rate.time_until(8000), Some(Duration::from_millis(2)));
        fill_rate.update(1021 * MS, 8000);
        assert_eq!(fill_rate.time_until(8000), Some(Duration::from_millis(4)));
        fill_rate.update(1031 * MS, u64::MAX);
        assert_eq!(fill_rate.time_until(8000), Some(Duration::from_millis(0)));
        for round in 0..64 {
            fill_rate.update((1041 + round * 10) * MS, u64::MAX);
        }
        assert_eq!(fill_rate.time_until(8000), None, "it has come to rest");
    }
}
