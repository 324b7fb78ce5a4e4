//! The nodes of known stacks, by addresses: most samples need no look-up of their frames. Pure.
//!
//! Most callers of a sample are those of the sample before in its thread. The further ones are mostly
//! known by an *edge*: from a node, by the address of a callee, to the node of that.

use std::rc::{Rc, Weak};

use nprof_stream::{Mark, NodeId};
use nprof_unwind::unwind::FrameAddress;

use crate::convert::address_space::AddressSpace;
use crate::sys;

/// The number of stacks. Threads whose ids have the same remainder share one.
const STACKS: u32 = 16;

/// The first and the highest number of sets of edges, as powers of two: all fit into the processor's cache,
/// and programs with few nodes touch few pages.
const SETS_LOG: (u32, u32) = (8, 13);

/// The number of edges of a set.
const WAYS: usize = 4;

/// The latest stacks of threads, and the edges of all of them.
#[derive(Debug)]
pub(crate) struct StackCache {
    stacks: Vec<LatestStack>,
    edges: Edges,
    /// The number of states of address spaces so far.
    spaces: u64,
}

/// Returns an id that no node has, for the mark at the root of a stack.
fn caller_of_root(mark: Mark) -> NodeId {
    if mark == Mark::None { NodeId::NONE } else { NodeId(u32::MAX - u32::from(mark.number())) }
}

/// A call from the innermost frame of a node.
#[derive(Clone, Copy, Debug)]
struct Edge {
    /// The addresses up to the callee.
    path: PathHash,
    /// A node, or [`caller_of_root`].
    caller: NodeId,
    callee: NodeId,
}

impl Edge {
    /// An edge from an id that no caller has.
    const UNUSED: Self = Self { path: PathHash(0), caller: NodeId(u32::MAX), callee: NodeId::NONE };
}

/// A hash of the addresses from the root to a frame, in one state of an address space. It finds the edge to
/// the frame's node: with that of its caller in place of it, the processor would have to load one edge before
/// it can load the next.
///
/// Two paths from the same caller have the same hash with a probability of 2^-64, and never if they differ
/// in their last address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PathHash(u64);

impl PathHash {
    /// Returns the hash before the root of a stack.
    fn root(space: u64, caller: NodeId) -> Self {
        Self(space.rotate_right(12) ^ u64::from(caller.0).rotate_right(24))
    }

    /// Returns the hash with the address of a callee.
    fn callee(self, address: FrameAddress) -> Self {
        // No code of a user has the highest bit.
        let key = address.value().0 ^ u64::from(address.is_return()) << 63;
        // Fibonacci hashing: the upper bits depend on all bits of the key. It is reversible.
        Self((self.0.rotate_left(26) ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Edges with similar hashes, the latest first. They share a line of the processor's cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct EdgeSet([Edge; WAYS]);

impl EdgeSet {
    const UNUSED: Self = Self([Edge::UNUSED; WAYS]);

    fn add(&mut self, edge: Edge) {
        self.0.rotate_right(1);
        self.0[0] = edge;
    }
}

/// The edges of all stacks, by their hashes; one replaces another.
#[derive(Debug, Default)]
struct Edges {
    /// A power of two of sets. Empty before the first edge.
    sets: Vec<EdgeSet>,
    /// The number of edges that were added.
    added: usize,
}

impl Edges {
    /// Returns the callee of the edge of a stack from a caller.
    fn callee(&self, path: PathHash, caller: NodeId) -> Option<NodeId> {
        let set = self.sets.get(self.index(path))?;
        let edge = set.0.iter().find(|edge| (edge.path, edge.caller) == (path, caller))?;
        Some(edge.callee)
    }

    /// Starts to load the edges of a stack.
    #[inline]
    fn prefetch(&self, path: PathHash) {
        if let Some(set) = self.sets.get(self.index(path)) {
            sys::prefetch(set);
        }
    }

    fn add(&mut self, edge: Edge) {
        let (first, highest) = SETS_LOG;
        if self.added >= self.sets.len() * WAYS / 2 && self.sets.len() < 1 << highest {
            self.grow((self.sets.len() * 2).max(1 << first));
        }
        if self.callee(edge.path, edge.caller) != Some(edge.callee) {
            self.added += 1;
            let index = self.index(edge.path);
            self.sets[index].add(edge);
        }
    }

    fn grow(&mut self, sets: usize) {
        let before = std::mem::replace(&mut self.sets, vec![EdgeSet::UNUSED; sets]);
        let used = |edge: &&Edge| edge.caller != Edge::UNUSED.caller;
        for edge in before.iter().flat_map(|set| set.0.iter().rev()).filter(used) {
            let index = self.index(edge.path);
            self.sets[index].add(*edge);
        }
    }

    fn clear(&mut self) {
        self.sets.fill(EdgeSet::UNUSED);
    }

    fn index(&self, path: PathHash) -> usize {
        // The upper bits of the product are the best.
        (path.0 >> 32) as usize & self.sets.len().wrapping_sub(1)
    }
}

/// The latest stack of a thread, in one state of its address space.
#[derive(Debug, Default)]
pub(crate) struct LatestStack {
    /// A change of the address space moves it, since this reference keeps its memory from being used
    /// again (`Rc::make_mut`).
    maps: Weak<AddressSpace>,
    /// The number of that state.
    pub(crate) space: u64,
    /// The reason why the stack is incomplete: the frame at its root. `None` before the first stack.
    mark: Option<Mark>,
    /// The addresses that have nodes, root first.
    addresses: Vec<FrameAddress>,
    /// The nodes of the stacks from the root up to each of them.
    nodes: Vec<NodeId>,
    /// The hashes of these stacks.
    paths: Vec<PathHash>,
}

/// The outer part of a stack that the latest one of its thread has, too.
#[derive(Debug)]
pub(crate) struct KnownPart {
    tid: u32,
    maps: Rc<AddressSpace>,
    /// The reason why the stack is incomplete.
    mark: Mark,
    /// The number of addresses; 0 if no part is known.
    pub(crate) addresses: usize,
    /// The node of the innermost.
    pub(crate) node: NodeId,
    /// True if the stack will be the latest.
    pub(crate) is_kept: bool,
}

impl KnownPart {
    /// Returns the part of a stack of which nothing is known.
    pub(crate) fn none(tid: u32, maps: Rc<AddressSpace>, mark: Mark, is_kept: bool) -> Self {
        Self { tid, maps, mark, addresses: 0, node: NodeId::NONE, is_kept }
    }
}

impl Default for StackCache {
    fn default() -> Self {
        let stacks = (0..STACKS).map(|_| LatestStack::default()).collect();
        Self { stacks, edges: Edges::default(), spaces: 0 }
    }
}

impl StackCache {
    /// Returns the latest stack of a thread; an empty one if its address space has changed.
    pub(crate) fn of(&mut self, tid: u32, maps: &Rc<AddressSpace>) -> &mut LatestStack {
        let at = (tid % STACKS) as usize;
        if self.stacks[at].maps.as_ptr() != Rc::as_ptr(maps) {
            // Another thread may use the same.
            let same = self.stacks.iter().find(|stack| stack.maps.as_ptr() == Rc::as_ptr(maps));
            let space = same.map_or(self.spaces + 1, |stack| stack.space);
            self.spaces = self.spaces.max(space);
            self.stacks[at] =
                LatestStack { maps: Rc::downgrade(maps), space, ..LatestStack::default() };
        }
        &mut self.stacks[at]
    }

    /// Returns the outer part of a stack, leaf first, that is known. It becomes the latest of the thread.
    pub(crate) fn known_part(
        &mut self,
        tid: u32,
        maps: Rc<AddressSpace>,
        mark: Mark,
        addresses: &[FrameAddress],
    ) -> KnownPart {
        self.of(tid, &maps);
        let latest = &mut self.stacks[(tid % STACKS) as usize];
        latest.keep_common(mark, addresses);
        latest.add_known(addresses, &self.edges);
        let (addresses, node) = (latest.nodes.len(), latest.nodes.last().copied());
        let node = node.unwrap_or(NodeId::NONE);
        KnownPart { addresses, node, ..KnownPart::none(tid, maps, mark, true) }
    }

    /// Takes a stack, leaf first, of which a part was known, as the latest of its thread, unless it is
    /// not to be kept. `nodes` are those of the other part, root first, with that of a new mark at the
    /// root and those of the kernel.
    pub(crate) fn update(
        &mut self,
        known: &KnownPart,
        addresses: &[FrameAddress],
        nodes: &[NodeId],
    ) {
        // A stack that is known as a whole is the latest already.
        if !known.is_kept || known.addresses == addresses.len() && known.addresses > 0 {
            return;
        }
        let first = usize::from(known.addresses == 0 && known.mark != Mark::None);
        let last = first + addresses.len() - known.addresses;
        let nodes = nodes.get(first..last).unwrap_or_default();
        let latest = self.of(known.tid, &known.maps);
        latest.update(known.mark, addresses, known.addresses, nodes);
        let latest = &self.stacks[(known.tid % STACKS) as usize];
        latest.edges_from(known.addresses).for_each(|edge| self.edges.add(edge));
    }

    /// Drops all nodes, for a new epoch.
    pub(crate) fn drop_nodes(&mut self) {
        self.stacks.iter_mut().for_each(LatestStack::drop_nodes);
        self.edges.clear();
    }
}

impl LatestStack {
    fn drop_nodes(&mut self) {
        self.truncate(0);
    }

    /// Drops all but a number of addresses on the outer side.
    fn truncate(&mut self, count: usize) {
        self.addresses.truncate(count);
        self.nodes.truncate(count);
        self.paths.truncate(count);
    }

    /// Returns the reason why a stack that the kernel walked is incomplete, if it ends at the same
    /// address as the latest. None if it does not.
    pub(crate) fn mark_of_end(&self, root: FrameAddress) -> Option<Mark> {
        // The limit of the depth does not follow from the address, nor does the address after it.
        let is_same = self.addresses.first() == Some(&root);
        self.mark.filter(|mark| is_same && !matches!(mark, Mark::MaxDepth | Mark::Unmapped))
    }

    /// Drops all but the addresses on the outer side that a stack, leaf first, has, too.
    fn keep_common(&mut self, mark: Mark, addresses: &[FrameAddress]) {
        if self.mark != Some(mark) {
            self.mark = Some(mark);
            return self.drop_nodes();
        }
        let pairs = self.addresses.iter().zip(addresses.iter().rev());
        let common = pairs.take_while(|(ours, theirs)| ours == theirs).count();
        self.truncate(common);
    }

    /// Returns the caller of the address at a position: its node, or that of [`caller_of_root`].
    fn caller(&self, position: usize) -> NodeId {
        let last = position.checked_sub(1).and_then(|last| self.nodes.get(last)).copied();
        last.unwrap_or_else(|| caller_of_root(self.mark.unwrap_or(Mark::None)))
    }

    /// Adds the addresses of a stack, leaf first, that follow those it has, as far as edges are known.
    fn add_known(&mut self, addresses: &[FrameAddress], edges: &Edges) {
        let first = self.nodes.len();
        let mut path = self.path();
        for &address in addresses.iter().rev().skip(first) {
            path = path.callee(address);
            edges.prefetch(path);
            self.addresses.push(address);
            self.paths.push(path);
        }
        let mut caller = self.caller(first);
        for &path in &self.paths[first..] {
            let Some(callee) = edges.callee(path, caller) else { break };
            caller = callee;
            self.nodes.push(caller);
        }
        self.truncate(self.nodes.len());
    }

    /// Returns the hash of all addresses.
    fn path(&self) -> PathHash {
        self.paths.last().copied().unwrap_or_else(|| PathHash::root(self.space, self.caller(0)))
    }

    /// Returns the edges to the nodes from the number `first` on.
    fn edges_from(&self, first: usize) -> impl Iterator<Item = Edge> {
        let callees = self.nodes.iter().zip(&self.paths).enumerate().skip(first);
        callees.map(|(position, (&callee, &path))| Edge {
            path,
            caller: self.caller(position),
            callee,
        })
    }

    /// Takes a stack, leaf first, with the nodes of the addresses that were not known,
    /// root first.
    fn update(&mut self, mark: Mark, addresses: &[FrameAddress], known: usize, nodes: &[NodeId]) {
        self.mark = Some(mark);
        self.truncate(known);
        let mut path = self.path();
        for &address in addresses.iter().rev().skip(known) {
            path = path.callee(address);
            self.addresses.push(address);
            self.paths.push(path);
        }
        self.nodes.extend_from_slice(nodes);
        // Without ids for all of them, which the limit of an epoch prevents.
        if self.nodes.len() != self.addresses.len() {
            self.drop_nodes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::address_space::Mapping;
    use nprof_object::{ImageOffset, RuntimeAddress};

    /// Returns a stack, leaf first.
    fn stack(addresses: &[u64]) -> Vec<FrameAddress> {
        addresses.iter().map(|&address| FrameAddress::Return(RuntimeAddress(address))).collect()
    }

    fn nodes(ids: &[u32]) -> Vec<NodeId> {
        ids.iter().map(|&id| NodeId(id)).collect()
    }

    /// Returns the known part of a complete stack: its length, and its innermost node.
    fn known(cache: &mut StackCache, maps: &Rc<AddressSpace>, addresses: &[u64]) -> (usize, u32) {
        let known = cache.known_part(7, maps.clone(), Mark::None, &stack(addresses));
        (known.addresses, known.node.0)
    }

    /// Adds a stack with the nodes of its part that is not known, root first.
    fn add(
        cache: &mut StackCache,
        maps: &Rc<AddressSpace>,
        mark: Mark,
        addresses: &[u64],
        ids: &[u32],
    ) {
        let addresses = stack(addresses);
        let known = cache.known_part(7, maps.clone(), mark, &addresses);
        cache.update(&known, &addresses, &nodes(ids));
    }

    #[test]
    fn callers_of_earlier_stacks_are_known() {
        let (mut cache, maps) = (StackCache::default(), Rc::default());
        assert_eq!(known(&mut cache, &maps, &[3, 2, 1]), (0, 0));
        add(&mut cache, &maps, Mark::None, &[3, 2, 1], &[10, 20, 30]);
        assert_eq!(known(&mut cache, &maps, &[4, 2, 1]), (2, 20));
        add(&mut cache, &maps, Mark::None, &[5, 4, 2, 1], &[40, 50]);
        assert_eq!(known(&mut cache, &maps, &[5, 4, 2, 1]), (4, 50), "the latest");
        assert_eq!(known(&mut cache, &maps, &[6, 3, 2, 1]), (3, 30), "one before");
        assert_eq!(known(&mut cache, &maps, &[2, 1]), (2, 20));
        assert_eq!(known(&mut cache, &maps, &[1, 2]), (0, 0), "another root");
        assert_eq!(known(&mut cache, &maps, &[5, 4, 2, 1]), (4, 50), "from the root on");
    }

    #[test]
    fn edges_are_known_after_the_cache_has_grown() {
        let (mut cache, maps) = (StackCache::default(), Rc::default());
        add(&mut cache, &maps, Mark::None, &[1], &[1]);
        let stacks = 1..(WAYS as u32) << (SETS_LOG.1 - 2);
        for leaf in stacks.clone() {
            add(&mut cache, &maps, Mark::None, &[u64::from(leaf) * 16, 1], &[1 + leaf]);
        }
        let mut node = |leaf: u32| known(&mut cache, &maps, &[u64::from(leaf) * 16, 1]);
        let found = stacks.clone().filter(|&leaf| node(leaf) == (2, 1 + leaf)).count();
        // A set with more than four loses some: 1 of 25 edges each time that half of all are in use.
        assert!(found * 10 > stacks.len() * 9, "{found} of {}", stacks.len());
    }

    #[test]
    fn return_address_is_known_apart_from_the_instruction() {
        let (mut cache, maps) = (StackCache::default(), Rc::default());
        add(&mut cache, &maps, Mark::None, &[2, 1], &[10, 20]);
        // The latest stack shall not have it.
        add(&mut cache, &maps, Mark::None, &[9], &[90]);
        let mut addresses = stack(&[2, 1]);
        addresses[0] = FrameAddress::Instruction(RuntimeAddress(2));
        let known = cache.known_part(7, maps, Mark::None, &addresses);
        assert_eq!((known.addresses, known.node), (1, NodeId(10)));
    }

    #[test]
    fn callers_below_a_mark_are_known_apart_from_others() {
        let (mut cache, maps) = (StackCache::default(), Rc::default());
        add(&mut cache, &maps, Mark::None, &[2, 1], &[10, 20]);
        // The first node is that of the mark.
        add(&mut cache, &maps, Mark::Unmapped, &[2, 1], &[30, 40, 50]);
        let mut known = |mark| {
            let known = cache.known_part(7, maps.clone(), mark, &stack(&[2, 1]));
            (known.addresses, known.node.0)
        };
        assert_eq!(known(Mark::Unmapped), (2, 50));
        assert_eq!(known(Mark::None), (2, 20));
        assert_eq!(known(Mark::Unmapped), (2, 50));
        assert_eq!(known(Mark::UnwindFailed), (0, 0));
    }

    #[test]
    fn end_of_stack_is_that_of_the_latest_except_at_the_limit() {
        let mut latest = LatestStack::default();
        latest.update(Mark::UnwindFailed, &stack(&[3, 1]), 0, &nodes(&[10, 20]));
        let [one, two] = stack(&[1, 2])[..] else { unreachable!() };
        assert_eq!(latest.mark_of_end(one), Some(Mark::UnwindFailed));
        assert_eq!(latest.mark_of_end(two), None);
        for mark in [Mark::MaxDepth, Mark::Unmapped] {
            latest.update(mark, &stack(&[3, 1]), 0, &nodes(&[10, 20]));
            assert_eq!(latest.mark_of_end(one), None);
        }
    }

    #[test]
    fn change_of_the_address_space_or_the_epoch_forgets_the_stack() {
        let (mut cache, mut maps) = (StackCache::default(), Rc::<AddressSpace>::default());
        let fill = |cache: &mut StackCache, maps: &Rc<AddressSpace>| {
            add(cache, maps, Mark::None, &[2, 1], &[10, 20]);
        };
        fill(&mut cache, &maps);
        assert_eq!(known(&mut cache, &maps, &[2, 1]), (2, 20));
        let mut of_thread =
            |tid| cache.known_part(tid, maps.clone(), Mark::None, &stack(&[2, 1])).addresses;
        assert_eq!(of_thread(8), 2, "another thread of the process");
        let other = Rc::<AddressSpace>::default();
        assert_eq!(cache.known_part(9, other, Mark::None, &stack(&[2, 1])).addresses, 0);
        let (start, end) = (RuntimeAddress(1), RuntimeAddress(2));
        Rc::make_mut(&mut maps).map(Mapping { start, end, offset: ImageOffset(0), image: 0 });
        assert_eq!(known(&mut cache, &maps, &[2, 1]), (0, 0), "another mapping");
        fill(&mut cache, &maps);
        cache.drop_nodes();
        assert_eq!(known(&mut cache, &maps, &[2, 1]), (0, 0), "another epoch");
    }
}
