//! The latest stack of each thread: most of its callers are those of the next sample, too, and need no
//! further look-up. Pure.

use std::rc::{Rc, Weak};

use nprof_stream::{Mark, NodeId};

use crate::convert::address_space::AddressSpace;
use crate::unwind::FrameAddress;

/// The number of stacks. Threads whose ids have the same remainder share one.
const STACKS: u32 = 16;

/// The latest stacks of threads.
#[derive(Debug)]
pub(crate) struct StackCache(Vec<LatestStack>);

/// The latest stack of a thread, in one state of its address space.
#[derive(Debug, Default)]
pub(crate) struct LatestStack {
    /// A change of the address space moves it, since this reference keeps its memory from being used
    /// again (`Rc::make_mut`).
    maps: Weak<AddressSpace>,
    /// The reason why the stack is incomplete: the frame at its root. `None` before the first stack.
    mark: Option<Mark>,
    /// The addresses that have nodes, root first.
    addresses: Vec<FrameAddress>,
    /// The nodes of the stacks from the root up to each of them.
    nodes: Vec<NodeId>,
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
        Self((0..STACKS).map(|_| LatestStack::default()).collect())
    }
}

impl StackCache {
    /// Returns the latest stack of a thread; an empty one if its address space has changed.
    pub(crate) fn of(&mut self, tid: u32, maps: &Rc<AddressSpace>) -> &mut LatestStack {
        let stack = &mut self.0[(tid % STACKS) as usize];
        if stack.maps.as_ptr() != Rc::as_ptr(maps) {
            *stack = LatestStack { maps: Rc::downgrade(maps), ..LatestStack::default() };
        }
        stack
    }

    /// Returns the outer part of a stack, leaf first, that the latest stack of the thread has, too.
    pub(crate) fn known_part(
        &mut self,
        tid: u32,
        maps: Rc<AddressSpace>,
        mark: Mark,
        addresses: &[FrameAddress],
    ) -> KnownPart {
        let known = self.of(tid, &maps).known(mark, addresses);
        let (addresses, node) = known.unwrap_or((0, NodeId::NONE));
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
        if !known.is_kept {
            return;
        }
        let first = usize::from(known.addresses == 0 && known.mark != Mark::None);
        let last = first + addresses.len() - known.addresses;
        let nodes = nodes.get(first..last).unwrap_or_default();
        let latest = self.of(known.tid, &known.maps);
        latest.update(known.mark, addresses, known.addresses, nodes);
    }

    /// Drops all nodes, for a new epoch.
    pub(crate) fn drop_nodes(&mut self) {
        self.0.iter_mut().for_each(LatestStack::drop_nodes);
    }
}

impl LatestStack {
    fn drop_nodes(&mut self) {
        self.addresses.clear();
        self.nodes.clear();
    }

    /// Returns the reason why a stack that the kernel walked is incomplete, if it ends at the same
    /// address as the latest. None if it does not.
    pub(crate) fn mark_of_end(&self, root: FrameAddress) -> Option<Mark> {
        // The limit of the depth does not follow from the address.
        let is_same = self.addresses.first() == Some(&root);
        self.mark.filter(|mark| is_same && *mark != Mark::MaxDepth)
    }

    /// Returns the number of addresses on the outer side of a stack, leaf first, that the latest stack
    /// has, too, and the node of the innermost of them. None if there are none.
    fn known(&self, mark: Mark, addresses: &[FrameAddress]) -> Option<(usize, NodeId)> {
        if self.mark != Some(mark) {
            return None;
        }
        let pairs = self.addresses.iter().zip(addresses.iter().rev());
        let known = pairs.take_while(|(ours, theirs)| ours == theirs).count();
        Some((known, *self.nodes.get(known.checked_sub(1)?)?))
    }

    /// Takes a stack, leaf first, with the nodes of the addresses that [`Self::known`] has not counted,
    /// root first.
    fn update(&mut self, mark: Mark, addresses: &[FrameAddress], known: usize, nodes: &[NodeId]) {
        self.mark = Some(mark);
        self.addresses.truncate(known);
        self.nodes.truncate(known);
        self.addresses.extend(addresses.iter().rev().skip(known));
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

    #[test]
    fn callers_of_the_latest_stack_are_known() {
        let mut latest = LatestStack::default();
        assert_eq!(latest.known(Mark::None, &stack(&[3, 2, 1])), None);
        latest.update(Mark::None, &stack(&[3, 2, 1]), 0, &nodes(&[10, 20, 30]));
        assert_eq!(latest.known(Mark::None, &stack(&[4, 2, 1])), Some((2, NodeId(20))));
        latest.update(Mark::None, &stack(&[5, 4, 2, 1]), 2, &nodes(&[40, 50]));
        assert_eq!(latest.known(Mark::None, &stack(&[5, 4, 2, 1])), Some((4, NodeId(50))));
        assert_eq!(latest.known(Mark::None, &stack(&[2, 1])), Some((2, NodeId(20))));
        assert_eq!(latest.known(Mark::None, &stack(&[1, 2])), None);
        assert_eq!(latest.known(Mark::Unmapped, &stack(&[2, 1])), None, "another root");
    }

    #[test]
    fn end_of_stack_is_that_of_the_latest_except_at_the_limit() {
        let mut latest = LatestStack::default();
        latest.update(Mark::UnwindFailed, &stack(&[3, 1]), 0, &nodes(&[10, 20]));
        let [one, two] = stack(&[1, 2])[..] else { unreachable!() };
        assert_eq!(latest.mark_of_end(one), Some(Mark::UnwindFailed));
        assert_eq!(latest.mark_of_end(two), None);
        latest.update(Mark::MaxDepth, &stack(&[3, 1]), 0, &nodes(&[10, 20]));
        assert_eq!(latest.mark_of_end(one), None);
    }

    #[test]
    fn change_of_the_address_space_or_the_epoch_forgets_the_stack() {
        let mut cache = StackCache::default();
        let mut maps = Rc::<AddressSpace>::default();
        let callers = stack(&[2, 1]);
        let fill = |cache: &mut StackCache, maps: &Rc<AddressSpace>| {
            cache.of(7, maps).update(Mark::None, &callers, 0, &nodes(&[10, 20]));
        };
        fill(&mut cache, &maps);
        assert!(cache.of(7, &maps).known(Mark::None, &callers).is_some());
        assert_eq!(cache.of(8, &maps).known(Mark::None, &callers), None, "another thread");
        let (start, end) = (RuntimeAddress(1), RuntimeAddress(2));
        Rc::make_mut(&mut maps).map(Mapping { start, end, offset: ImageOffset(0), image: 0 });
        assert_eq!(cache.of(7, &maps).known(Mark::None, &callers), None, "another mapping");
        fill(&mut cache, &maps);
        cache.drop_nodes();
        assert_eq!(cache.of(7, &maps).known(Mark::None, &callers), None, "another epoch");
    }
}
