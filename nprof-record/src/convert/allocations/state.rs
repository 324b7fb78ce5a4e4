//! The processes that have loaded the library. Pure.

use nprof_stream::{EventId, ExtrasBuilder, NodeId, TaskId};
use rustc_hash::FxHashMap;

use crate::convert::allocations::descriptors::Descriptors;
use crate::convert::allocations::known_stacks::KnownStacks;
use crate::convert::allocations::live_set::LiveSet;
use crate::convert::allocations::sums::Blocks;
use crate::event::{PreloadPlan, PreloadedEvent, Subject};
use crate::image::allocator::AllocationFunction;

/// The most blocks that are followed, of all processes together: 176 MB of memory.
pub(crate) const BLOCKS_MAX: usize = 4 << 20;

/// The most released blocks that a process keeps for children that were forked before, and all processes together:
/// some 15 MB of memory.
const RELEASED_MAX: usize = 1024;
const ALL_RELEASED_MAX: usize = 1 << 18;

/// The most exited threads of which records may come.
const EXITED_MAX: usize = 1 << 16;

/// A process that has loaded the library.
#[derive(Debug)]
pub(crate) struct Allocator {
    pub(crate) pid: u32,
    /// Its first thread in the stream's current epoch; none while it is unknown.
    pub(crate) task: TaskId,
    /// Its name at first.
    pub(crate) comm: Vec<u8>,
    pub(crate) heap: LiveSet,
    /// True if it has executed another image, before which its blocks were written. Children that it had forked
    /// still inherit them.
    pub(crate) is_heap_written: bool,
    pub(crate) descriptors: Descriptors,
    /// The stacks that its library knows; `None` if all periods are adapted.
    pub(crate) known: Option<KnownStacks>,
}

/// The blocks of a process by their stacks, with its first thread.
#[derive(Clone, Debug)]
pub(crate) struct HeapRows {
    pub(crate) task: TaskId,
    pub(crate) peak_ns: u64,
    pub(crate) at_peak: Vec<(NodeId, Blocks)>,
    pub(crate) live: Vec<(NodeId, Blocks)>,
}

impl Allocator {
    /// Changes the number of released blocks, and of closed descriptors, that are kept.
    fn keep_released(&mut self, most: usize) {
        self.heap.keep_released(most);
        self.descriptors.keep_closed(most);
    }

    /// Returns the rows at its end, or before it executes another image. None if they were returned before.
    pub(crate) fn take_rows(&mut self, time_ns: u64) -> Option<HeapRows> {
        if std::mem::replace(&mut self.is_heap_written, true) {
            return None;
        }
        let (peak_ns, at_peak) = self.heap.peak_until(time_ns);
        Some(HeapRows { task: self.task, peak_ns, at_peak, live: self.heap.live() })
    }
}

/// Processes of which blocks are not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unseen {
    pub(crate) processes: u64,
    /// The first.
    pub(crate) first: Executed,
}

impl Unseen {
    pub(crate) fn add(&mut self, executed: Executed, number: u64) {
        if self.processes == 0 {
            self.first = executed;
        }
        self.processes += number;
    }
}

/// The image that a process executes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Executed {
    /// The name of the process.
    pub(crate) comm: Vec<u8>,
    /// The path of the image; empty if it could not be read.
    pub(crate) path: Vec<u8>,
    /// Its own allocation function; `None` if it has none, or was not searched for one.
    pub(crate) allocator: Option<AllocationFunction>,
}

/// What the events of the library lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    /// Processes that have not loaded the library.
    pub(crate) unseen: Unseen,
    /// Processes that bring an allocator of their own.
    pub(crate) bypassed: Unseen,
    /// Processes that have loaded a library that does not call the hooks.
    pub(crate) bound_deeply: Unseen,
    /// Forked children that could not connect to the recorder; the first is a parent.
    pub(crate) unconnected: Unseen,
    /// Allocations of which the blocks were not followed.
    pub(crate) unfollowed: u64,
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
    /// The images that processes have executed and that have not loaded the library so far, by process
    /// id.
    executed: FxHashMap<u32, Executed>,
    /// Processes that have not loaded the library.
    unseen: Unseen,
    /// Processes that have loaded it, but bring an allocator of their own.
    pub(crate) bypassed: Unseen,
    /// Processes that have loaded a library that does not call the hooks.
    pub(crate) bound_deeply: Unseen,
    /// Forked children that could not connect to the recorder; the first is a parent.
    pub(crate) unconnected: Unseen,
    /// True for the executables that bring an allocator of their own, by path.
    pub(crate) allocators: FxHashMap<Vec<u8>, bool>,
    /// The processes and the ids in the stream of threads that have exited, by thread id.
    exited: FxHashMap<u32, (u32, TaskId)>,
    /// The memory for the extras of one sample after the other: there may be millions in a second.
    pub(crate) extras: ExtrasBuilder,
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
            bypassed: Unseen::default(),
            bound_deeply: Unseen::default(),
            unconnected: Unseen::default(),
            allocators: FxHashMap::default(),
            exited: FxHashMap::default(),
            extras: ExtrasBuilder::new(),
        }
    }

    /// Returns the id of an event. None if it is not recorded.
    pub(crate) fn id(&self, event: PreloadedEvent) -> Option<EventId> {
        self.plan.id(event)
    }

    /// True if events of memory are recorded.
    pub(crate) fn records_heap(&self) -> bool {
        self.plan.has(Subject::Heap)
    }

    /// Returns the events.
    pub(crate) fn plan(&self) -> &PreloadPlan {
        &self.plan
    }

    /// True for an event of the library, and for none: the losses of all other events have one.
    pub(crate) fn has_event(&self, event: EventId) -> bool {
        event.is_none() || self.plan.events().any(|(_, id)| id == event)
    }

    /// True if another block can be followed; counts it as not followed if not.
    pub(crate) fn has_room(&mut self) -> bool {
        let has_room = self.blocks < BLOCKS_MAX;
        self.unfollowed += u64::from(!has_room);
        has_room
    }

    /// Notes the path of a mapped image: the first after an exec is the executed one.
    pub(crate) fn note_image(&mut self, pid: u32, path: &[u8]) {
        if let Some(executed) = self.executed.get_mut(&pid).filter(|it| it.path.is_empty()) {
            executed.path = path.to_vec();
        }
    }

    /// Returns the image that a process has executed, if it has not loaded the library so far.
    pub(crate) fn executed(&self, pid: u32) -> Option<&Executed> {
        self.executed.get(&pid)
    }

    /// Adds a process that has loaded the library, or was forked from one that has.
    pub(crate) fn start(&mut self, ring: u64, parent: u64, forked_ns: u64, process: Allocator) {
        self.executed.remove(&process.pid);
        let mut process = process;
        if let Some(parent) = self.processes.get_mut(&parent) {
            // Each child of a large process has a copy of its blocks.
            if self.blocks.saturating_add(parent.heap.len()) <= BLOCKS_MAX {
                process.heap = parent.heap.forked_at(forked_ns);
            } else {
                self.unfollowed += parent.heap.len() as u64;
            }
            process.descriptors = parent.descriptors.forked_at(forked_ns);
        }
        // A child has the limit of its parent until here.
        let released = self.released_max();
        process.keep_released(released);
        self.blocks += process.heap.len();
        if let Some(before) = self.processes.insert(ring, process) {
            self.blocks = self.blocks.saturating_sub(before.heap.len());
        }
        // Each doubling of the number of processes visits all of them.
        if self.released_max() < released {
            self.processes.values_mut().for_each(|it| it.keep_released(released / 2));
        }
    }

    /// Returns the number of released blocks that a process keeps: a power of two.
    fn released_max(&self) -> usize {
        let processes = (self.processes.len() + 1).next_power_of_two();
        (ALL_RELEASED_MAX / processes).min(RELEASED_MAX)
    }

    /// Removes a process that has exited or executed another image, and returns it.
    pub(crate) fn end(&mut self, ring: u64) -> Option<Allocator> {
        let ended = self.processes.remove(&ring)?;
        self.blocks = self.blocks.saturating_sub(ended.heap.len());
        Some(ended)
    }

    /// Returns the rows of the images of a process that were not returned before.
    pub(crate) fn take_rows_of(&mut self, pid: u32, time_ns: u64) -> Vec<HeapRows> {
        let of_process = self.processes.values_mut().filter(|process| process.pid == pid);
        of_process.filter_map(|process| process.take_rows(time_ns)).collect()
    }

    /// Keeps the id of a thread that has exited: its records may have waited in the ring for that of a thread that did
    /// not run.
    pub(crate) fn note_exited(&mut self, pid: u32, tid: u32, task: TaskId) {
        if self.exited.len() >= EXITED_MAX {
            self.exited.clear();
        }
        self.exited.insert(tid, (pid, task));
    }

    /// Returns the id of a thread of a process that has exited. None if it is unknown.
    pub(crate) fn exited(&self, pid: u32, tid: u32) -> Option<TaskId> {
        self.exited.get(&tid).filter(|(of, _)| *of == pid).map(|(_, task)| *task)
    }

    /// Notes that a process has executed an image, which loads the library unless it cannot.
    pub(crate) fn note_executed(&mut self, pid: u32, executed: Executed) {
        self.note_unseen(pid);
        self.executed.insert(pid, executed);
    }

    /// Notes that a process has exited: if its image has not loaded the library by now, it never will.
    pub(crate) fn note_unseen(&mut self, pid: u32) {
        if let Some(executed) = self.executed.remove(&pid) {
            self.unseen.add(executed, 1);
        }
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
        self.exited.clear();
        for process in self.processes.values_mut() {
            process.task = TaskId::NONE;
            process.heap.drop_nodes();
            process.descriptors.drop_nodes();
            if let Some(known) = &mut process.known {
                known.drop_nodes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nprof_stream::NodeId;

    use super::*;
    use crate::convert::allocations::block::Block;
    use crate::event::PreloadPeriod;

    fn state() -> AllocationState {
        let mut specs = vec![crate::event::EventSpec::parse("heap.alloc").expect("a name")];
        let plan = PreloadPlan::split(&mut specs, PreloadPeriod::of_all(None, None))
            .expect("valid")
            .expect("an event");
        AllocationState::new(plan)
    }

    fn process(pid: u32) -> Allocator {
        Allocator {
            pid,
            task: TaskId(1),
            comm: Vec::new(),
            heap: LiveSet::new(0),
            is_heap_written: false,
            descriptors: Descriptors::default(),
            known: None,
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
    fn released_blocks_of_many_processes_are_bounded() {
        let mut state = state();
        let block = Block { node: NodeId(1), size: 8, weight: 8, count: 1, time_ns: 1 };
        for ring in 0..1024 {
            state.start(ring, u64::MAX, 0, process(ring as u32));
            let heap = &mut state.processes.get_mut(&ring).expect("it has started").heap;
            for address in 0..1500 {
                heap.allocate(address, block);
                heap.release(address, 5);
            }
        }
        let mut kept = |ring: &u64| {
            state.processes.get_mut(ring).expect("it has started").heap.forked_at(2).len()
        };
        assert!((0..1024).map(|ring| kept(&ring)).sum::<usize>() <= ALL_RELEASED_MAX);
        assert_eq!((kept(&0), kept(&1023)), (128, 128));
    }

    #[test]
    fn images_without_the_library_are_counted_once() {
        let mut state = state();
        let named = |comm: &[u8]| Executed { comm: comm.to_vec(), ..Executed::default() };
        state.note_executed(5, named(b"sh"));
        state.start(1, 0, 0, process(5));
        state.note_executed(5, named(b"static"));
        state.note_executed(5, named(b"other"));
        state.start(2, 0, 0, process(5));
        state.note_unseen(5);
        state.note_executed(6, named(b"late"));
        let unseen = Unseen { processes: 2, first: named(b"static") };
        assert_eq!((state.unseen(), state.unseen()), (unseen.clone(), unseen));
    }
}
