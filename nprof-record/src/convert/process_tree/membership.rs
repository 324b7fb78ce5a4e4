//! The tasks that are not in the tree: those that belong to it at their first record, and those that
//! may belong to it because fork records were lost. Pure.
//!
//! After a loss, unknown tasks are looked up in /proc once: those below a process of the tree belong
//! to it.

use rustc_hash::FxHashSet;

/// The thread id in records of a task that was released already: its ids are gone
/// (`perf_event_pid_type`, kernel/events/core.c).
pub(super) const RELEASED: u32 = u32::MAX;

/// The most strangers that are kept. They are looked up again after that: a machine can have millions
/// of tasks in the course of a recording.
pub(super) const STRANGERS_MAX: usize = 1 << 16;

/// The tasks that belong to a tree, besides those found when it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Membership {
    /// Those that its tasks create.
    #[default]
    Descendants,
    /// All that records come from, because no others have events: those of a control group, or of
    /// inherited events.
    AllWithRecords,
    /// All tasks of the system.
    System,
}

/// The tasks that are not in the tree.
#[derive(Debug, Default)]
pub(super) struct UnknownTasks {
    pub(super) membership: Membership,
    /// True once fork records may have been lost.
    has_gaps: bool,
    /// Tasks that do not belong to the tree, by a look into /proc since the last gap.
    strangers: FxHashSet<u32>,
    /// Processes that never belong to the tree, though their parent may.
    excluded: FxHashSet<u32>,
}

impl UnknownTasks {
    pub(super) fn new(membership: Membership) -> Self {
        Self { membership, ..Self::default() }
    }

    /// True if a task belongs to the tree at its first record.
    pub(super) fn are_taken(&self, tid: u32) -> bool {
        self.membership != Membership::Descendants && is_task(tid)
    }

    /// True if a task may belong to the tree, because its fork record may have been lost.
    pub(super) fn may_belong(&self, tid: u32) -> bool {
        self.has_gaps && is_task(tid) && !self.strangers.contains(&tid)
    }

    /// True if a process is known not to belong to the tree.
    pub(super) fn is_outside(&self, pid: u32) -> bool {
        self.strangers.contains(&pid) || self.excluded.contains(&pid)
    }

    /// Notes that fork records may have been lost.
    pub(super) fn note_gap(&mut self) {
        self.has_gaps = true;
        self.strangers.clear();
    }

    /// Notes that an existing process does not belong to the tree, though its parent may.
    pub(super) fn exclude(&mut self, pid: u32) {
        self.excluded.insert(pid);
    }

    /// Notes that a task does not belong to the tree, unless no fork record was lost.
    pub(super) fn note_stranger(&mut self, tid: u32) {
        if !self.has_gaps {
            return;
        }
        if self.strangers.len() >= STRANGERS_MAX {
            self.strangers.clear();
        }
        self.strangers.insert(tid);
    }

    /// Notes that an id is that of a new task.
    pub(super) fn note_reused(&mut self, tid: u32) {
        if self.has_gaps {
            self.strangers.remove(&tid);
        }
        self.excluded.remove(&tid);
    }

    /// Returns the number of strangers.
    #[cfg(test)]
    pub(super) fn strangers(&self) -> usize {
        self.strangers.len()
    }
}

/// True if an id is that of a task: neither the idle task nor one that was released.
fn is_task(tid: u32) -> bool {
    tid != 0 && tid != RELEASED
}
