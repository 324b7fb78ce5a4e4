//! Compares the tasks with /proc after records of them may have been lost, and finds lost tasks there.

use std::time::Duration;

use nprof_stream::{ChangeKind, Extras};

use crate::convert::converter::{CommandExit, Converter};
use crate::convert::dictionary::Sink;
use crate::convert::process_tree::DoubtfulExit;
use crate::os::procfs::{self, Stat};
use crate::perf::record::SampleId;
use crate::sys;

/// Shortest time between two comparisons of the tasks with /proc, while sideband records are lost
/// again and again: each reads files for each task.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The interval is at least this multiple of the time that the comparison took: that of thousands of
/// tasks would else let the rings fill again.
pub(super) const CHECK_TIMES: u64 = 10;

impl<S: Sink> Converter<S> {
    /// Adds a thread of which the fork record may have been lost, and the missing processes above
    /// it, if /proc shows that it belongs to the tree.
    pub(super) fn look_up(&mut self, pid: u32, tid: u32, time_ns: u64) {
        let parent_of = |pid| Stat::of(pid).map(|stat| stat.parent);
        let Some(lineage) = self.tree.missing_lineage(pid, parent_of) else {
            return self.tree.note_stranger(tid);
        };
        for above in lineage {
            self.add_known_thread(above, above, time_ns);
        }
        self.add_known_thread(pid, tid, time_ns);
    }

    /// Drops the task that had the id of a record's task before, if its exit may have been lost.
    pub(super) fn drop_reused(&mut self, id: SampleId) {
        if self.tree.is_of_another(id.pid, id.tid) {
            self.drop_task(id.tid, id.time);
        }
        let known_since_ns = self.tree.take_lost_exit(id.pid);
        if known_since_ns.is_some_and(|since_ns| procfs::is_reused(id.pid, since_ns)) {
            self.drop_task(id.pid, id.time);
        }
    }

    /// Drops a task of which the exit was lost, with the threads of its process.
    fn drop_task(&mut self, tid: u32, time_ns: u64) {
        self.drop_stack_state(tid);
        self.tree.forget_reused(tid);
        self.write_replaced(time_ns);
    }

    /// True if lost sideband records may have hidden processes.
    pub(crate) fn may_miss_processes(&self) -> bool {
        self.tree.is_filtered()
    }

    /// Returns the number of recorded processes that live. One that is not reaped yet has ended.
    pub(crate) fn living_processes(&self) -> usize {
        let living = self.tree.processes().filter(|&pid| procfs::living_thread(pid).is_some());
        living.count()
    }

    pub(super) fn is_check_due(&self) -> bool {
        sys::monotonic_ns().saturating_sub(self.checked_ns) >= self.check_interval_ns
    }

    /// Notes that unknown threads may belong to the tree.
    pub(super) fn note_gap(&mut self) {
        self.tree.note_gap();
        if let Some(copy_hints) = &mut self.resolver.copy_hints {
            copy_hints.accept_all();
        }
    }

    /// Looks for tasks that have exited and processes that have executed another image without a
    /// record, and forgets the results of earlier looks.
    pub(super) fn check_tasks(&mut self) {
        self.has_new_gap = false;
        self.checked_ns = sys::monotonic_ns();
        self.note_gap();
        for tid in self.tree.living() {
            let since_ns = self.tree.task(tid).map_or(0, |task| task.time_ns);
            if procfs::lives_since(tid, since_ns) {
                if self.tree.task(tid).is_some_and(|task| task.pid == tid) {
                    self.check_name(tid);
                }
            } else if procfs::is_reused(tid, since_ns) {
                self.drop_task(tid, self.checked_ns);
            } else {
                // If its record is only late, the record decides.
                self.tree.doubt(tid, self.checked_ns);
            }
        }
        let taken_ns = sys::monotonic_ns().saturating_sub(self.checked_ns);
        let interval_ns = taken_ns.saturating_mul(CHECK_TIMES);
        self.check_interval_ns = interval_ns.max(sys::duration_ns(CHECK_INTERVAL));
    }

    /// Compares the name of a process with that in /proc, which shows most lost execs: the mappings
    /// of the image before are then dropped.
    fn check_name(&mut self, pid: u32) {
        let Some(found) = procfs::thread_info(pid, pid) else { return };
        if self.tree.task(pid).is_some_and(|task| task.comm != found.comm) {
            self.resolver.watches.forget_process(pid);
            let kind = ChangeKind::Comm;
            self.emit_change(self.checked_ns, pid, kind, &found.comm, Extras::NONE);
            self.tree.set_found_name(pid, found.comm);
        }
    }

    pub(super) fn decide_exits(&mut self, doubtful: Vec<DoubtfulExit>) {
        for exit in doubtful {
            // Events of the task itself have ended with it: no record follows.
            self.counts.ended_by_exec += u64::from(exit.follows_exec);
            if procfs::lives_since(exit.tid, exit.known_since_ns) {
                self.note_life(exit.tid, u64::MAX);
                self.write_pending_exec(exit.pid);
                // Without events of its own the task has no exit record either.
                if !self.tree.is_filtered() {
                    self.tree.doubt(exit.tid, sys::monotonic_ns());
                }
            } else {
                self.tree.confirm_exit(exit);
                self.end_measured(exit.tid, exit.time_ns);
                self.write_exit(exit.pid, exit.tid, exit.time_ns);
            }
        }
    }

    /// Decides which tasks have exited, after the last batch.
    pub(super) fn decide_last_exits(&mut self) {
        let doubtful = self.tree.remaining_doubts();
        self.decide_exits(doubtful);
        // The exit record of the command was lost, or its events had ended before.
        if let Some(CommandExit { pid, .. }) = self.exit
            && self.tree.lives(pid)
        {
            let now_ns = sys::monotonic_ns();
            self.end_measured(pid, now_ns);
            self.write_exit(pid, pid, now_ns);
        }
    }
}
