//! What the samples of a profile are added up by, and to.

use nprof_stream::tables::NameId;
use nprof_stream::{NodeId, TaskId};

/// What the samples of one sum have in common. Ids are those of the epoch at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Index into [`Summary::runs`](crate::profile::summary::Summary::runs).
    pub run: usize,
    /// Index into [`Summary::events`](crate::profile::summary::Summary::events).
    pub event: usize,
    /// The task; none unless [`Split::task`](crate::profile::stack_sums::Split::task).
    pub task: TaskId,
    /// The name the task had; default unless [`Split::task`](crate::profile::stack_sums::Split::task).
    pub comm: NameId,
    /// The CPU; [`NO_CPU`](nprof_stream::NO_CPU) unless [`Split::cpu`](crate::profile::stack_sums::Split::cpu).
    pub cpu: u32,
    /// The number of the time slice, 0 unless
    /// [`TimeSplit::slice`](crate::profile::time::TimeSplit::slice); `None` for what lies outside of
    /// [`TimeSplit::span`](crate::profile::time::TimeSplit::span).
    pub slice: Option<u64>,
    /// The stack's leaf.
    pub node: NodeId,
}

/// How much fell on a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Observations.
    pub samples: u64,
    /// Their weight, in the event's unit; stops at the largest number instead of wrapping.
    pub weight: u64,
}

impl Sum {
    /// Adds another sum to this.
    pub fn add(&mut self, other: Sum) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
    }

    /// What is left of a whole when this part of it is taken away.
    pub fn rest_of(self, whole: Sum) -> Sum {
        Sum {
            samples: whole.samples.saturating_sub(self.samples),
            weight: whole.weight.saturating_sub(self.weight),
        }
    }

    /// Its share of a whole, per cent, by weight; 0 of nothing.
    pub fn percent_of(self, whole: Sum) -> f64 {
        if whole.weight == 0 { 0.0 } else { 100.0 * self.weight as f64 / whole.weight as f64 }
    }
}
