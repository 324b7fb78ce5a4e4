//! The key that samples are summed by, and the sums.

use nprof_stream::tables::NameId;
use nprof_stream::{NodeId, TaskId};

/// The properties that the samples of one sum share. Ids are those of the current epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupKey {
    /// Index into [`Summary::runs`](crate::profile::summary::Summary::runs).
    pub run: usize,
    /// Index into [`Summary::events`](crate::profile::summary::Summary::events).
    pub event: usize,
    /// The task; none unless [`GroupBy::task`](crate::profile::stack_sums::GroupBy::task).
    pub task: TaskId,
    /// The name the task had; default unless [`GroupBy::task`](crate::profile::stack_sums::GroupBy::task).
    pub comm: NameId,
    /// The CPU; [`NO_CPU`](nprof_stream::NO_CPU) unless [`GroupBy::cpu`](crate::profile::stack_sums::GroupBy::cpu).
    pub cpu: u32,
    /// The number of the time slice, 0 unless
    /// [`TimeSplit::slice`](crate::profile::time::TimeSplit::slice); None for samples outside of
    /// [`TimeSplit::span`](crate::profile::time::TimeSplit::span).
    pub slice: Option<u64>,
    /// The stack's leaf.
    pub node: NodeId,
}

/// The samples of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of samples.
    pub samples: u64,
    /// Their weight, in the event's unit. Saturates: a wrapped sum would pass as a small one.
    pub weight: u64,
}

impl Sum {
    /// Adds another sum to this.
    pub fn add(&mut self, other: Sum) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
    }

    /// Returns the whole without this part.
    pub fn rest_of(self, whole: Sum) -> Sum {
        Sum {
            samples: whole.samples.saturating_sub(self.samples),
            weight: whole.weight.saturating_sub(self.weight),
        }
    }

    /// Returns its share of a whole by weight, in per cent; 0 if the whole is empty.
    pub fn percent_of(self, whole: Sum) -> f64 {
        if whole.weight == 0 { 0.0 } else { 100.0 * self.weight as f64 / whole.weight as f64 }
    }
}
