//! Assigns ids to the contents of an epoch, for programs that write streams. Pure.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::record::limits;
use crate::record::{FrameId, NodeId, Nodes};

/// The highest id that is assigned. The limit itself stays undefined: it can stand for lost ids.
const LAST: usize = limits::ID as usize - 1;

/// The ids of one kind, by content.
#[derive(Clone, Debug)]
pub struct AssignedIds<K> {
    ids: FxHashMap<K, u32>,
}

/// The result of a request for an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// The content has this id already.
    Known(u32),
    /// The content got this id, which the caller must define in the stream before its first use.
    New(u32),
    /// The content has no id, and there are no more.
    Exhausted,
}

impl<K> Default for AssignedIds<K> {
    fn default() -> Self {
        Self { ids: FxHashMap::default() }
    }
}

impl<K: Eq + Hash> AssignedIds<K> {
    /// Returns the number of ids, which is the highest one.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True if no id is assigned.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the id of a content. None if it has none.
    pub fn get(&self, content: &K) -> Option<u32> {
        self.ids.get(content).copied()
    }

    /// Returns the id of a content, and assigns the next one if it has none.
    pub fn assign(&mut self, content: K) -> Assigned {
        if self.ids.len() == LAST {
            return self.get(&content).map_or(Assigned::Exhausted, Assigned::Known);
        }
        // Ids count from 1; 0 means none.
        let next = self.ids.len() as u32 + 1;
        let id = *self.ids.entry(content).or_insert(next);
        if id == next { Assigned::New(id) } else { Assigned::Known(id) }
    }

    /// Drops all ids, for a new epoch, and keeps the memory.
    pub fn clear(&mut self) {
        self.ids.clear();
    }
}

/// The ids of nodes by parent and frame, and the *branch*: the new nodes that are not written yet, each the
/// parent of the next.
#[derive(Clone, Debug, Default)]
pub struct AssignedNodes {
    ids: AssignedIds<(NodeId, FrameId)>,
    first: NodeId,
    parent: NodeId,
    frames: Vec<FrameId>,
}

impl AssignedNodes {
    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True if there is no node.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the id of a node, and appends it to the branch if it is new: the caller must then write
    /// [`branch`](Self::branch) before it uses the id or asks for a node that is no descendant. None if
    /// there are no more ids.
    pub fn assign(&mut self, parent: NodeId, frame: FrameId) -> Option<NodeId> {
        match self.ids.assign((parent, frame)) {
            Assigned::Known(id) => Some(NodeId(id)),
            Assigned::New(id) => {
                if self.frames.is_empty() {
                    (self.first, self.parent) = (NodeId(id), parent);
                }
                self.frames.push(frame);
                Some(NodeId(id))
            }
            Assigned::Exhausted => None,
        }
    }

    /// Returns the branch as a record. None if all nodes are written.
    pub fn branch(&self) -> Option<Nodes<'_>> {
        let Self { first, parent, ref frames, .. } = *self;
        (!frames.is_empty()).then_some(Nodes { first, parent, frames })
    }

    /// True if the branch has as many frames as a record may have.
    pub fn branch_is_full(&self) -> bool {
        self.frames.len() >= limits::DEPTH
    }

    /// Empties the branch, after it was written.
    pub fn end_branch(&mut self) {
        self.frames.clear();
    }

    /// Drops all ids, for a new epoch, and keeps the memory.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.end_branch();
    }
}

/// True if an epoch that uses `used` ids of a kind has room for `more`. An empty one always has: a stack that
/// exceeds the limit alone would otherwise begin epochs without end.
pub fn has_room(used: usize, more: usize, limit: usize) -> bool {
    used == 0 || used + more <= limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contents_share_an_id() {
        let mut ids = AssignedIds::default();
        assert_eq!(ids.assign("a"), Assigned::New(1));
        assert_eq!(ids.assign("b"), Assigned::New(2));
        assert_eq!(ids.assign("a"), Assigned::Known(1));
        assert_eq!((ids.get(&"b"), ids.get(&"c"), ids.len()), (Some(2), None, 2));
        ids.clear();
        assert_eq!(ids.assign("b"), Assigned::New(1));
    }

    #[test]
    fn branch_holds_new_nodes_only() {
        let mut nodes = AssignedNodes::default();
        let mut stack = |frames: &[u32]| {
            let node = frames.iter().fold(NodeId::NONE, |parent, &frame| {
                nodes.assign(parent, FrameId(frame)).expect("there are ids")
            });
            let branch = nodes.branch().map(|b| (b.first.0, b.parent.0, b.frames.len()));
            nodes.end_branch();
            (node.0, branch)
        };
        assert_eq!(stack(&[1, 2, 3]), (3, Some((1, 0, 3))));
        assert_eq!(stack(&[1, 2]), (2, None));
        assert_eq!(stack(&[1, 2, 4, 4]), (5, Some((4, 2, 2))));
    }

    #[test]
    fn one_stack_always_fits() {
        assert!(has_room(0, 1000, 4));
        assert!(has_room(3, 1, 4));
        assert!(!has_room(3, 2, 4));
    }
}
