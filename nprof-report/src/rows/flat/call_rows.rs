//! Caches of rows by call and by frame. Pure.
//!
//! Stacks share most of their frames, so that the rows of a frame are looked up once for each group of
//! samples, not once for each stack.

use nprof_stream::tables::Call;
use nprof_stream::{EpochCache, FrameId};

/// Frames with higher ids are not cached: 6 MiB.
const MAX_FRAMES: usize = 1 << 19;

/// The number of rows of frames after which they are dropped: 4 MiB.
const MAX_ROWS: usize = 1 << 19;

/// Id of the names in a row's call columns, or in its sample columns. Equal names have equal ids.
pub(super) type PartId = u32;

/// The call columns of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallPart {
    pub(super) id: PartId,
    /// True if the filter's `--match` rules about calls hold.
    pub(super) is_kept: bool,
}

/// The row of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallRow {
    /// Its index.
    pub(super) row: u32,
    /// True if the filter's `--match` rules about calls hold.
    pub(super) is_kept: bool,
}

/// The properties of samples on which rows depend besides their calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowsOf {
    pub(super) generation: u64,
    pub(super) event: usize,
    pub(super) samples: PartId,
}

/// Values cached by call and by frame. Rows must be numbered as long as they are cached: the owner
/// replaces the cache when it renumbers them.
#[derive(Clone, Debug, Default)]
pub(super) struct CallRows {
    pub(super) parts: EpochCache<Call, CallPart>,
    of: Option<RowsOf>,
    /// By frame: the number of the group of samples for which it was looked up, and its rows.
    frames: Vec<(u32, u32, u32)>,
    rows: Vec<CallRow>,
    /// The number of the present group.
    number: u32,
}

impl CallRows {
    /// Begins a stack of samples with these properties.
    pub(super) fn begin(&mut self, of: RowsOf) {
        if self.of != Some(of) || self.rows.len() > MAX_ROWS {
            self.of = Some(of);
            self.rows.clear();
            // After 2^32 groups, old numbers would be valid again.
            self.number = self.number.checked_add(1).unwrap_or_else(|| {
                self.frames.clear();
                1
            });
        }
    }

    /// Returns the rows of a frame, by their range for [`Self::row`]. None if they are not cached.
    #[inline]
    pub(super) fn range(&self, frame: FrameId) -> Option<std::ops::Range<u32>> {
        let &(number, start, end) = self.frames.get(frame.0 as usize)?;
        (number == self.number).then_some(start..end)
    }

    /// Returns a row of the range of a frame.
    #[inline]
    pub(super) fn row(&self, index: u32) -> CallRow {
        self.rows[index as usize]
    }

    /// Caches the rows of a frame, innermost call first, and returns their range.
    pub(super) fn insert(
        &mut self,
        frame: FrameId,
        rows: impl Iterator<Item = CallRow>,
    ) -> std::ops::Range<u32> {
        let start = self.rows.len() as u32;
        self.rows.extend(rows);
        let end = self.rows.len() as u32;
        let index = frame.0 as usize;
        if index < MAX_FRAMES {
            if self.frames.len() <= index {
                self.frames.resize((index + 1).next_power_of_two(), (0, 0, 0));
            }
            self.frames[index] = (self.number, start, end);
        }
        start..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_frame_are_cached_for_one_group_of_samples() {
        let row = |row| CallRow { row, is_kept: row > 3 };
        let of = |event| RowsOf { generation: 1, event, samples: 0 };
        let mut rows = CallRows::default();
        rows.begin(of(0));
        assert_eq!(rows.range(FrameId(5)), None);
        assert_eq!(rows.insert(FrameId(2), [row(3)].into_iter()), 0..1);
        assert_eq!(rows.insert(FrameId(5), [row(7), row(8)].into_iter()), 1..3);
        rows.begin(of(0));
        assert_eq!(rows.range(FrameId(5)), Some(1..3));
        assert_eq!((rows.row(1), rows.row(2)), (row(7), row(8)));
        assert_eq!(rows.range(FrameId(4)), None);
        let far = FrameId(MAX_FRAMES as u32);
        assert_eq!((rows.insert(far, [row(9)].into_iter()), rows.range(far)), (3..4, None));
        rows.begin(of(1));
        assert_eq!(rows.range(FrameId(5)), None);
    }
}
