//! The processes that have loaded the library. Pure.

use nprof_stream::{EventId, TaskId};
use rustc_hash::FxHashMap;

use crate::convert::allocations::descriptors::Descriptors;
use crate::convert::allocations::live_set::LiveSet;
use crate::event::{PreloadPlan, PreloadedEvent};

/// The most blocks that are followed, of all processes together: some 500 MB of memory.
const BLOCKS_MAX: usize = 4 << 20;

/// A process that has loaded the library.
#[derive(Debug)]
pub(crate) struct Allocator {
    pub(crate) pid: u32,
    /// Its first thread in the stream's current epoch; none while it is unknown.
    pub(crate) task: TaskId,
    pub(crate) heap: LiveSet,
    pub(crate) descriptors: Descriptors,
}

/// Processes that have not loaded the library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unseen {
    pub(crate) processes: u64,
    /// The name of the first.
    pub(crate) comm: Vec<u8>,
}

/// The state of the events of the preloaded library.
#[derive(Debug)]
pub(crate) struct AllocationState {
    plan: PreloadPlan,
    /// By the id of their ring.
    pub(crate) processes: FxHashMap<u64, Allocator>,
    /// The number of blocks of all processes.
    pub(crate) blocks: usize,
    /// The allocations whose blocks were not followed because there are too many.
    pub(crate) unfollowed: u64,
    /// The images that processes have executed and that have not loaded the library so far: names by
    /// process id.
    executed: FxHashMap<u32, Vec<u8>>,
    unseen: Unseen,
}

impl AllocationState {
    /// Creates the state before the first process.
    pub(crate) fn new(plan: PreloadPlan) -> Self {
        Self {
            plan,
            processes: FxHashMap::default(),
            blocks: 0,
            unfollowed: 0,
            executed: FxHashMap::default(),
            unseen: Unseen::default(),
        }
    }

    /// Returns the id of an event. None if it is not recorded.
    pub(crate) fn id(&self, event: PreloadedEvent) -> Option<EventId> {
        self.plan.id(event)
    }

    /// True if another block can be followed; counts it as not followed if not.
    pub(crate) fn has_room(&mut self) -> bool {
        let has_room = self.blocks < BLOCKS_MAX;
        self.unfollowed += u64::from(!has_room);
        has_room
    }

    /// Adds a process that has loaded the library, or was forked from one that has.
    pub(crate) fn start(&mut self, ring: u64, parent: u64, forked_ns: u64, process: Allocator) {
        self.executed.remove(&process.pid);
        let mut process = process;
        if let Some(parent) = self.processes.get(&parent) {
            // Each child of a large process has a copy of its blocks.
            if self.blocks.saturating_add(parent.heap.len()) <= BLOCKS_MAX {
                process.heap = parent.heap.forked_at(forked_ns);
            } else {
                self.unfollowed += parent.heap.len() as u64;
            }
            process.descriptors = parent.descriptors.forked_at(forked_ns);
        }
        self.blocks += process.heap.len();
        if let Some(before) = self.processes.insert(ring, process) {
            self.blocks = self.blocks.saturating_sub(before.heap.len());
        }
    }

    /// Removes a process that has exited or executed another image, and returns it.
    pub(crate) fn end(&mut self, ring: u64) -> Option<Allocator> {
        let ended = self.processes.remove(&ring)?;
        self.blocks = self.blocks.saturating_sub(ended.heap.len());
        Some(ended)
    }

    /// Notes that a process has executed an image, which loads the library unless it cannot.
    pub(crate) fn note_executed(&mut self, pid: u32, comm: &[u8]) {
        self.note_unseen(pid);
        self.executed.insert(pid, comm.to_vec());
    }

    /// Notes that a process has exited: if its image has not loaded the library by now, it never will.
    pub(crate) fn note_unseen(&mut self, pid: u32) {
        let Some(comm) = self.executed.remove(&pid) else { return };
        if self.unseen.processes == 0 {
            self.unseen.comm = comm;
        }
        self.unseen.processes += 1;
    }

    /// Returns the processes that have not loaded the library.
    pub(crate) fn unseen(&mut self) -> Unseen {
        let mut pids: Vec<_> = self.executed.keys().copied().collect();
        pids.sort_unstable();
        pids.into_iter().for_each(|pid| self.note_unseen(pid));
        self.unseen.clone()
    }

    /// Drops the ids of the epoch before.
    pub(crate) fn begin_epoch(&mut self) {
        for process in self.processes.values_mut() {
            process.task = TaskId::NONE;
            process.heap.drop_nodes();
            process.descriptors.drop_nodes();
        }
    }
}

#[cfg(test)]
mod tests {
    use nprof_stream::NodeId;

    use super::*;
    use crate::convert::allocations::live_set::Block;

    fn state() -> AllocationState {
        let mut specs = vec![crate::event::EventSpec::parse("heap.alloc").expect("a name")];
        let plan = PreloadPlan::split(&mut specs).expect("valid").expect("an event");
        AllocationState::new(plan)
    }

    fn process(pid: u32) -> Allocator {
        Allocator {
            pid,
            task: TaskId(1),
            heap: LiveSet::default(),
            descriptors: Descriptors::default(),
        }
    }

    #[test]
    fn blocks_of_children_are_bounded() {
        let mut state = state();
        let mut parent = process(5);
        let block = Block { node: NodeId(1), size: 8, weight: 8, count: 1, time_ns: 1 };
        parent.heap.allocate(0x10, block);
        parent.heap.allocate(0x20, block);
        state.start(1, 0, 0, parent);
        state.start(2, 1, 5, process(6));
        assert_eq!((state.blocks, state.unfollowed), (4, 0));
        state.blocks = BLOCKS_MAX - 1;
        state.start(3, 1, 5, process(7));
        assert_eq!((state.processes[&3].heap.len(), state.unfollowed), (0, 2));
        state.blocks = 4;
        state.start(2, 0, 0, process(8));
        assert_eq!(state.blocks, 2, "a ring with the same id takes the place of the one before");
    }

    #[test]
    fn images_without_the_library_are_counted_once() {
        let mut state = state();
        state.note_executed(5, b"sh");
        state.start(1, 0, 0, process(5));
        state.note_executed(5, b"static");
        state.note_executed(5, b"other");
        state.start(2, 0, 0, process(5));
        state.note_unseen(5);
        state.note_executed(6, b"late");
        let unseen = Unseen { processes: 2, comm: b"static".to_vec() };
        assert_eq!((state.unseen(), state.unseen()), (unseen.clone(), unseen));
    }
}
