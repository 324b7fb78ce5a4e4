//! The samples of each call path by thread and time. Pure.
//!
//! Memory is bounded: when there are [`MAX_MOMENTS`], slices of time become twice as long, and where
//! there is one slice left, threads with few samples are joined.

use std::num::NonZeroU64;

use nprof_report::key::Key;
use nprof_report::profile::{Context, GroupKey, Sum};
use nprof_report::sample_label::sample_label;
use nprof_report::time::TimeSplit;
use nprof_stream::escape::escaped;
use nprof_stream::labels::OTHER;
use nprof_stream::tables::NameId;
use nprof_stream::{EpochCache, TaskId};
use rustc_hash::FxHashMap;

use crate::tree::call_tree::{Moment, Moments, NodeIndex};

/// The length of a slice at first, in nanoseconds.
const SLICE_NS: NonZeroU64 = NonZeroU64::new(1_000_000).expect("not 0");

/// The number of moments above which slices become longer; one takes 80 bytes.
const MAX_MOMENTS: usize = 1 << 18;

/// The number of moments of a finished timeline: each takes 7 to 10 bytes of a page.
const MAX_FINISHED: usize = 1 << 17;

/// The number of slices of a finished timeline: the columns of a wide screen.
const MAX_SLICES: u32 = 1000;

/// The number of threads above which others are joined.
const MAX_THREADS: usize = 4096;

/// The samples of a path by thread and time.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// The length of a slice is that of the profile times 2 to this power.
    doublings: u32,
    /// The labels of threads.
    threads: Vec<String>,
    numbers: FxHashMap<String, u32>,
    by_task: EpochCache<(usize, TaskId, NameId), u32>,
    /// By node, thread and slice.
    moments: FxHashMap<(u32, u32, u32), Sum>,
}

/// Returns the division of time that the profile must make.
pub(super) fn time_split() -> TimeSplit {
    TimeSplit { slice: Some(SLICE_NS), span: None }
}

impl Timeline {
    /// Adds samples with stacks that end at a node.
    pub(super) fn add(&mut self, context: &Context<'_>, group: &GroupKey, node: u32, sum: Sum) {
        let thread = self.thread(context, group);
        // Samples outside of `--time` do not come here. A damaged time may lie far in the future.
        let slice = group.slice.unwrap_or(0).checked_shr(self.doublings).unwrap_or(0);
        let slice = u32::try_from(slice).unwrap_or(u32::MAX);
        self.moments.entry((node, thread, slice)).or_default().add(sum);
        self.shrink(MAX_MOMENTS, u32::MAX);
    }

    fn thread(&mut self, context: &Context<'_>, group: &GroupKey) -> u32 {
        let task = (group.run, group.task, group.comm);
        if let Some(thread) = self.by_task.get(context.tables, &task) {
            return thread;
        }
        let label = escaped(&sample_label(context, group, Key::Thread, time_split()));
        let thread = self.number(label);
        self.by_task.insert(task, thread);
        thread
    }

    /// Returns the number of a thread with this label.
    fn number(&mut self, label: String) -> u32 {
        let is_full = self.threads.len() >= MAX_THREADS && !self.numbers.contains_key(&label);
        let label = if is_full { Self::other() } else { label };
        let next = self.threads.len() as u32;
        // One lookup for known and new threads.
        *self.numbers.entry(label).or_insert_with_key(|label| {
            self.threads.push(label.clone());
            next
        })
    }

    /// Moves the samples of each node to the place of the node in another tree.
    pub(super) fn relocate(&mut self, place: impl Fn(u32) -> u32) {
        self.rebuild(|(node, thread, slice)| (place(node), thread, slice));
    }

    fn rebuild(&mut self, key: impl Fn((u32, u32, u32)) -> (u32, u32, u32)) {
        for (old, sum) in std::mem::take(&mut self.moments) {
            self.moments.entry(key(old)).or_default().add(sum);
        }
    }

    /// Lengthens slices, then joins threads, until there are at most these numbers.
    fn shrink(&mut self, moments: usize, slices: u32) {
        // The usual case, for each stack of a profile.
        if self.moments.len() <= moments && slices == u32::MAX {
            return;
        }
        let mut last = self.moments.keys().map(|&(.., slice)| slice).max().unwrap_or(0);
        while last > 0 && (self.moments.len() > moments || last >= slices) {
            self.doublings += 1;
            last /= 2;
            self.rebuild(|(node, thread, slice)| (node, thread, slice / 2));
        }
        // One slice, and still too many: there are thousands of threads.
        let mut kept = self.threads.len();
        while self.moments.len() > moments && kept > 0 {
            kept /= 4;
            self.join_threads(kept);
        }
    }

    /// Joins all threads but those with the most weight.
    fn join_threads(&mut self, kept: usize) {
        let mut weights = vec![0_u64; self.threads.len()];
        for (&(_, thread, _), sum) in &self.moments {
            let weight = &mut weights[thread as usize];
            *weight = weight.saturating_add(sum.weight);
        }
        let mut order: Vec<usize> = (0..weights.len()).collect();
        // Equal ones by number, so that the same input gives the same page.
        order.sort_by(|&a, &b| weights[b].cmp(&weights[a]).then(a.cmp(&b)));
        let other = self.number(Self::other());
        let mut places = vec![other; self.threads.len()];
        for &thread in order.iter().take(kept) {
            places[thread] = thread as u32;
        }
        self.rebuild(|(node, thread, slice)| (node, places[thread as usize], slice));
    }

    /// Returns the samples of each node, of all threads and times.
    pub(super) fn sums(&self) -> impl Iterator<Item = (u32, Sum)> + '_ {
        self.moments.iter().map(|(&(node, ..), &sum)| (node, sum))
    }

    /// Returns the label of joined threads.
    pub(super) fn other() -> String {
        escaped(OTHER)
    }

    /// Returns the samples by the new places of their nodes.
    pub(super) fn finish(&self, place: impl Fn(u32) -> Option<u32>) -> Moments {
        // A report may still add samples.
        let mut timeline = self.clone();
        timeline.shrink(MAX_FINISHED, MAX_SLICES);
        timeline.moments(place)
    }

    /// Returns the samples of some nodes: at most a number of moments, in slices that are not shorter than
    /// those of another timeline.
    pub(super) fn finish_within(
        &self,
        moments: usize,
        slice_ns: u64,
        is_kept: impl Fn(u32) -> bool,
    ) -> Moments {
        let mut timeline = self.clone();
        timeline.moments.retain(|&(node, ..), _| is_kept(node));
        while timeline.slice_ns() < slice_ns {
            timeline.doublings += 1;
            timeline.rebuild(|(node, thread, slice)| (node, thread, slice / 2));
        }
        timeline.shrink(moments, MAX_SLICES);
        timeline.moments(Some)
    }

    fn slice_ns(&self) -> u64 {
        SLICE_NS.get().checked_shl(self.doublings).unwrap_or(u64::MAX)
    }

    /// Returns the moments as they are.
    fn moments(self, place: impl Fn(u32) -> Option<u32>) -> Moments {
        let moment = |(&(node, thread, slice), &sum): (&(u32, u32, u32), &Sum)| {
            Some(Moment { node: place(node)? as NodeIndex, thread, slice, sum })
        };
        let mut moments: Vec<Moment> = self.moments.iter().filter_map(moment).collect();
        moments.sort_by_key(|moment| (moment.node, moment.thread, moment.slice));
        Moments {
            slice_ns: self.slice_ns(),
            slices: moments.iter().map(|moment| moment.slice + 1).max().unwrap_or(0),
            threads: self.threads,
            moments,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a timeline with a sample of each of some threads in each of some slices.
    fn timeline(threads: u32, slices: u32) -> Timeline {
        let mut timeline = Timeline::default();
        for thread in 0..threads {
            timeline.number(format!("{thread}"));
            for slice in 0..slices {
                // The first thread weighs most.
                let sum = Sum::of(1, u64::from(threads - thread));
                timeline.moments.insert((7, thread, slice), sum);
            }
        }
        timeline
    }

    fn samples(moments: &Moments) -> u64 {
        moments.moments.iter().map(|moment| moment.sum.samples).sum()
    }

    #[test]
    fn long_time_has_longer_slices() {
        let moments = timeline(2, 3500).finish(|node| Some(node + 1));
        assert_eq!((moments.slices, moments.slice_ns), (875, 4_000_000));
        assert_eq!(samples(&moments), 7000);
        assert!(moments.moments.iter().all(|moment| moment.node == 8));
    }

    #[test]
    fn threads_with_little_weight_are_joined_last() {
        let mut timeline = timeline(64, 8);
        timeline.shrink(100, u32::MAX);
        // One slice is enough: each thread still has its own row.
        assert_eq!((timeline.moments.len(), timeline.doublings), (64, 3));
        timeline.shrink(40, u32::MAX);
        let moments = timeline.finish(Some);
        assert_eq!((moments.moments.len(), samples(&moments)), (17, 512));
        let joined = moments.moments.iter().max_by_key(|moment| moment.sum.samples);
        let joined = joined.expect("a moment");
        assert_eq!(
            (&moments.threads[joined.thread as usize][..], joined.sum.samples),
            ("(other)", 384)
        );
    }

    #[test]
    fn threads_beyond_the_limit_share_a_row() {
        let timeline = timeline(MAX_THREADS as u32 + 5, 1);
        assert_eq!(timeline.threads.len(), MAX_THREADS + 1);
    }
}
