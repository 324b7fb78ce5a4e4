//! The values that are compared: self or total, as a share or as an amount. Pure.

use nprof_report::profile::{BlockNumber, Sum};

use crate::input::run_counts::KeyCount;

/// A metric of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// Samples with the row's key as leaf.
    Self_,
    /// Samples with the row's key anywhere on the stack.
    Total,
}

impl MetricKind {
    /// Returns the samples of this metric.
    pub(crate) fn of(self, count: KeyCount) -> Sum {
        match self {
            MetricKind::Self_ => count.self_,
            MetricKind::Total => count.total,
        }
    }

    /// Returns the blocks of this metric.
    pub(crate) fn blocks_of(self, count: KeyCount) -> BlockNumber {
        match self {
            MetricKind::Self_ => count.self_blocks,
            MetricKind::Total => count.total_blocks,
        }
    }
}

/// A quantity that a metric is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// The share of the samples, as a fraction.
    Share,
    /// Time in nanoseconds, bytes, or counts, per run.
    Amount,
}

impl Quantity {
    /// Returns the largest possible value.
    pub(crate) fn max(self) -> f64 {
        match self {
            Quantity::Share => 1.0,
            Quantity::Amount => f64::INFINITY,
        }
    }
}
