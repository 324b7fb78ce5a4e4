//! The sampled blocks that a process has, and those that it had at its peak. Pure.
//!
//! A sum for each stack holds its live blocks. The first change of a stack after the peak copies its sum, so that the
//! rows of a peak add up to it. A new peak clears only the copies of stacks that have one.
//!
//! The moment with the highest estimate is not an estimate of the peak: of many moments, chance lifts some above the
//! truth, and the highest is one of these. A sampled block that is released at once represents a period; on a plateau
//! it would always be in the peak, although the program never had a period more. Therefore the blocks that choose the
//! moment are not those that are reported:
//!
//! - Each sampled block is in one of two halves, by chance. A block whose weight is its size is exact, has no part
//!   in this error, and is in both.
//! - A side of each half estimates the bytes of the process as the exact ones and twice those of its half. Its peak
//!   is the moment with the highest lower bound: the highest estimate would be that of a short block of which the only
//!   sample represents more than all others. The bound is two standard errors below, of an estimate of this size
//!   by all samples: with the larger error of one half, spikes of ten samples were a fifth too low.
//! - The side reports the exact blocks and the *other* half at this moment, twice. The choice does not depend on the
//!   other half, so that this is an unbiased estimate of the bytes at that moment.
//! - The peak is the mean of the reports of both sides: each sampled block counts at most once.
//!
//! While its half has the same bytes, a side cannot distinguish one moment from the next. It does not stay at the
//! first: that is its last allocation, and the other half has yet to grow by two samples on average. Each time that
//! the peak lasts, or is reached again, twice as long after its begin, the moment is moved on. The other half has no
//! influence on this either.
//!
//! Without sampled blocks, both sides are the same, and only the first is kept: the peak is exact.
//! At the end of a process its blocks are written in any case, and it had them at its peak, too.
//!
//! A forked child has the blocks of its parent, and with them the same samples. Readers add the rows of processes as
//! if they were independent, and derive from them the effective number of samples: the square of the sum of all
//! weights, by the sum of weight² / count. If n samples are in each of m processes, and the i-th counts them as
//! n / (2i - 1), this is n for any m, since the first m odd numbers add up to m². Therefore the j-th child of a
//! process counts inherited samples 2j + 1 times less, and a grandchild by the product of both factors.

use std::collections::VecDeque;
use std::ops::Range;

use nprof_stream::NodeId;
use nprof_stream::number::total;
use rustc_hash::FxHashMap;

use crate::convert::allocations::block::Block;
use crate::convert::allocations::block_table::BlockTable;
use crate::convert::allocations::peak::{NodeSum, Side, half};
use crate::convert::allocations::sums::{Blocks, Sums};
/// The most forks of ancestors that a process knows.
const INHERITED_MAX: usize = 32;

/// The blocks that a process has inherited, and that were allocated until a time.
#[derive(Clone, Copy, Debug)]
struct Inherited {
    until_ns: u64,
    /// The factor by which its samples count less, because other processes have them, too.
    factor: u64,
}

/// A block that was released.
#[derive(Clone, Copy, Debug)]
struct Released {
    address: u64,
    block: Block,
    time_ns: u64,
}

/// The blocks of a process.
#[derive(Clone, Debug)]
pub(crate) struct LiveSet {
    blocks: BlockTable,
    nodes: FxHashMap<NodeId, NodeSum>,
    sides: [Side; 2],
    /// True since the first sampled block: until then the second side, and the views of it, would equal the first,
    /// and are left empty. With the period 1 there are millions of blocks in a second.
    is_split: bool,
    /// By time: the fork of this process is the last.
    inherited: Vec<Inherited>,
    /// The number of children that were forked from this process.
    children: u64,
    /// The latest released blocks, the oldest first.
    released: VecDeque<Released>,
    released_max: usize,
}

impl LiveSet {
    /// Creates a set without blocks, which keeps some released ones.
    pub(crate) fn new(released_max: usize) -> Self {
        Self {
            blocks: BlockTable::new(),
            nodes: FxHashMap::default(),
            sides: Default::default(),
            is_split: false,
            inherited: Vec::new(),
            children: 0,
            released: VecDeque::new(),
            released_max,
        }
    }

    /// Changes the number of released blocks that are kept.
    pub(crate) fn keep_released(&mut self, most: usize) {
        self.released_max = most;
        let surplus = self.released.len().saturating_sub(most);
        self.released.drain(..surplus);
        self.released.shrink_to(most);
    }

    /// Returns the number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Adds a block. Returns the one at the same address of which the release was lost.
    pub(crate) fn allocate(&mut self, address: u64, block: Block) -> Option<Block> {
        let replaced = self.release(address, block.time_ns);
        let half = half(address, &block);
        if half.is_some() && !self.is_split {
            self.split(block.time_ns);
        }
        self.prolong_peaks(block.time_ns);
        self.blocks.insert(address, block);
        let mut begins = [false; 2];
        let (sums, variance) = self.shares(&block, half);
        for side in self.choosing(half) {
            let chosen = &mut self.sides[side];
            chosen.live = chosen.live.saturating_add(sums.weight);
            chosen.variance = chosen.variance.saturating_add(variance);
            begins[side] = chosen.is_above_peak();
            if self.is_split {
                chosen.note_change(block.time_ns);
            }
        }
        let reporting = self.reporting(half);
        let sum = self.nodes.entry(block.node).or_default();
        for side in reporting {
            if !begins[side] && sum.keep_at_peak(side) {
                self.sides[side].changed.push(block.node);
            }
            sum.views[side].now.add(&sums);
        }
        sum.sizes.add(block.size);
        for side in (0..2).filter(|&side| begins[side]) {
            self.begin_peak(side, block.time_ns);
        }
        replaced
    }

    /// Returns the sides that are kept.
    fn kept(&self) -> Range<usize> {
        0..1 + usize::from(self.is_split)
    }

    /// Returns the sides that choose their peak by the blocks of a half, or by exact ones.
    fn choosing(&self, half: Option<usize>) -> Range<usize> {
        half.map_or(self.kept(), |half| half..half + 1)
    }

    /// Returns the sides that report the blocks of a half, or exact ones.
    fn reporting(&self, half: Option<usize>) -> Range<usize> {
        half.map_or(self.kept(), |half| 1 - half..2 - half)
    }

    /// Returns the sums of a block in the estimate of a side, and its part of the variance by which the lower bound
    /// is below it: a sampled block stands for the other half, too.
    fn shares(&self, block: &Block, half: Option<usize>) -> (Sums, u128) {
        let mut sums = Sums::of(block);
        // Exact blocks are no estimate. Their count makes a margin too large in any case, however often it is added.
        if half.is_none() {
            return (sums, 0);
        }
        sums.shared_spread = sums.spread.saturating_mul(u128::from(self.factor(block) - 1));
        let once = sums;
        sums.add(&once);
        (sums, block.variance().saturating_mul(2))
    }

    /// Returns the factor by which a sampled block counts less. A block that a failed realloc has kept counts as a
    /// block of its own.
    fn factor(&self, block: &Block) -> u64 {
        let inherited = self.inherited.iter().find(|it| block.time_ns <= it.until_ns);
        inherited.map_or(1, |it| it.factor)
    }

    /// Keeps both sides from now on.
    fn split(&mut self, time_ns: u64) {
        self.is_split = true;
        for sum in self.nodes.values_mut() {
            sum.views[1] = sum.views[0];
        }
        let first = &mut self.sides[0];
        if first.peak.is_none() {
            (first.began_ns, first.peak_ns) = (time_ns, time_ns);
        }
        first.at_peak_since_ns = first.changed.is_empty().then_some(first.began_ns);
        self.sides[1] = first.clone();
    }

    /// Moves the moment of each side on until now, before the next change.
    fn prolong_peaks(&mut self, now_ns: u64) {
        if !self.is_split {
            return;
        }
        for side in 0..2 {
            if let Some(moment_ns) = self.sides[side].later_moment_ns(now_ns) {
                self.sides[side].peak_ns = moment_ns;
                self.forget_changes(side);
            }
        }
    }

    fn begin_peak(&mut self, side: usize, time_ns: u64) {
        let chosen = &mut self.sides[side];
        chosen.peak = Some(chosen.lower_bound());
        (chosen.began_ns, chosen.peak_ns) = (time_ns, time_ns);
        chosen.at_peak_since_ns = Some(time_ns);
        self.forget_changes(side);
    }

    fn forget_changes(&mut self, side: usize) {
        for node in self.sides[side].changed.drain(..) {
            let Some(sum) = self.nodes.get_mut(&node) else { continue };
            sum.views[side].has_changed = false;
            if sum.is_unused() {
                self.nodes.remove(&node);
            }
        }
    }

    /// Removes a block and returns it. None if it was not sampled.
    pub(crate) fn release(&mut self, address: u64, time_ns: u64) -> Option<Block> {
        let block = self.blocks.remove(address)?;
        let half = half(address, &block);
        self.prolong_peaks(time_ns);
        let (sums, variance) = self.shares(&block, half);
        for side in self.choosing(half) {
            let chosen = &mut self.sides[side];
            chosen.live = chosen.live.saturating_sub(sums.weight);
            chosen.variance = chosen.variance.saturating_sub(variance);
            if self.is_split {
                chosen.note_change(time_ns);
            }
        }
        let reporting = self.reporting(half);
        let sum = self.nodes.entry(block.node).or_default();
        for side in reporting {
            if sum.keep_at_peak(side) {
                self.sides[side].changed.push(block.node);
            }
            sum.views[side].now.subtract(&sums);
        }
        sum.sizes.remove(block.size);
        if self.released.len() >= self.released_max {
            self.released.pop_front();
        }
        self.released.push_back(Released { address, block, time_ns });
        Some(block)
    }

    /// Adds the block at an address again, because the program has kept it. Returns it; None if its
    /// release is not among the latest.
    pub(crate) fn keep(&mut self, address: u64, time_ns: u64) -> Option<Block> {
        let at = self.released.iter().rposition(|released| released.address == address)?;
        let block = self.released.remove(at)?.block;
        self.allocate(address, Block { time_ns, ..block });
        Some(block)
    }

    /// Returns the blocks of a child that was forked at a time, as far as their release since then is
    /// known.
    pub(crate) fn forked_at(&mut self, time_ns: u64) -> Self {
        let mut child = Self::new(self.released_max);
        child.inherited = self.inherited_by_next_child(time_ns);
        child.blocks = BlockTable::with_room_for(&self.blocks);
        let since = self.released.iter().filter(|released| released.time_ns > time_ns);
        let since = since.map(|released| (released.address, released.block));
        for (address, block) in
            self.blocks.iter().chain(since).filter(|(_, block)| block.time_ns <= time_ns)
        {
            child.allocate(address, block);
        }
        child.released.clear();
        for side in child.kept() {
            child.begin_peak(side, time_ns);
        }
        child
    }

    /// Counts a child. Returns the factors of the blocks that it inherits.
    fn inherited_by_next_child(&mut self, time_ns: u64) -> Vec<Inherited> {
        self.children += 1;
        // Earlier children do not have the blocks that were allocated since: the margins of these are too large.
        let factor = self.children.saturating_mul(2).saturating_add(1);
        let product =
            |it: &Inherited| Inherited { factor: it.factor.saturating_mul(factor), ..*it };
        let before = self.inherited.iter().map(product);
        // The oldest blocks of a long line of processes count as those of the next generation.
        let before = before.skip((self.inherited.len() + 1).saturating_sub(INHERITED_MAX));
        before.chain([Inherited { until_ns: time_ns, factor }]).collect()
    }

    /// Returns the blocks of each stack, by the id of its node.
    pub(crate) fn live(&self) -> Vec<(NodeId, Blocks)> {
        self.rows(|sum| {
            let [first, second] = sum.views.map(|view| view.now);
            // The mean of twice one half and twice the other is the whole.
            let sums = if self.is_split { first.mean(&second) } else { first };
            Blocks { sums, largest: sum.sizes.largest() }
        })
    }

    /// Returns the blocks of each stack at the peak, by the id of its node. They add up to the peak.
    fn at_peak(&self) -> Vec<(NodeId, Blocks)> {
        self.rows(|sum| {
            let first = sum.at_peak(0);
            if !self.is_split {
                return first;
            }
            let second = sum.at_peak(1);
            let with_bytes = [first, second].into_iter().filter(|blocks| blocks.weight() > 0);
            Blocks {
                sums: first.sums.mean(&second.sums),
                largest: with_bytes.map(|blocks| blocks.largest).max().unwrap_or(0),
            }
        })
    }

    /// Returns the time of the peak: of two, that with more bytes by the half that did not choose it. Where they
    /// differ, the other one is rather a moment that chance has lifted.
    fn peak_ns(&self) -> u64 {
        let [first, second] =
            [0, 1].map(|side| total(self.nodes.values().map(|sum| sum.at_peak(side).weight())));
        self.sides[usize::from(self.is_split && second > first)].peak_ns
    }

    /// Returns the time of the peak and the blocks of each stack then, of a process that ends: those of its end
    /// if they have more bytes by the estimate.
    pub(crate) fn peak_until(&self, end_ns: u64) -> (u64, Vec<(NodeId, Blocks)>) {
        let (at_peak, live) = (self.at_peak(), self.live());
        let [peak, end] =
            [&at_peak, &live].map(|rows| total(rows.iter().map(|(_, blocks)| blocks.weight())));
        if end > peak { (end_ns, live) } else { (self.peak_ns(), at_peak) }
    }

    fn rows(&self, blocks: impl Fn(&NodeSum) -> Blocks) -> Vec<(NodeId, Blocks)> {
        let rows = self.nodes.iter().map(|(&node, sum)| (node, blocks(sum)));
        let mut rows: Vec<_> = rows.filter(|(_, blocks)| blocks.weight() > 0).collect();
        rows.sort_unstable_by_key(|(node, _)| *node);
        rows
    }

    /// Drops the stacks, because their ids are not valid any more. The sums stay, without a stack.
    pub(crate) fn drop_nodes(&mut self) {
        self.blocks.drop_nodes();
        self.released.iter_mut().for_each(|released| released.block.node = NodeId::NONE);
        let mut all = NodeSum::default();
        for sum in std::mem::take(&mut self.nodes).into_values() {
            for side in self.kept() {
                let before = sum.at_peak(side);
                let view = &mut all.views[side];
                view.now.add(&sum.views[side].now);
                view.at_peak.sums.add(&before.sums);
                view.at_peak.largest = view.at_peak.largest.max(before.largest);
                view.has_changed = true;
            }
            all.sizes.append(sum.sizes);
        }
        for (side, view) in self.sides.iter_mut().zip(&all.views) {
            side.changed.clear();
            side.changed.extend(view.has_changed.then_some(NodeId::NONE));
        }
        self.nodes.insert(NodeId::NONE, all);
    }
}

#[cfg(test)]
mod tests;
