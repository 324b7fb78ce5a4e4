//! The live blocks of a process by address, in at most 42 bytes each. Pure.
//!
//! In exact mode there are millions, of which a general hash table would need 147 bytes each while it grows: the
//! blocks are packed into 26 bytes, and a table of many blocks consists of parts that grow one at a time, by a
//! quarter. Open addressing with linear probing; a removed block is replaced by those after it.

use nprof_stream::NodeId;
use rustc_hash::FxHashMap;

use crate::convert::allocations::block::Block;

/// The bits of an address and of a size that fit into a packed block.
const ADDRESS_BITS: u32 = 48;

/// Set in `shares` if the weight of a packed block is not its size.
const IS_SAMPLED: u32 = 1 << 31;

/// The number of parts of a table with more than `FEW` blocks: a power of two.
const PARTS: usize = 64;
const FEW: usize = 4096;

/// The largest part of the slots that are occupied: four in five. A search of an absent block visits 13 of
/// them then.
const fn slots_max(slots: usize) -> usize {
    slots - slots / 5
}

/// A block with its address. Numbers are little-endian: an aligned structure would be a quarter larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed {
    address: [u8; 6],
    time_ns: [u8; 8],
    node: [u8; 4],
    size: [u8; 4],
    /// `count` if the weight is the size; otherwise `IS_SAMPLED`, the index of a period, and the number of
    /// periods.
    shares: [u8; 4],
}

const EMPTY: Packed =
    Packed { address: [0; 6], time_ns: [0; 8], node: [0; 4], size: [0; 4], shares: [0xff; 4] };

impl Packed {
    fn is_empty(&self) -> bool {
        self.shares == EMPTY.shares
    }

    fn address(&self) -> u64 {
        let [a, b, c, d, e, f] = self.address;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

/// The blocks of which the address has the same remainder of its hash.
#[derive(Clone, Debug, Default)]
struct Part {
    slots: Vec<Packed>,
    len: usize,
}

impl Part {
    fn with_slots(slots: usize) -> Self {
        Self { slots: vec![EMPTY; slots], len: 0 }
    }

    /// Returns the slot at which the search of an address begins.
    fn home(&self, address: u64) -> usize {
        // A multiplication maps to any number of slots evenly; a division takes longer.
        ((u128::from(hash(address)) * self.slots.len() as u128) >> 64) as usize
    }

    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// Returns the slot of an address, or the empty one at which its search ends. None without slots.
    fn find(&self, address: u64) -> Option<usize> {
        let mut slot = self.home(address);
        // At least one slot is empty.
        loop {
            let packed = self.slots.get(slot)?;
            if packed.is_empty() || packed.address() == address {
                return Some(slot);
            }
            slot = self.next(slot);
        }
    }

    fn insert(&mut self, packed: Packed) {
        if self.len >= slots_max(self.slots.len()) {
            self.grow();
        }
        let Some(slot) = self.find(packed.address()) else { return };
        self.len += usize::from(self.slots[slot].is_empty());
        self.slots[slot] = packed;
    }

    fn grow(&mut self) {
        let slots = self.slots.len() + (self.slots.len() / 4).max(8);
        let before = std::mem::replace(self, Self::with_slots(slots));
        before.slots.into_iter().filter(|packed| !packed.is_empty()).for_each(|it| self.insert(it));
    }

    fn remove(&mut self, address: u64) -> Option<Packed> {
        let mut hole = self.find(address)?;
        let removed = self.slots[hole];
        if removed.is_empty() {
            return None;
        }
        self.len -= 1;
        let mut slot = hole;
        loop {
            slot = self.next(slot);
            let packed = self.slots[slot];
            if packed.is_empty() {
                break;
            }
            // The search of a block does not pass the hole if its home lies after it.
            let home = self.home(packed.address());
            let is_after = if hole <= slot {
                hole < home && home <= slot
            } else {
                hole < home || home <= slot
            };
            if !is_after {
                self.slots[hole] = packed;
                hole = slot;
            }
        }
        self.slots[hole] = EMPTY;
        Some(removed)
    }
}

/// Returns a number of which all bits depend on all bits of another (the finalizer of MurmurHash3, A. Appleby).
pub(super) fn hash(number: u64) -> u64 {
    let mixed = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

/// The blocks of a process by their address.
#[derive(Clone, Debug)]
pub(crate) struct BlockTable {
    /// One, or `PARTS`.
    parts: Vec<Part>,
    /// The distinct numbers of bytes that a count of one represents.
    periods: Vec<u64>,
    /// The blocks that cannot be packed: of 4 GiB or more, or invented by a hostile program.
    unpacked: FxHashMap<u64, Block>,
    packed: usize,
}

impl BlockTable {
    /// Creates a table without blocks.
    pub(crate) fn new() -> Self {
        Self {
            parts: vec![Part::default()],
            periods: Vec::new(),
            unpacked: FxHashMap::default(),
            packed: 0,
        }
    }

    /// Creates a table without blocks, with room for those of another one. They are iterated in the order of
    /// their hashes: those that a small table has so far would all have their homes in its first slots, and each
    /// search would visit all of them.
    pub(crate) fn with_room_for(other: &Self) -> Self {
        let part = |blocks: usize| Part::with_slots(blocks + blocks / 3 + 8);
        let parts = if other.packed > FEW {
            other.parts.iter().map(|other| part(other.len)).collect()
        } else {
            vec![part(other.packed)]
        };
        Self { parts, ..Self::new() }
    }

    /// Returns the number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.packed + self.unpacked.len()
    }

    /// Adds a block at an address that has none.
    pub(crate) fn insert(&mut self, address: u64, block: Block) {
        let Some(packed) = self.pack(address, &block) else {
            self.unpacked.insert(address, block);
            return;
        };
        if self.parts.len() == 1 && self.packed >= FEW {
            let few = std::mem::replace(&mut self.parts, vec![Part::default(); PARTS]);
            let few = few.into_iter().flat_map(|part| part.slots);
            few.filter(|packed| !packed.is_empty())
                .for_each(|it| self.part(it.address()).insert(it));
        }
        let part = self.part(address);
        let before = part.len;
        part.insert(packed);
        let added = part.len - before;
        self.packed += added;
    }

    /// Removes the block at an address and returns it.
    pub(crate) fn remove(&mut self, address: u64) -> Option<Block> {
        if let Some(removed) = self.part(address).remove(address) {
            self.packed -= 1;
            return Some(self.unpack(&removed));
        }
        // Nearly always empty.
        if self.unpacked.is_empty() { None } else { self.unpacked.remove(&address) }
    }

    /// Returns all blocks with their addresses, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Block)> {
        let packed = self.parts.iter().flat_map(|part| &part.slots).filter(|it| !it.is_empty());
        let packed = packed.map(|packed| (packed.address(), self.unpack(packed)));
        packed.chain(self.unpacked.iter().map(|(address, block)| (*address, *block)))
    }

    /// Drops the stacks of all blocks.
    pub(crate) fn drop_nodes(&mut self) {
        let packed = self.parts.iter_mut().flat_map(|part| &mut part.slots);
        packed.for_each(|packed| packed.node = NodeId::NONE.0.to_le_bytes());
        self.unpacked.values_mut().for_each(|block| block.node = NodeId::NONE);
    }

    fn part(&mut self, address: u64) -> &mut Part {
        // The upper bits of the hash select the slot.
        let part = hash(address) as usize % self.parts.len();
        &mut self.parts[part]
    }

    /// Returns the packed form of a block. None if it has none.
    fn pack(&mut self, address: u64, block: &Block) -> Option<Packed> {
        if address >> ADDRESS_BITS != 0 {
            return None;
        }
        let shares = if block.weight == block.size {
            u32::try_from(block.count).ok().filter(|count| count & IS_SAMPLED == 0)?
        } else {
            let count = u16::try_from(block.count).ok().filter(|&count| count > 0)?;
            let period = block.weight / block.count;
            if period * block.count != block.weight {
                return None;
            }
            IS_SAMPLED | u32::from(self.period(period)?) << 16 | u32::from(count)
        };
        let [a, b, c, d, e, f, ..] = address.to_le_bytes();
        Some(Packed {
            address: [a, b, c, d, e, f],
            time_ns: block.time_ns.to_le_bytes(),
            node: block.node.0.to_le_bytes(),
            size: u32::try_from(block.size).ok()?.to_le_bytes(),
            shares: shares.to_le_bytes(),
        })
    }

    /// Returns the index of a period. None if there are too many: a process has some ten.
    fn period(&mut self, period: u64) -> Option<u8> {
        let known = self.periods.iter().position(|known| *known == period);
        let index = u8::try_from(known.unwrap_or(self.periods.len())).ok()?;
        if known.is_none() {
            self.periods.push(period);
        }
        Some(index)
    }

    fn unpack(&self, packed: &Packed) -> Block {
        let size = u64::from(u32::from_le_bytes(packed.size));
        let shares = u32::from_le_bytes(packed.shares);
        let (weight, count) = if shares & IS_SAMPLED == 0 {
            (size, u64::from(shares))
        } else {
            let count = u64::from(shares & 0xffff);
            let period = self.periods.get((shares >> 16 & 0xff) as usize).copied().unwrap_or(0);
            (period * count, count)
        };
        let node = NodeId(u32::from_le_bytes(packed.node));
        Block { node, size, weight, count, time_ns: u64::from_le_bytes(packed.time_ns) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn exact(size: u64, time_ns: u64) -> Block {
        Block { node: NodeId(size as u32), size, weight: size, count: size, time_ns }
    }

    /// The memory of the blocks of a table, while its largest part grows.
    fn most_bytes(table: &BlockTable) -> usize {
        let bytes = |part: &Part| part.slots.capacity() * size_of::<Packed>();
        let parts: usize = table.parts.iter().map(bytes).sum();
        parts + table.parts.iter().map(bytes).max().unwrap_or(0)
    }

    #[test]
    fn block_takes_at_most_42_bytes_however_many_there_are() {
        let mut table = BlockTable::new();
        for number in 0..1 << 20 {
            table.insert(0x7f00_0000_0000 + 48 * number, exact(40, number));
            // One part of 64 is twice in memory while it grows, or smaller than the others by chance.
            let bytes = table.len() * 42 + 512 * PARTS;
            let is_split = table.len() > 4 * FEW;
            assert!(!is_split || most_bytes(&table) <= bytes, "{}", table.len());
        }
        assert_eq!((table.len(), table.unpacked.len()), (1 << 20, 0));
    }

    #[test]
    fn blocks_are_those_that_were_added() {
        let sampled = |size, period, count| Block {
            node: NodeId(7),
            size,
            weight: period * count,
            count,
            time_ns: u64::MAX,
        };
        let large = 5 << 32;
        let blocks = [
            (0, exact(0, 0)),
            (0xffff_ffff_fff0, exact(u64::from(u32::MAX >> 1), 1)),
            (0x10, exact(u64::from(u32::MAX), 2)),
            (0x20, sampled(48, 512 << 10, 1)),
            (0x30, sampled(4096, 5000, 2)),
            (0x40, Block { count: 3, ..exact(700_000, 3) }),
            (0x50, Block { weight: large, count: 40_960, ..exact(large, 4) }),
            (u64::MAX, exact(16, 5)),
            (0x60, Block { weight: 7, count: 2, ..exact(9, 6) }),
            (0x70, Block { weight: 7, count: 0, ..exact(9, 7) }),
            (0x80, Block { weight: u64::MAX, count: 65_536, ..exact(9, 8) }),
        ];
        let mut table = BlockTable::new();
        blocks.iter().for_each(|(address, block)| table.insert(*address, *block));
        let seen: BTreeMap<u64, Block> = table.iter().collect();
        assert_eq!(seen, BTreeMap::from(blocks));
        for (address, block) in blocks {
            assert_eq!((table.remove(address), table.remove(address)), (Some(block), None));
        }
        assert_eq!((table.len(), table.iter().count()), (0, 0));
    }

    #[test]
    fn searches_are_short_while_a_table_is_copied() {
        let mut table = BlockTable::new();
        for number in 0..1 << 18 {
            table.insert(0x7f00_0000_0000 + 48 * number, exact(40, number));
        }
        let mut copy = BlockTable::with_room_for(&table);
        for (address, block) in table.iter().take(table.len() / PARTS / 2) {
            copy.insert(address, block);
        }
        // The slots from the home of each block to its own.
        let distances = copy.parts.iter().flat_map(|part| {
            let (slots, occupied) = (part.slots.len(), part.slots.iter().enumerate());
            let occupied = occupied.filter(|(_, packed)| !packed.is_empty());
            occupied.map(move |(at, packed)| (at + slots - part.home(packed.address())) % slots)
        });
        let (blocks, sum) = distances.fold((0, 0), |(blocks, sum), it| (blocks + 1, sum + it));
        assert_eq!(blocks, copy.len());
        assert!(sum < 10 * blocks, "{sum} slots for {blocks} blocks");
        copy.insert(0x10, exact(1, 1));
        assert_eq!((copy.len(), copy.remove(0x10)), (blocks + 1, Some(exact(1, 1))));
    }

    #[test]
    fn more_periods_than_a_byte_can_number_are_kept() {
        let mut table = BlockTable::new();
        for period in 1..1000 {
            let block = Block { weight: period, count: 1, ..exact(0, period) };
            table.insert(period << 4, block);
        }
        for period in 1..1000 {
            assert_eq!(table.remove(period << 4).map(|it| it.weight), Some(period));
        }
    }

    #[test]
    fn table_equals_a_simple_model() {
        let (mut table, mut model) = (BlockTable::new(), BTreeMap::new());
        let mut random = 1_u64;
        // More blocks than one part has; then fewer and fewer.
        for time_ns in 0..200_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let address = (random >> 40 & 0x3fff) << 4;
            let adds = random >> 60 < if time_ns < 100_000 { 12 } else { 4 };
            if adds && !model.contains_key(&address) {
                let block = exact(random >> 50 & 0xff, time_ns);
                table.insert(address, block);
                model.insert(address, block);
            } else if !adds {
                assert_eq!(table.remove(address), model.remove(&address));
            }
            assert_eq!(table.len(), model.len());
        }
        assert!(table.parts.len() == PARTS);
        table.drop_nodes();
        model.values_mut().for_each(|block| block.node = NodeId::NONE);
        assert_eq!(table.iter().collect::<BTreeMap<_, _>>(), model);
    }
}
