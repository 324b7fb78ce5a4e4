//! The sums of the blocks of a stack, and the number of samples that a reader may take them for. Pure.

use nprof_stream::NodeId;

use crate::convert::allocations::block::Block;

/// The sums of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// The bytes that they represent.
    pub(super) weight: u64,
    /// The sum of [`Block::spread`].
    pub(super) spread: u128,
    /// The excess of the spread because other processes have the same samples.
    pub(super) shared_spread: u128,
    /// The blocks that they represent, in units of 2^-20: a sample of small blocks represents a number
    /// that is not whole.
    pub(super) parts: u64,
}

impl Sums {
    /// Returns those of one block.
    pub(super) fn of(block: &Block) -> Self {
        let (weight, spread, parts) = (block.weight, block.spread(), block.parts());
        Self { weight, spread, shared_spread: 0, parts }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.weight = self.weight.saturating_add(other.weight);
        self.spread = self.spread.saturating_add(other.spread);
        self.shared_spread = self.shared_spread.saturating_add(other.shared_spread);
        self.parts = self.parts.saturating_add(other.parts);
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.weight = self.weight.saturating_sub(other.weight);
        self.spread = self.spread.saturating_sub(other.spread);
        self.shared_spread = self.shared_spread.saturating_sub(other.shared_spread);
        self.parts = self.parts.saturating_sub(other.parts);
    }

    /// Returns the mean with others, rounded down.
    pub(super) fn mean(&self, other: &Self) -> Self {
        Self {
            weight: self.weight.midpoint(other.weight),
            spread: self.spread.midpoint(other.spread),
            shared_spread: self.shared_spread.midpoint(other.shared_spread),
            parts: self.parts.midpoint(other.parts),
        }
    }
}

/// The blocks of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(super) sums: Sums,
    /// The size of the largest.
    pub(crate) largest: u64,
}

impl Blocks {
    /// Returns the bytes that they represent.
    pub(crate) fn weight(&self) -> u64 {
        self.sums.weight
    }

    /// Returns the estimated number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.sums.parts.saturating_add(1 << 19) >> 20
    }

    /// Returns the number of equal samples that have the same variance, at most that of samples with a mean
    /// `period`. Blocks of which an adapted period has grown since are few and heavy, and those that it missed
    /// are not there: the earlier samples of the same stack are no measure for them.
    ///
    /// Samples that other processes have, too, count less. A row counts at least one: many children of which each
    /// has a few samples of a stack are still more observations together than these samples.
    pub(crate) fn count(&self, period: f64) -> u64 {
        let (weight, spread) = (self.sums.weight as f64, self.sums.spread as f64);
        let count = weight / (spread / weight).max(period);
        let factor = 1.0 + self.sums.shared_spread as f64 / spread.max(1.0);
        ((count / factor).round() as u64).max(1)
    }
}

/// Returns the mean distance in bytes of the samples of rows, by their weight.
pub(crate) fn mean_period(rows: &[(NodeId, Blocks)]) -> f64 {
    let sums = rows.iter().map(|(_, blocks)| (blocks.sums.spread as f64, blocks.weight() as f64));
    let (spread, weight) = sums.fold((0.0, 0.0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
    if weight > 0.0 { spread / weight } else { 0.0 }
}
