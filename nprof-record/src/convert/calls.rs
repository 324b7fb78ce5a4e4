//! The state of the event that counts calls: the frames of functions, and the stacks to which calls
//! without a sample are added. Pure.

use nprof_stream::{EventId, NodeId, TaskId};
use rustc_hash::FxHashMap;

use crate::convert::dictionary::FrameKey;
use crate::perf::calls::data::{CallKey, SLICE_NS};
use crate::perf::calls::points::{Point, PointList};

/// The most exited threads of which the calls are awaited.
const EXITED_MAX: usize = 1 << 16;

/// The most stacks that are kept for calls without a sample.
const STACKS_MAX: usize = 1 << 19;

/// The state of the event.
#[derive(Debug)]
pub(crate) struct CallState {
    pub(crate) event: EventId,
    /// The event that is counted by routine; [`EventId::NONE`] if none is.
    pub(crate) counted: EventId,
    pub(crate) list: PointList,
    /// The start of the first slice in ns.
    pub(crate) begin_ns: u64,
    /// The frame of each place, once a sample has shown its image in this epoch.
    pub(crate) frames: Vec<Option<FrameKey>>,
    /// The slice and the stack of the last sample.
    pub(crate) last: FxHashMap<CallKey, (u64, NodeId)>,
    /// The ids in the stream of threads that have exited.
    pub(crate) exited: FxHashMap<u32, TaskId>,
    /// The calls that were written.
    pub(crate) written: u64,
    /// The functions that are not counted any more, with their calls per second.
    pub(crate) taken_off: Vec<(Point, u64)>,
    /// The calls that were not counted.
    pub(crate) missed: u64,
}

impl CallState {
    /// Creates the state before the first call.
    pub(crate) fn new(event: EventId, list: PointList, begin_ns: u64) -> Self {
        let frames = vec![None; list.points.len()];
        Self {
            event,
            counted: EventId::NONE,
            list,
            begin_ns,
            frames,
            last: FxHashMap::default(),
            exited: FxHashMap::default(),
            written: 0,
            taken_off: Vec::new(),
            missed: 0,
        }
    }

    /// Drops the ids of the epoch before, and images that may be dropped with it.
    pub(crate) fn begin_epoch(&mut self) {
        self.frames.fill(None);
        self.last.clear();
        self.exited.clear();
    }

    /// Returns the time of a sample that belongs to a slice: the program reads the clock before the
    /// kernel does for the sample.
    pub(crate) fn time_in(&self, slice: u64, time_ns: u64) -> u64 {
        let end_ns = self.begin_ns.saturating_add((slice + 1).saturating_mul(SLICE_NS));
        time_ns.min(end_ns - 1)
    }

    /// Keeps the stack of a sample.
    pub(crate) fn note_sample(&mut self, key: CallKey, slice: u64, node: NodeId) {
        if self.last.len() >= STACKS_MAX {
            self.last.clear();
        }
        self.last.insert(key, (slice, node));
    }

    /// Returns the stack of the last sample of a slice. None if there is none.
    pub(crate) fn stack_in(&self, key: CallKey, slice: u64) -> Option<NodeId> {
        self.last.get(&key).filter(|(of, _)| *of == slice).map(|(_, node)| *node)
    }

    /// Keeps the id of a thread that has exited: its last calls come after its exit.
    pub(crate) fn note_exited(&mut self, tid: u32, task: TaskId) {
        if self.exited.len() >= EXITED_MAX {
            self.exited.clear();
        }
        self.exited.insert(tid, task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_is_that_of_the_same_slice_and_epoch() {
        let mut state = CallState::new(EventId(1), PointList::default(), 500);
        let key = CallKey { point: 1, serial: 2 };
        state.note_sample(key, 3, NodeId(9));
        assert_eq!(state.stack_in(key, 3), Some(NodeId(9)));
        assert_eq!(state.stack_in(key, 4), None);
        assert_eq!(state.stack_in(CallKey { point: 2, ..key }, 3), None);
        state.begin_epoch();
        assert_eq!(state.stack_in(key, 3), None);
    }

    #[test]
    fn time_of_a_sample_lies_in_its_slice() {
        let state = CallState::new(EventId(1), PointList::default(), 500);
        assert_eq!(state.time_in(0, SLICE_NS + 499), SLICE_NS + 499);
        assert_eq!(state.time_in(0, SLICE_NS + 500), SLICE_NS + 499);
        assert_eq!(state.time_in(1, SLICE_NS + 500), SLICE_NS + 500);
    }
}
