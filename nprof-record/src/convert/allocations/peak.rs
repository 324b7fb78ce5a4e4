//! The choice of the peak by one half of the sampled blocks, and the blocks of a stack at the peak; see
//! [`super::live_set`]. Pure.

use nprof_stream::NodeId;

use crate::convert::allocations::block::Block;
use crate::convert::allocations::block_table::hash;
use crate::convert::allocations::sizes::Sizes;
use crate::convert::allocations::sums::{Blocks, Sums};

/// The blocks of a stack that a side reports: the exact ones, and twice those of the other half.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    pub(super) now: Sums,
    /// Before the first change since the peak.
    pub(super) at_peak: Blocks,
    pub(super) has_changed: bool,
}

/// The blocks of a stack.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeSum {
    /// By side.
    pub(super) views: [View; 2],
    pub(super) sizes: Sizes,
}

impl NodeSum {
    /// Keeps the blocks that a side reports, before their first change since its peak. True if this is the first.
    pub(super) fn keep_at_peak(&mut self, side: usize) -> bool {
        let is_first = !self.views[side].has_changed;
        if is_first {
            let at_peak = self.at_peak(side);
            self.views[side] = View { at_peak, has_changed: true, ..self.views[side] };
        }
        is_first
    }

    /// Returns the blocks that a side reports of its peak. Their largest may be one of the side's own half: a sampled
    /// size is not exact in any case, and exact blocks change both sides.
    pub(super) fn at_peak(&self, side: usize) -> Blocks {
        let view = &self.views[side];
        if view.has_changed {
            view.at_peak
        } else {
            Blocks { sums: view.now, largest: self.sizes.largest() }
        }
    }

    /// True if it has no blocks, neither now nor at a peak.
    pub(super) fn is_unused(&self) -> bool {
        self.sizes.is_empty() && self.views.iter().all(|view| !view.has_changed)
    }
}

/// A choice of the peak, by one half of the sampled blocks and the exact ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    /// The estimate of the live bytes.
    pub(super) live: u64,
    /// The variance of `live`, if it were the estimate by both halves.
    pub(super) variance: u128,
    /// The lower bound of `live` at the peak. None before the first block.
    pub(super) peak: Option<f64>,
    /// The time of the allocation with which the peak began.
    pub(super) began_ns: u64,
    /// The moment that is reported.
    pub(super) peak_ns: u64,
    /// The time since which the lower bound is that of the peak again. None if it is below. Kept only if there are
    /// sampled blocks.
    pub(super) at_peak_since_ns: Option<u64>,
    /// The stacks of which the reported blocks have changed since the peak.
    pub(super) changed: Vec<NodeId>,
}

impl Side {
    /// Returns the bytes that the process has at least, by the estimate.
    pub(super) fn lower_bound(&self) -> f64 {
        self.live as f64 - 2.0 * (self.variance as f64).sqrt()
    }

    pub(super) fn is_above_peak(&self) -> bool {
        self.peak.is_none_or(|peak| self.lower_bound() > peak)
    }

    /// Notes a change at a time that begins no peak.
    pub(super) fn note_change(&mut self, time_ns: u64) {
        let is_at_peak = self.peak == Some(self.lower_bound());
        self.at_peak_since_ns = is_at_peak.then_some(time_ns);
    }

    /// Returns the moment to which the peak is moved on, until now; None if it stays: the first one that is twice as
    /// long after its begin as the moment so far, and all doublings since.
    pub(super) fn later_moment_ns(&self, now_ns: u64) -> Option<u64> {
        let twice_ns = self.peak_ns.saturating_sub(self.began_ns).saturating_mul(2).max(1);
        let since_ns = self.at_peak_since_ns?.saturating_sub(self.began_ns).max(twice_ns);
        let doublings = (now_ns.saturating_sub(self.began_ns) / since_ns).checked_ilog2()?;
        Some(self.began_ns + (since_ns << doublings))
    }
}

/// Returns the half of a sampled block, which its release finds again. None for an exact block.
pub(super) fn half(address: u64, block: &Block) -> Option<usize> {
    // Blocks of a loop have the same address at regular times, or regular addresses.
    (block.variance() > 0).then(|| (hash(address ^ hash(block.time_ns)) & 1) as usize)
}
