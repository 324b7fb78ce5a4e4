//! The stacks of a process that its library knows by number: it sends the number in the place of a copy.

use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use nprof_preload::{Memos, WalkedStack};
use nprof_stream::NodeId;
use nprof_unwind::unwind::FrameAddress;
use rustc_hash::FxHashMap;

use crate::convert::address_space::AddressSpace;

/// The most stacks that are kept after their memo was replaced: a ring has room for fewer copies of stacks, each of
/// which replaces one at most.
const REPLACED_MAX: usize = 4096;

/// The stacks that the library of a process knows.
#[derive(Debug)]
pub(crate) struct KnownStacks {
    memos: Memos,
    stacks: FxHashMap<u32, KnownStack>,
    /// The numbers of stacks of which the memo was replaced, the oldest first. Records may still refer to them.
    replaced: VecDeque<u32>,
    latest: u32,
}

/// A complete stack.
#[derive(Clone, Debug)]
pub(crate) struct KnownStack {
    pub(crate) addresses: Rc<[FrameAddress]>,
    /// Its node; none if this epoch has not defined one.
    node: NodeId,
    /// The mappings for which the node is right.
    maps: Weak<AddressSpace>,
}

impl KnownStack {
    /// Returns the node of these mappings, if there is one.
    pub(crate) fn node(&self, maps: &Rc<AddressSpace>) -> Option<NodeId> {
        let is_current = !self.node.is_none() && self.maps.as_ptr() == Rc::as_ptr(maps);
        is_current.then_some(self.node)
    }
}

impl KnownStacks {
    pub(crate) fn new(memos: Memos) -> Self {
        Self { memos, stacks: FxHashMap::default(), replaced: VecDeque::new(), latest: 0 }
    }

    /// Returns a stack by its number. `None` for a number that the library made up, or kept for too long.
    pub(crate) fn get(&self, number: u32) -> Option<&KnownStack> {
        self.stacks.get(&number)
    }

    /// Makes a stack known to the library. One that is too large for a memo stays unknown.
    pub(crate) fn add(
        &mut self,
        stack: &WalkedStack<'_>,
        addresses: &[FrameAddress],
        node: NodeId,
        maps: &Rc<AddressSpace>,
    ) {
        let number = self.latest.checked_add(1).unwrap_or(1);
        let Ok(replaced) = self.memos.write(stack, number) else { return };
        self.latest = number;
        self.replaced.extend(replaced);
        if self.replaced.len() > REPLACED_MAX
            && let Some(oldest) = self.replaced.pop_front()
        {
            self.stacks.remove(&oldest);
        }
        let stack = KnownStack { addresses: addresses.into(), node, maps: Rc::downgrade(maps) };
        self.stacks.insert(number, stack);
    }

    /// Notes the node of a stack, after its mappings or the epoch have changed.
    pub(crate) fn set_node(&mut self, number: u32, node: NodeId, maps: &Rc<AddressSpace>) {
        if let Some(stack) = self.stacks.get_mut(&number) {
            (stack.node, stack.maps) = (node, Rc::downgrade(maps));
        }
    }

    /// Drops the nodes, because their ids are not valid any more.
    pub(crate) fn drop_nodes(&mut self) {
        self.stacks.values_mut().for_each(|stack| stack.node = NodeId::NONE);
    }
}
