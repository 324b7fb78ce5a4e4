//! A block of memory that a program has allocated. Pure.

use nprof_stream::NodeId;

/// A sampled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The stack of its allocation.
    pub(crate) node: NodeId,
    /// The size that the program requested.
    pub(crate) size: u64,
    /// The bytes that it represents.
    pub(crate) weight: u64,
    /// The sampling periods that it represents.
    pub(crate) count: u64,
    /// The time of its allocation.
    pub(crate) time_ns: u64,
}

impl Block {
    /// Returns the variance of its weight: 0 if that is its size.
    pub(super) fn variance(&self) -> u128 {
        if self.weight == self.size { 0 } else { self.spread() }
    }

    /// Returns the variance of a weight that its count of equal samples represents.
    pub(super) fn spread(&self) -> u128 {
        let count = self.count.max(1);
        match self.weight.checked_mul(self.weight) {
            // All blocks are recorded with the period 1. The division takes longer than the rest.
            _ if self.weight == count => u128::from(self.weight),
            Some(square) => u128::from(square / count),
            None => u128::from(self.weight) * u128::from(self.weight) / u128::from(count),
        }
    }

    /// Returns the number of blocks that it represents, in units of 2^-20.
    pub(super) fn parts(&self) -> u64 {
        let parts = (u128::from(self.weight) << 20) / u128::from(self.size.max(1));
        u64::try_from(parts).unwrap_or(u64::MAX)
    }
}
