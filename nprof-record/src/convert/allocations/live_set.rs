//! The sampled blocks that a process has, and those that it had at its peak. Pure.
//!
//! A sum for each stack holds what is live and how much that has changed since the peak. The peak is their
//! difference, so that the rows of a peak add up to it. A new peak clears only the changes of stacks that
//! have some.
//!
//! The peak is the moment with the highest lower bound, two standard errors below the estimate: the
//! highest estimate would be that of a short block of which the only sample represents more than all others.
//! At the end of a process its blocks are written in any case, and it had them at its peak, too.

use std::collections::VecDeque;

use nprof_stream::NodeId;
use rustc_hash::FxHashMap;

use crate::convert::allocations::block::Block;
use crate::convert::allocations::block_table::BlockTable;
use crate::convert::allocations::sizes::Sizes;

/// The blocks of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// The bytes that they represent.
    pub(crate) weight: u64,
    /// The sum of [`Block::spread`].
    spread: u128,
    /// The number of sampled blocks.
    samples: u64,
    /// The blocks that they represent, in units of 2^-20: a sample of small blocks represents a number
    /// that is not whole.
    parts: u64,
    /// The size of the largest.
    pub(crate) largest: u64,
}

impl Blocks {
    /// Returns the estimated number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.parts.saturating_add(1 << 19) >> 20
    }

    /// Returns the number of equal samples that have the same variance, at most that of samples with a mean
    /// `period`. Blocks of which an adapted period has grown since are few and heavy, and those that it missed
    /// are not there: the earlier samples of the same stack are no measure for them.
    pub(crate) fn count(&self, period: f64) -> u64 {
        let weight = self.weight as f64;
        let count = weight / (self.spread as f64 / weight).max(period);
        (count.round() as u64).max(1)
    }

    fn add(&mut self, block: &Block) {
        self.weight = self.weight.saturating_add(block.weight);
        self.spread = self.spread.saturating_add(block.spread());
        self.samples += 1;
        self.parts = self.parts.saturating_add(block.parts());
    }

    fn subtract(&mut self, block: &Block) {
        self.weight = self.weight.saturating_sub(block.weight);
        self.spread = self.spread.saturating_sub(block.spread());
        self.samples = self.samples.saturating_sub(1);
        self.parts = self.parts.saturating_sub(block.parts());
    }
}

/// The blocks of a stack now, and the changes since the peak.
#[derive(Clone, Debug, Default)]
struct NodeSum {
    /// Without `largest`, which `sizes` has.
    live: Blocks,
    sizes: Sizes,
    allocated: Blocks,
    released: Blocks,
    /// The size of the largest block before the first change.
    largest_before: u64,
}

impl NodeSum {
    fn at_peak(&self) -> Blocks {
        let part = |live: u64, released: u64, allocated: u64| {
            live.saturating_add(released).saturating_sub(allocated)
        };
        let spread = self.live.spread.saturating_add(self.released.spread);
        Blocks {
            weight: part(self.live.weight, self.released.weight, self.allocated.weight),
            spread: spread.saturating_sub(self.allocated.spread),
            samples: part(self.live.samples, self.released.samples, self.allocated.samples),
            parts: part(self.live.parts, self.released.parts, self.allocated.parts),
            largest: if self.has_changed() { self.largest_before } else { self.sizes.largest() },
        }
    }

    fn live(&self) -> Blocks {
        Blocks { largest: self.sizes.largest(), ..self.live }
    }

    fn has_changed(&self) -> bool {
        self.allocated.samples + self.released.samples > 0
    }
}

/// A block that was released.
#[derive(Clone, Copy, Debug)]
struct Released {
    address: u64,
    block: Block,
    time_ns: u64,
}

/// Returns the bytes that a process has at least, by an estimate with a variance.
fn lower_bound(live: u64, variance: u128) -> f64 {
    live as f64 - 2.0 * (variance as f64).sqrt()
}

/// The blocks of a process.
#[derive(Clone, Debug)]
pub(crate) struct LiveSet {
    blocks: BlockTable,
    nodes: FxHashMap<NodeId, NodeSum>,
    live: u64,
    /// The variance of `live`.
    variance: u128,
    /// The lower bound of `live` at the peak. None before the first block.
    peak: Option<f64>,
    peak_ns: u64,
    /// The stacks that have changed since the peak.
    changed: Vec<NodeId>,
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
            live: 0,
            variance: 0,
            peak: None,
            peak_ns: 0,
            changed: Vec::new(),
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
        self.blocks.insert(address, block);
        self.live = self.live.saturating_add(block.weight);
        self.variance = self.variance.saturating_add(block.variance());
        let sum = self.nodes.entry(block.node).or_default();
        // Of the peak, if this is the first change since then.
        let largest_before = sum.sizes.largest();
        sum.live.add(&block);
        sum.sizes.add(block.size);
        if self.peak.is_none_or(|peak| lower_bound(self.live, self.variance) > peak) {
            self.begin_peak(block.time_ns);
            return replaced;
        }
        if !sum.has_changed() {
            self.changed.push(block.node);
            sum.largest_before = largest_before;
        }
        sum.allocated.add(&block);
        replaced
    }

    fn begin_peak(&mut self, time_ns: u64) {
        self.peak = Some(lower_bound(self.live, self.variance));
        self.peak_ns = time_ns;
        for node in self.changed.drain(..) {
            let Some(sum) = self.nodes.get_mut(&node) else { continue };
            (sum.allocated, sum.released) = (Blocks::default(), Blocks::default());
            if sum.live.samples == 0 {
                self.nodes.remove(&node);
            }
        }
    }

    /// Removes a block and returns it. None if it was not sampled.
    pub(crate) fn release(&mut self, address: u64, time_ns: u64) -> Option<Block> {
        let block = self.blocks.remove(address)?;
        self.live = self.live.saturating_sub(block.weight);
        self.variance = self.variance.saturating_sub(block.variance());
        let sum = self.nodes.entry(block.node).or_default();
        if !sum.has_changed() {
            self.changed.push(block.node);
            sum.largest_before = sum.sizes.largest();
        }
        sum.live.subtract(&block);
        sum.sizes.remove(block.size);
        sum.released.add(&block);
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
    pub(crate) fn forked_at(&self, time_ns: u64) -> Self {
        let mut child = Self::new(self.released_max);
        child.blocks = BlockTable::with_room_for(&self.blocks);
        let since = self.released.iter().filter(|released| released.time_ns > time_ns);
        let since = since.map(|released| (released.address, released.block));
        for (address, block) in
            self.blocks.iter().chain(since).filter(|(_, block)| block.time_ns <= time_ns)
        {
            child.allocate(address, block);
        }
        child.released.clear();
        child.begin_peak(time_ns);
        child
    }

    /// Returns the blocks of each stack, by the id of its node.
    pub(crate) fn live(&self) -> Vec<(NodeId, Blocks)> {
        self.rows(NodeSum::live)
    }

    /// Returns the blocks of each stack at the peak, by the id of its node. They add up to the peak.
    fn at_peak(&self) -> Vec<(NodeId, Blocks)> {
        self.rows(NodeSum::at_peak)
    }

    /// Returns the time of the peak and the blocks of each stack then, of a process that ends: those of its end
    /// if they have more bytes by the estimate.
    pub(crate) fn peak_until(&self, end_ns: u64) -> (u64, Vec<(NodeId, Blocks)>) {
        let rows = self.at_peak();
        let peak = rows.iter().map(|(_, blocks)| blocks.weight).fold(0, u64::saturating_add);
        if self.live > peak { (end_ns, self.live()) } else { (self.peak_ns, rows) }
    }

    fn rows(&self, blocks: impl Fn(&NodeSum) -> Blocks) -> Vec<(NodeId, Blocks)> {
        let rows = self.nodes.iter().map(|(&node, sum)| (node, blocks(sum)));
        let mut rows: Vec<_> = rows.filter(|(_, blocks)| blocks.weight > 0).collect();
        rows.sort_unstable_by_key(|(node, _)| *node);
        rows
    }

    /// Drops the stacks, because their ids are not valid any more. The sums stay, without a stack.
    pub(crate) fn drop_nodes(&mut self) {
        self.blocks.drop_nodes();
        self.released.iter_mut().for_each(|released| released.block.node = NodeId::NONE);
        let mut all = NodeSum::default();
        for sum in std::mem::take(&mut self.nodes).into_values() {
            // Before its sizes are moved: the largest at the peak may be one of them.
            all.largest_before = all.largest_before.max(sum.at_peak().largest);
            all.sizes.append(sum.sizes);
            for (whole, part) in [
                (&mut all.live, sum.live),
                (&mut all.allocated, sum.allocated),
                (&mut all.released, sum.released),
            ] {
                whole.weight = whole.weight.saturating_add(part.weight);
                whole.spread = whole.spread.saturating_add(part.spread);
                whole.samples += part.samples;
                whole.parts = whole.parts.saturating_add(part.parts);
            }
        }
        self.changed.clear();
        self.changed.extend(all.has_changed().then_some(NodeId::NONE));
        self.nodes.insert(NodeId::NONE, all);
    }
}

/// Returns the mean distance in bytes of the samples of rows, by their weight.
pub(crate) fn mean_period(rows: &[(NodeId, Blocks)]) -> f64 {
    let sums = rows.iter().map(|(_, blocks)| (blocks.spread as f64, blocks.weight as f64));
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
        rows.iter().map(|(node, blocks)| (node.0, blocks.weight)).collect()
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
        assert_eq!((weights(&set.live()), set.peak_ns), (vec![(3, 90)], 2));
        let largest = |rows: Vec<(NodeId, Blocks)>| rows.iter().map(|it| it.1.largest).max();
        assert_eq!((largest(set.at_peak()), largest(set.live())), (Some(100), Some(90)));
        // A higher peak forgets the one before.
        set.allocate(0x40, block(1, 61, 6));
        assert_eq!((weights(&set.at_peak()), set.peak_ns), (vec![(1, 61), (3, 90)], 6));
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
        assert_eq!((weights(&set.at_peak()), set.peak_ns), (vec![(1, 64 << 20)], 1));
        // Nine of them at a time are more than 64 MiB by all odds.
        for address in 0..9 {
            set.allocate(0x30 + address, Block { size: 6000, ..block(2, 256 << 20, 100) });
        }
        assert_eq!(weights(&set.at_peak()), [(2, 9 * (256 << 20))]);
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
        let known = |set: &LiveSet| set.forked_at(15).len();
        assert_eq!(known(&set), 4);
        set.keep_released(2);
        assert_eq!(known(&set), 2);
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
        assert_eq!(at_peak.iter().map(|(_, blocks)| blocks.weight).sum::<u64>(), peak);
    }
}
