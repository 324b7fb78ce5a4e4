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
        let weight = u128::from(self.weight);
        if self.weight == self.size { 0 } else { weight * weight / u128::from(self.count.max(1)) }
    }

    /// Returns the number of blocks that it represents, in units of 2^-20.
    pub(super) fn parts(&self) -> u64 {
        let parts = (u128::from(self.weight) << 20) / u128::from(self.size.max(1));
        u64::try_from(parts).unwrap_or(u64::MAX)
    }
}
