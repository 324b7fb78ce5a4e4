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
use rustc_hash::FxHashMap;

use crate::convert::allocations::block::Block;
use crate::convert::allocations::block_table::{BlockTable, hash};
use crate::convert::allocations::sizes::Sizes;

/// The sums of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    /// The bytes that they represent.
    weight: u64,
    /// The sum of [`Block::spread`].
    spread: u128,
    /// The excess of the spread because other processes have the same samples.
    shared_spread: u128,
    /// The blocks that they represent, in units of 2^-20: a sample of small blocks represents a number
    /// that is not whole.
    parts: u64,
}

impl Sums {
    /// Returns those of one block.
    fn of(block: &Block) -> Self {
        let (weight, spread, parts) = (block.weight, block.spread(), block.parts());
        Self { weight, spread, shared_spread: 0, parts }
    }

    fn add(&mut self, other: &Self) {
        self.weight = self.weight.saturating_add(other.weight);
        self.spread = self.spread.saturating_add(other.spread);
        self.shared_spread = self.shared_spread.saturating_add(other.shared_spread);
        self.parts = self.parts.saturating_add(other.parts);
    }

    fn subtract(&mut self, other: &Self) {
        self.weight = self.weight.saturating_sub(other.weight);
        self.spread = self.spread.saturating_sub(other.spread);
        self.shared_spread = self.shared_spread.saturating_sub(other.shared_spread);
        self.parts = self.parts.saturating_sub(other.parts);
    }

    /// Returns the mean with others, rounded down.
    fn mean(&self, other: &Self) -> Self {
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
    sums: Sums,
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

/// The blocks of a stack that a side reports: the exact ones, and twice those of the other half.
#[derive(Clone, Copy, Debug, Default)]
struct View {
    now: Sums,
    /// Before the first change since the peak.
    at_peak: Blocks,
    has_changed: bool,
}

/// The blocks of a stack.
#[derive(Clone, Debug, Default)]
struct NodeSum {
    /// By side.
    views: [View; 2],
    sizes: Sizes,
}

impl NodeSum {
    /// Keeps the blocks that a side reports, before their first change since its peak. True if this is the first.
    fn keep_at_peak(&mut self, side: usize) -> bool {
        let view = &mut self.views[side];
        let is_first = !view.has_changed;
        if is_first {
            view.at_peak = Blocks { sums: view.now, largest: self.sizes.largest() };
            view.has_changed = true;
        }
        is_first
    }

    /// Returns the blocks that a side reports of its peak. Their largest may be one of the side's own half: a sampled
    /// size is not exact in any case, and exact blocks change both sides.
    fn at_peak(&self, side: usize) -> Blocks {
        let view = &self.views[side];
        if view.has_changed {
            view.at_peak
        } else {
            Blocks { sums: view.now, largest: self.sizes.largest() }
        }
    }

    /// True if it has no blocks, neither now nor at a peak.
    fn is_unused(&self) -> bool {
        self.sizes.is_empty() && self.views.iter().all(|view| !view.has_changed)
    }
}

/// A choice of the peak, by one half of the sampled blocks and the exact ones.
#[derive(Clone, Debug, Default)]
struct Side {
    /// The estimate of the live bytes.
    live: u64,
    /// The variance of `live`, if it were the estimate by both halves.
    variance: u128,
    /// The lower bound of `live` at the peak. None before the first block.
    peak: Option<f64>,
    /// The time of the allocation with which the peak began.
    began_ns: u64,
    /// The moment that is reported.
    peak_ns: u64,
    /// The time since which the lower bound is that of the peak again. None if it is below. Kept only if there are
    /// sampled blocks.
    at_peak_since_ns: Option<u64>,
    /// The stacks of which the reported blocks have changed since the peak.
    changed: Vec<NodeId>,
}

impl Side {
    /// Returns the bytes that the process has at least, by the estimate.
    fn lower_bound(&self) -> f64 {
        self.live as f64 - 2.0 * (self.variance as f64).sqrt()
    }

    fn is_above_peak(&self) -> bool {
        self.peak.is_none_or(|peak| self.lower_bound() > peak)
    }

    /// Notes a change at a time that begins no peak.
    fn note_change(&mut self, time_ns: u64) {
        let is_at_peak = self.peak == Some(self.lower_bound());
        self.at_peak_since_ns = is_at_peak.then_some(time_ns);
    }

    /// Returns the moment to which the peak is moved on, until now; None if it stays: the first one that is twice as
    /// long after its begin as the moment so far, and all doublings since.
    fn later_moment_ns(&self, now_ns: u64) -> Option<u64> {
        let twice_ns = self.peak_ns.saturating_sub(self.began_ns).saturating_mul(2).max(1);
        let since_ns = self.at_peak_since_ns?.saturating_sub(self.began_ns).max(twice_ns);
        let doublings = (now_ns.saturating_sub(self.began_ns) / since_ns).checked_ilog2()?;
        Some(self.began_ns + (since_ns << doublings))
    }
}

/// Returns the half of a sampled block, which its release finds again. None for an exact block.
fn half(address: u64, block: &Block) -> Option<usize> {
    // Blocks of a loop have the same address at regular times, or regular addresses.
    (block.variance() > 0).then(|| (hash(address ^ hash(block.time_ns)) & 1) as usize)
}

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
        let [first, second] = [0, 1].map(|side| {
            let weights = self.nodes.values().map(|sum| sum.at_peak(side).weight());
            weights.fold(0, u64::saturating_add)
        });
        self.sides[usize::from(self.is_split && second > first)].peak_ns
    }

    /// Returns the time of the peak and the blocks of each stack then, of a process that ends: those of its end
    /// if they have more bytes by the estimate.
    pub(crate) fn peak_until(&self, end_ns: u64) -> (u64, Vec<(NodeId, Blocks)>) {
        let (at_peak, live) = (self.at_peak(), self.live());
        let [peak, end] = [&at_peak, &live].map(|rows| {
            rows.iter().map(|(_, blocks)| blocks.weight()).fold(0, u64::saturating_add)
        });
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

/// Returns the mean distance in bytes of the samples of rows, by their weight.
pub(crate) fn mean_period(rows: &[(NodeId, Blocks)]) -> f64 {
    let sums = rows.iter().map(|(_, blocks)| (blocks.sums.spread as f64, blocks.weight() as f64));
    let (spread, weight) = sums.fold((0.0, 0.0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
    if weight > 0.0 { spread / weight } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(node: u32, weight: u64, time_ns: u64) -> Block {
        Block { node: NodeId(node), size: weight, weight, count: 1, time_ns }
    }

    fn weights(rows: &[(NodeId, Blocks)]) -> Vec<(u32, u64)> {
        rows.iter().map(|(node, blocks)| (node.0, blocks.weight())).collect()
    }

    #[test]
    fn rows_of_peak_are_those_of_its_time_and_add_up() {
        let mut set = LiveSet::new(1024);
        set.allocate(0x10, block(1, 100, 1));
        set.allocate(0x20, block(2, 50, 2));
        assert_eq!(set.release(0x10, 3), Some(block(1, 100, 1)));
        // Below the peak of 150, with another stack.
        set.allocate(0x30, block(3, 90, 4));
        set.release(0x20, 5);
        assert_eq!(weights(&set.at_peak()), [(1, 100), (2, 50)]);
        assert_eq!((weights(&set.live()), set.peak_ns()), (vec![(3, 90)], 2));
        let largest = |rows: Vec<(NodeId, Blocks)>| rows.iter().map(|it| it.1.largest).max();
        assert_eq!((largest(set.at_peak()), largest(set.live())), (Some(100), Some(90)));
        // A higher peak forgets the one before.
        set.allocate(0x40, block(1, 61, 6));
        assert_eq!((weights(&set.at_peak()), set.peak_ns()), (vec![(1, 61), (3, 90)], 6));
    }

    #[test]
    fn one_sample_of_a_long_period_is_no_peak() {
        let mut set = LiveSet::new(1024);
        set.allocate(0x10, block(1, 64 << 20, 1));
        set.release(0x10, 2);
        // At most a few bytes are live, of gigabytes that are allocated and released.
        for time_ns in 3..100 {
            set.allocate(0x20, Block { size: 6000, ..block(2, 256 << 20, time_ns) });
            set.release(0x20, time_ns);
        }
        assert_eq!((weights(&set.at_peak()), set.peak_ns()), (vec![(1, 64 << 20)], 1));
        // Forty of them at a time are more than 64 MiB by all odds, in each half. The last few may come after the
        // last one of the other half.
        for address in 0..40 {
            let late = block(2, 256 << 20, 100 + address);
            set.allocate(0x30 + address, Block { size: 6000, ..late });
        }
        let [(2, weight)] = weights(&set.at_peak())[..] else { panic!("one stack") };
        assert!((36..=40).contains(&(weight >> 28)), "{weight}");
        assert_eq!(weights(&set.peak_until(200).1), [(2, 40 * (256 << 20))]);
    }

    #[test]
    fn peak_of_a_process_is_not_below_its_end() {
        let mut set = LiveSet::new(1024);
        set.allocate(0x10, block(1, 100, 1));
        set.release(0x10, 2);
        assert_eq!(set.peak_until(3), (1, set.at_peak()));
        // One sample of a leak, as by a long period.
        set.allocate(0x20, Block { size: 1000, ..block(2, 1 << 20, 4) });
        assert_eq!(weights(&set.at_peak()), [(1, 100)]);
        let (peak_ns, rows) = set.peak_until(9);
        assert_eq!((peak_ns, weights(&rows)), (9, vec![(2, 1 << 20)]));
    }

    #[test]
    fn number_of_blocks_is_estimated_from_their_size() {
        let mut set = LiveSet::new(1024);
        for address in 0..1000 {
            let sampled = Block { size: 48, ..block(1, 4096, address) };
            set.allocate(address * 16, sampled);
        }
        for address in 0..500 {
            set.release(address * 16, 2000);
        }
        let [(_, blocks)] = set.live()[..] else { panic!("one stack") };
        assert_eq!(blocks.blocks(), 42667, "500 * 4096 / 48");
    }

    #[test]
    fn lost_release_is_found_by_reused_address() {
        let mut set = LiveSet::new(1024);
        set.allocate(0x10, block(1, 100, 1));
        assert_eq!(set.allocate(0x10, block(2, 7, 2)), Some(block(1, 100, 1)));
        assert_eq!(weights(&set.live()), [(2, 7)]);
        assert_eq!(set.release(0x18, 3), None, "another address");
    }

    #[test]
    fn failed_realloc_keeps_its_block() {
        let mut set = LiveSet::new(1024);
        set.allocate(0x10, block(1, 100, 1));
        set.release(0x10, 2);
        assert_eq!(set.keep(0x10, 3), Some(block(1, 100, 1)));
        assert_eq!(weights(&set.live()), [(1, 100)]);
        assert_eq!(set.keep(0x20, 4), None);
    }

    #[test]
    fn child_has_blocks_of_the_time_of_its_fork() {
        let mut set = LiveSet::new(1024);
        set.allocate(0x10, block(1, 100, 1));
        set.allocate(0x20, block(2, 50, 2));
        set.release(0x20, 3);
        set.release(0x10, 6);
        set.allocate(0x10, block(3, 70, 7));
        let child = set.forked_at(5);
        assert_eq!((weights(&child.live()), child.len()), (vec![(1, 100)], 1));
        assert_eq!(weights(&child.at_peak()), [(1, 100)], "its peak begins with what it inherits");
        assert_eq!(weights(&set.live()), [(3, 70)], "the parent is unchanged");
    }

    #[test]
    fn fewer_released_blocks_are_kept_on_demand() {
        let mut set = LiveSet::new(4);
        for address in 0..10 {
            set.allocate(address, block(1, 100, address));
            set.release(address, 20 + address);
        }
        let known = |set: &mut LiveSet| set.forked_at(15).len();
        assert_eq!(known(&mut set), 4);
        set.keep_released(2);
        assert_eq!(known(&mut set), 2);
        assert!(set.clone().keep(9, 40).is_some() && set.keep(7, 40).is_none(), "the latest");
    }

    #[test]
    fn sums_stay_without_their_stacks() {
        let mut set = LiveSet::new(1024);
        set.allocate(0x10, block(1, 100, 1));
        set.allocate(0x20, block(2, 50, 2));
        set.release(0x20, 3);
        set.drop_nodes();
        assert_eq!(weights(&set.live()), [(0, 100)]);
        assert_eq!(weights(&set.at_peak()), [(0, 150)]);
        set.release(0x10, 4);
        assert!(set.live().is_empty());
        assert_eq!(weights(&set.at_peak()), [(0, 150)]);
    }

    #[test]
    fn sums_equal_a_simple_model() {
        let (mut set, mut model) = (LiveSet::new(1024), std::collections::BTreeMap::new());
        let (mut peak, mut at_peak) = (0, Vec::new());
        let mut random = 1_u64;
        for time_ns in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let address = random >> 33 & 0xff;
            if random >> 60 > 7 {
                let new = block((random >> 50 & 7) as u32 + 1, random >> 42 & 0xff, time_ns);
                set.allocate(address, new);
                model.insert(address, new);
            } else {
                assert_eq!(set.release(address, time_ns), model.remove(&address));
            }
            let live: u64 = model.values().map(|block| block.weight).sum();
            if live > peak {
                (peak, at_peak) = (live, set.live());
            }
        }
        assert_eq!(set.at_peak(), at_peak);
        assert_eq!(at_peak.iter().map(|(_, blocks)| blocks.weight()).sum::<u64>(), peak);
    }

    /// The period of simulated programs.
    const PERIOD: u64 = 64 << 10;

    /// A program of which the blocks are sampled as the library does it.
    struct Program {
        set: LiveSet,
        random: u64,
        time_ns: u64,
    }

    impl Program {
        fn new(seed: u64) -> Self {
            Self { set: LiveSet::new(0), random: seed << 32, time_ns: 1000 }
        }

        /// Allocates a block. A small one is sampled with the probability of its size in periods.
        fn malloc(&mut self, node: u32, address: u64, size: u64) {
            self.time_ns += 100;
            self.random += 1;
            if size >= PERIOD {
                let count = size / PERIOD;
                let block = Block { count, ..block(node, size, self.time_ns) };
                self.set.allocate(address, block);
            } else if hash(self.random) % PERIOD < size {
                let block = Block { size, ..block(node, PERIOD, self.time_ns) };
                self.set.allocate(address, block);
            }
        }

        fn free(&mut self, address: u64) {
            self.time_ns += 100;
            self.set.release(address, self.time_ns);
        }

        /// Allocates and releases blocks of 2000 bytes, one at a time.
        fn churn(&mut self, number: u64) {
            for _ in 0..number {
                self.malloc(9, 0xffff, 2000);
                self.free(0xffff);
            }
        }

        /// Returns the bytes of the peak by stack, and of all together.
        fn peak(&self) -> (Vec<(u32, u64)>, f64) {
            let rows = weights(&self.set.peak_until(self.time_ns).1);
            let sum: u64 = rows.iter().map(|(_, weight)| weight).sum();
            (rows, sum as f64)
        }
    }

    #[test]
    fn churn_on_a_plateau_is_not_in_its_peak() {
        // Before, each of these peaks had a sample of the churn.
        for (samples, seeds) in [(50, 100), (500, 20), (5000, 4)] {
            let (mut excess, mut with_churn) = (0.0, 0);
            for seed in 0..seeds {
                let mut program = Program::new(seed);
                let blocks = samples * PERIOD / 4096;
                (0..blocks).for_each(|address| program.malloc(1, address, 4096));
                program.churn(10_000);
                let plateau: u64 = weights(&program.set.live()).iter().map(|row| row.1).sum();
                (0..blocks).for_each(|address| program.free(address));
                let (rows, peak) = program.peak();
                excess += (peak - plateau as f64) / PERIOD as f64 / seeds as f64;
                with_churn += usize::from(rows.iter().any(|(node, _)| *node == 9));
            }
            assert!(excess.abs() < 0.5, "{samples} samples: {excess} periods too much");
            assert_eq!(with_churn, 0, "{samples} samples");
        }
    }

    #[test]
    fn peak_of_many_small_blocks_is_unbiased() {
        let seeds = 200;
        let (mut sum, mut squares) = (0.0, 0.0);
        let blocks = 1600;
        let truth = f64::from((1 << 20) + 4096 * blocks as u32);
        for seed in 0..seeds {
            let mut program = Program::new(seed);
            program.malloc(2, 0xfffe, 1 << 20);
            program.churn(500);
            for address in 0..blocks {
                program.malloc(1, address, 4096);
                program.churn(1);
            }
            program.churn(500);
            (0..blocks).for_each(|address| program.free(address));
            program.churn(500);
            program.free(0xfffe);
            let error = (program.peak().1 - truth) / PERIOD as f64;
            (sum, squares) = (sum + error, squares + error * error);
        }
        let mean = sum / f64::from(seeds as u32);
        let deviation = (squares / f64::from(seeds as u32)).sqrt();
        // A hundred samples have a standard error of ten. The seeds are fixed: the test cannot fail by chance.
        assert!(deviation < 12.0, "{deviation}");
        assert!(mean.abs() < 2.0 * 10.0 / f64::from(seeds as u32).sqrt(), "{mean}");
    }

    #[test]
    fn peak_that_lasts_has_all_its_samples() {
        let mut program = Program::new(1);
        (0..1600).for_each(|address| program.malloc(1, address, 4096));
        let samples = program.set.len() as u64;
        // At the time of the last allocation of one half, some of the other would be missing.
        program.time_ns += 1_000_000;
        (0..1600).for_each(|address| program.free(address));
        assert_eq!(weights(&program.set.at_peak()), [(1, samples * PERIOD)]);
        let peak_ns = program.set.peak_ns();
        assert!((161_000..=1_161_000).contains(&peak_ns), "{peak_ns}");
    }

    #[test]
    fn growth_until_the_end_is_the_peak() {
        let mut program = Program::new(1);
        (0..1600).for_each(|address| program.malloc(1, address, 4096));
        let (peak_ns, rows) = program.set.peak_until(program.time_ns);
        let total = |rows: &[(NodeId, Blocks)]| weights(rows).iter().map(|row| row.1).sum::<u64>();
        assert_eq!(total(&rows), program.set.len() as u64 * PERIOD);
        assert_eq!((peak_ns, rows), (program.time_ns, program.set.live()));
    }

    #[test]
    fn exact_blocks_keep_their_peak_after_a_sampled_one() {
        let mut set = LiveSet::new(1024);
        set.allocate(0x10, block(1, 100, 1));
        set.allocate(0x20, block(2, 51, 2));
        set.release(0x10, 3);
        for time_ns in 4..100 {
            set.allocate(0x30, Block { size: 1, ..block(3, 8, time_ns) });
            set.release(0x30, time_ns);
        }
        assert_eq!((weights(&set.at_peak()), set.peak_ns()), (vec![(1, 100), (2, 51)], 2));
        set.allocate(0x40, block(1, 101, 100));
        assert_eq!((weights(&set.at_peak()), set.peak_ns()), (vec![(1, 101), (2, 51)], 100));
        assert_eq!(set.at_peak()[0].1.largest, 101);
        set.release(0x40, 200);
        set.release(0x20, 201);
        assert_eq!(weights(&set.at_peak()), [(1, 101), (2, 51)]);
        assert!(set.live().is_empty());
    }

    /// Returns the effective number of samples of all rows, as readers find it.
    fn effective_samples<'a>(processes: impl IntoIterator<Item = &'a LiveSet>) -> f64 {
        let (mut sum, mut squares) = (0.0, 0.0);
        for process in processes {
            let rows = process.live();
            let period = mean_period(&rows);
            for (_, blocks) in &rows {
                let weight = blocks.weight() as f64;
                sum += weight;
                squares += weight * weight / blocks.count(period) as f64;
            }
        }
        sum * sum / squares
    }

    /// Returns a process with samples of small blocks in a number of stacks.
    fn with_samples(samples: u64, stacks: u64) -> LiveSet {
        let mut set = LiveSet::new(16);
        for address in 0..samples {
            let small = block((address % stacks) as u32 + 1, PERIOD, address);
            set.allocate(address, Block { size: 100, ..small });
        }
        set
    }

    #[test]
    fn samples_that_children_inherit_count_once() {
        for (stacks, children) in [(2, 0), (2, 1), (2, 8), (2, 16), (1, 50)] {
            let mut parent = with_samples(64, stacks);
            let children: Vec<_> = (0..children).map(|_| parent.forked_at(1000)).collect();
            let effective = effective_samples(children.iter().chain([&parent]));
            assert!((48.0..80.0).contains(&effective), "{} children: {effective}", children.len());
        }
        // A child cannot count half of a sample.
        let mut parent = with_samples(64, 2);
        let children: Vec<_> = (0..50).map(|_| parent.forked_at(1000)).collect();
        let effective = effective_samples(children.iter().chain([&parent]));
        assert!((64.0..128.0).contains(&effective), "{effective}, instead of 3264");
    }

    #[test]
    fn samples_of_grandchildren_count_once() {
        let mut parent = with_samples(1000, 1);
        let mut children: Vec<_> = (0..3).map(|_| parent.forked_at(1000)).collect();
        let grandchildren: Vec<_> = children
            .iter_mut()
            .flat_map(|child| [child.forked_at(2000), child.forked_at(2000)])
            .collect();
        let all = children.iter().chain(&grandchildren).chain([&parent]);
        let effective = effective_samples(all);
        assert!((700.0..1300.0).contains(&effective), "{effective}");
    }

    #[test]
    fn blocks_of_a_child_itself_and_exact_ones_count_as_before() {
        let mut parent = with_samples(64, 1);
        parent.allocate(0x1000, Block { count: 160, ..block(5, 160 * PERIOD, 10) });
        let mut child = parent.forked_at(1000);
        child.allocate(0x2000, Block { size: 100, count: 40, ..block(6, 40 * PERIOD, 1001) });
        let counts = |set: &LiveSet| {
            let rows = set.live();
            let period = mean_period(&rows);
            rows.iter().map(|(node, blocks)| (node.0, blocks.count(period))).collect::<Vec<_>>()
        };
        assert_eq!(counts(&child), [(1, 21), (5, 160), (6, 40)]);
        (0..64).for_each(|address| {
            child.release(address, 2000);
        });
        assert_eq!(counts(&child), [(5, 160), (6, 40)]);
        child.allocate(0x3000, Block { size: 100, ..block(6, PERIOD, 3000) });
        let line = (0..100).fold(child, |mut child, generation| child.forked_at(4000 + generation));
        assert_eq!((counts(&line), line.inherited.len()), (vec![(5, 160), (6, 1)], INHERITED_MAX));
    }
}
