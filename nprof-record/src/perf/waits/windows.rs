//! Windows of time in which waits are recorded. Pure.

use std::ops::Range;

/// The windows of a recording: one in each interval, of equal lengths. Each interval is divided into
/// `of` places, and its window has one at random: so that each moment is in a window with the
/// probability 1 / `of`, whatever the rhythm of the program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) length_ns: u64,
    pub(crate) of: u64,
}

impl Windows {
    /// Returns the time between the starts of two intervals.
    pub(crate) fn interval_ns(self) -> u64 {
        self.length_ns.saturating_mul(self.of)
    }

    /// Returns the number of whole intervals in a time.
    pub(crate) fn intervals_within(self, time_ns: u64) -> u64 {
        time_ns / self.interval_ns().max(1)
    }

    /// Returns the time from the start of an interval to that of its window, by 64 random bits.
    pub(crate) fn offset_ns(self, random: u64) -> u64 {
        let place = (u128::from(random) * u128::from(self.of)) >> 64;
        self.length_ns.saturating_mul(place as u64)
    }
}

/// Returns the length of the part of `time` that lies in `window`.
pub(crate) fn overlap(time: &Range<u64>, window: &Range<u64>) -> u64 {
    time.end.min(window.end).saturating_sub(time.start.max(window.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_lie_in_each_place_of_the_interval() {
        let windows = Windows { length_ns: 10, of: 4 };
        let offsets = [0, 1 << 62, 2 << 62, 3 << 62, u64::MAX].map(|it| windows.offset_ns(it));
        assert_eq!((windows.interval_ns(), offsets), (40, [0, 10, 20, 30, 30]));
    }

    #[test]
    fn interval_that_is_not_over_does_not_count() {
        let windows = Windows { length_ns: 10, of: 4 };
        assert_eq!([0, 39, 40, 119].map(|it| windows.intervals_within(it)), [0, 0, 1, 2]);
    }

    #[test]
    fn each_wait_has_a_window_for_its_share_of_the_time() {
        // All places of two intervals: the mean over them is exact.
        let windows = Windows { length_ns: 10, of: 4 };
        for wait in [0..1, 3..17, 9..11, 38..42, 0..80, 25..65] {
            let mut sum = 0;
            for places in 0..16_u64 {
                let of_interval = |number: u64, place: u64| {
                    let start = number * windows.interval_ns() + windows.offset_ns(place << 62);
                    overlap(&wait, &(start..start + windows.length_ns))
                };
                sum += of_interval(0, places % 4) + of_interval(1, places / 4);
            }
            assert_eq!(sum * windows.of, 16 * (wait.end - wait.start), "{wait:?}");
        }
    }
}
