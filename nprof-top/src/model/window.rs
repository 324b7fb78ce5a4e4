//! The samples of the last seconds, in slices of time that are dropped when they are too old.

use std::collections::VecDeque;

use nprof_report::profile::{GroupKey, Sum};
use rustc_hash::FxHashMap;

/// The slices of a window. The time that it covers is longer by up to one slice.
const SLICES: u64 = 10;

/// The largest number of sums: about 40 MB. A machine with 10,000 threads that all wait has 10,000 each
/// second.
const MAX_SUMS: usize = 1 << 18;

/// Sums by stack, thread and cause.
pub(super) type Sums = FxHashMap<GroupKey, Sum>;

/// The samples of the last seconds. Their ids are those of one epoch.
#[derive(Debug, Default)]
pub(super) struct Window {
    slice_ns: u64,
    /// Slices with samples by number, in order.
    slices: VecDeque<(u64, Sums)>,
    /// The number of sums in all slices.
    sums: usize,
    /// The time from which on samples are complete.
    from_ns: u64,
}

impl Window {
    /// Creates an empty window of a length.
    pub(super) fn new(length_ns: u64) -> Self {
        Self { slice_ns: (length_ns / SLICES).max(1), ..Self::default() }
    }

    /// Returns the length of its slices.
    pub(super) fn slice_ns(&self) -> u64 {
        self.slice_ns
    }

    /// Begins again at a time.
    pub(super) fn restart(&mut self, from_ns: u64) {
        self.slices.clear();
        self.sums = 0;
        self.from_ns = from_ns;
    }

    /// Adds samples. Their key has the number of their slice.
    pub(super) fn add(&mut self, key: &GroupKey, sum: Sum) {
        let Some(number) = key.slice else { return };
        // Nearly always the last one.
        let at = self.slices.iter().rposition(|(other, _)| *other <= number);
        let at = match at {
            Some(at) if self.slices[at].0 == number => at,
            before => {
                let at = before.map_or(0, |before| before + 1);
                self.slices.insert(at, (number, Sums::default()));
                at
            }
        };
        let sums = &mut self.slices[at].1;
        let before = sums.len();
        sums.entry(*key).or_default().add(sum);
        self.sums += sums.len() - before;
        // A single slice with too many drops itself.
        while self.sums > MAX_SUMS {
            self.drop_first();
        }
    }

    /// Drops the slices that are too old at a time.
    pub(super) fn drop_before(&mut self, now_ns: u64) {
        // The slice of `now_ns` is incomplete, and comes on top of the others.
        let first = (now_ns / self.slice_ns).saturating_sub(SLICES);
        while self.slices.front().is_some_and(|(number, _)| *number < first) {
            self.drop_first();
        }
        self.from_ns = self.from_ns.max(first.saturating_mul(self.slice_ns));
    }

    fn drop_first(&mut self) {
        if let Some((number, sums)) = self.slices.pop_front() {
            self.sums -= sums.len();
            self.from_ns = self.from_ns.max(number.saturating_add(1).saturating_mul(self.slice_ns));
        }
    }

    /// Returns the length of the time up to `now_ns` that it covers.
    pub(super) fn length_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.from_ns)
    }

    /// True if it has no samples.
    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Returns its sums; a key may come several times.
    pub(super) fn sums(&self) -> impl Iterator<Item = (&GroupKey, Sum)> {
        self.slices.iter().flat_map(|(_, sums)| sums).map(|(key, &sum)| (key, sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_stream::{NO_CPU, NodeId, TaskId};

    fn key(slice: u64, node: u32) -> GroupKey {
        let node = NodeId(node);
        let (task, comm, cpu, extras) = (TaskId::NONE, Default::default(), NO_CPU, None);
        GroupKey { run: 0, event: 0, task, comm, cpu, extras, slice: Some(slice), node }
    }

    fn samples(window: &Window) -> u64 {
        window.sums().map(|(_, sum)| sum.samples).sum()
    }

    #[test]
    fn old_samples_leave_the_window() {
        let mut window = Window::new(1000);
        for slice in [0, 1, 5, 3, 12] {
            window.add(&key(slice, 1), Sum::of(1, 10));
        }
        window.drop_before(1250);
        // From slice 2 on, at the time 200.
        assert_eq!((samples(&window), window.length_ns(1250)), (3, 1050));
        window.drop_before(2600);
        assert_eq!((samples(&window), window.length_ns(2600)), (0, 1000));
        assert!(window.is_empty());
    }

    #[test]
    fn window_shrinks_when_it_has_too_many_sums() {
        let mut window = Window::new(1000);
        let half = MAX_SUMS as u32 / 2;
        for slice in 0..3 {
            (1..=half).for_each(|node| window.add(&key(slice, node), Sum::of(1, 1)));
        }
        assert_eq!((samples(&window), window.length_ns(300)), (u64::from(2 * half), 200));
        // All samples at one time.
        (1..=3 * half).for_each(|node| window.add(&key(7, node), Sum::of(1, 1)));
        assert!(window.sums().count() <= MAX_SUMS);
    }

    #[test]
    fn late_samples_of_a_dropped_slice_are_dropped_again() {
        let mut window = Window::new(1000);
        window.drop_before(5000);
        window.add(&key(1, 1), Sum::of(1, 1));
        window.drop_before(5000);
        assert_eq!((samples(&window), window.length_ns(5000)), (0, 1000));
        window.add(&key(u64::MAX, 1), Sum::of(1, 1));
        window.drop_before(u64::MAX);
        assert_eq!(samples(&window), 1);
    }
}
