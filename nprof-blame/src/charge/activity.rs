//! The types of the charger: activities, waits, and the places that these are charged to. Pure.

use std::cell::Cell;
use std::rc::Rc;

use nprof_stream::{EventId, NodeId, TaskId};

/// Identifies a wake-up and the wait that it ended: numbers of waits are unique in a run only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pair {
    pub(crate) run: u64,
    pub(crate) number: u64,
}

/// A recorded wait, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) event: EventId,
    /// The thread that waited.
    pub(crate) task: TaskId,
    /// Its stack.
    pub(crate) node: NodeId,
    /// The interval, in ns: the wait ended, or its part was written, at `end`.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) weight: u64,
    pub(crate) count: u64,
    /// The wake-up that ended it. None for a part of a wait in progress, or if no waker was recorded.
    pub(crate) pair: Option<Pair>,
}

/// The thread that ended a wait, and its stack at the wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waker {
    pub(crate) task: TaskId,
    pub(crate) node: NodeId,
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// Not known yet.
    Open,
    /// Another thread ended it.
    Woken(Waker),
    /// An interrupt ended it: a timer, a disk, a network device.
    Interrupt,
    /// It ended, but its wake-up has no record.
    Unknown,
}

/// The end of a wait, shared by its parts.
pub(crate) type SharedEnd = Rc<Cell<WaitEnd>>;

/// The state of a thread in an interval.
#[derive(Clone, Debug)]
pub(crate) enum Doing {
    /// It ran; a sample has no extent.
    Running,
    /// It waited for a CPU.
    Runnable,
    /// It waited for something else.
    Waiting(SharedEnd),
}

/// A recorded observation of a thread.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) node: NodeId,
    pub(crate) doing: Doing,
    /// The time of the thread that it represents, in ns. That of an observation that was chosen at
    /// random exceeds its own length.
    pub(crate) weight: u64,
}

impl Activity {
    /// True if it is recorded for itself alone, and not as a random choice among several.
    pub(crate) fn is_exact(&self) -> bool {
        self.end > self.start && self.weight <= self.end - self.start
    }
}

/// The reason why a draw stopped at a stack although nothing ran there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    /// The thread was ready and waited for a CPU.
    Runnable,
    /// An interrupt ended the wait.
    Interrupt,
    /// The wait ended, but its waker was not recorded.
    UnknownWaker,
    /// The wait did not end before the end of the stream, of the epoch, or of the window.
    StillWaiting,
    /// No sample shows the activity of the waker.
    NotSampled,
    /// The waker waited for a thread that is already part of the chain.
    Cycle,
    /// The chain of wakers is longer than the limit.
    Depth,
}

impl Reason {
    /// All reasons, in the order of the offsets of their frames.
    pub(crate) const ALL: [Self; 7] = [
        Self::Runnable,
        Self::Interrupt,
        Self::UnknownWaker,
        Self::StillWaiting,
        Self::NotSampled,
        Self::Cycle,
        Self::Depth,
    ];

    /// Returns the name of its frame.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Runnable => "[waiting for a CPU]",
            Self::Interrupt => "[interrupt]",
            Self::UnknownWaker => "[unknown waker]",
            Self::StillWaiting => "[still waiting]",
            Self::NotSampled => "[not sampled]",
            Self::Cycle => "[cycle of waits]",
            Self::Depth => "[depth limit]",
        }
    }
}

/// The place to which waiting is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Target {
    pub(crate) task: TaskId,
    pub(crate) node: NodeId,
    /// None if the stack is that of a CPU sample.
    pub(crate) reason: Option<Reason>,
}

/// A part of a wait, charged to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The event of the wait.
    pub(crate) event: EventId,
    /// The thread that waited.
    pub(crate) waiter: TaskId,
    pub(crate) target: Target,
    pub(crate) weight: u64,
    pub(crate) count: u64,
}
