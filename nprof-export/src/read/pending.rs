//! Samples with the ids of the current epoch. Pure.

use nprof_stream::tables::NameId;
use nprof_stream::{EventId, NodeId, TaskId};
use rustc_hash::FxHashMap;

/// A sample of the epoch, or a sum of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingSample {
    /// The properties that a sum shares.
    pub(super) key: PendingKey,
    /// The time; 0 of a sum.
    pub(super) time: u64,
    /// The number of observations.
    pub(super) count: u64,
    /// The weight.
    pub(super) weight: u64,
}

/// The properties of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PendingKey {
    pub(super) event: EventId,
    pub(super) task: TaskId,
    /// The name that the task had.
    pub(super) comm: NameId,
    pub(super) node: NodeId,
    /// The beginning of the window of a sum, ns since 1970; 0 without windows.
    pub(super) window: i64,
}

/// The samples of the epoch.
#[derive(Debug)]
pub(super) enum Pending {
    /// Every sample.
    Each(Vec<PendingSample>),
    /// Sums of samples with equal properties.
    Sums(FxHashMap<PendingKey, (u64, u64)>),
}

impl Pending {
    /// Adds a sample.
    pub(super) fn add(&mut self, sample: PendingSample) {
        match self {
            Self::Each(samples) => samples.push(sample),
            Self::Sums(sums) => {
                let (count, weight) = sums.entry(sample.key).or_default();
                *count = count.saturating_add(sample.count);
                *weight = weight.saturating_add(sample.weight);
            }
        }
    }

    /// Returns the number of samples or sums.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Each(samples) => samples.len(),
            Self::Sums(sums) => sums.len(),
        }
    }

    /// Removes and returns all samples, sums in the order of their properties.
    pub(super) fn take(&mut self) -> Vec<PendingSample> {
        match self {
            Self::Each(samples) => std::mem::take(samples),
            Self::Sums(sums) => {
                let of = |(key, (count, weight))| PendingSample { key, time: 0, count, weight };
                let mut samples: Vec<PendingSample> = sums.drain().map(of).collect();
                // A hash table has no order of its own.
                samples.sort_unstable_by_key(|sample| sample.key);
                samples
            }
        }
    }
}
