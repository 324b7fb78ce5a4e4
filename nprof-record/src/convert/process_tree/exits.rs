//! Exits of tasks. A task that has exited stays for as long as it runs in the kernel: since Linux
//! 6.16, and in stable versions of older ones, the kernel writes the exit record before it frees the
//! memory of the process (`do_exit` in kernel/exit.c), which takes 50 ms for a GiB, and longer on a
//! busy CPU. It then stays for one more batch, for records that were stamped before and come after.
//! Pure.
//!
//! Not every exit record is an exit: the kernel also writes one for a task that executes a
//! set-user-ID program, between the exec and the first mapping of the program (`begin_new_exec` in
//! fs/exec.c calls `perf_event_exit_task`). The records that follow decide.

use crate::convert::process_tree::task::Life;
use crate::convert::process_tree::tree::ProcessTree;
use crate::os::task_serial::TaskSerial;
use crate::perf::record::TaskIds;

/// A task that may have exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoubtfulExit {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// The time of the sign.
    pub(crate) time_ns: u64,
    /// The time from which on the task is known.
    pub(crate) known_since_ns: u64,
    /// True if the sign was an exit record right after an exec.
    pub(crate) follows_exec: bool,
}

impl ProcessTree {
    /// Takes an exit record. Returns true if a task of the tree has exited, and false if it is not
    /// in the tree or [`Self::end_batch`] will return it as doubtful.
    pub(crate) fn exit(&mut self, ids: TaskIds, time_ns: u64) -> bool {
        // The kernel writes this record for set-user-ID programs before it maps them.
        let in_doubt = self.has_just_executed(ids.pid, ids.tid);
        let life = if in_doubt { Life::InDoubt(time_ns) } else { Life::Exited(time_ns) };
        self.note_exit(ids.tid, life) && !in_doubt
    }

    /// True if a thread has executed an image that is not mapped yet.
    fn has_just_executed(&self, pid: u32, tid: u32) -> bool {
        let exec = self.processes.get(&pid).and_then(|process| process.exec);
        exec.is_some_and(|exec| exec.tid == tid && !exec.has_mappings)
    }

    /// Notes that a task seems to have exited, although its exit record has not come.
    pub(crate) fn doubt(&mut self, tid: u32, time_ns: u64) {
        if self.tasks.get(&tid).is_some_and(|task| task.life == Life::Lives) {
            self.note_exit(tid, Life::InDoubt(time_ns));
        }
    }

    /// Notes that a doubtful exit is one.
    pub(crate) fn confirm_exit(&mut self, exit: DoubtfulExit) {
        self.note_exit(exit.tid, Life::Exited(exit.time_ns));
    }

    /// Returns true if a task was in the tree and had not exited before.
    pub(super) fn note_exit(&mut self, tid: u32, life: Life) -> bool {
        let Some(task) = self.tasks.get_mut(&tid).filter(|task| !task.has_exited()) else {
            return false;
        };
        task.life = life;
        if let Life::Exited(time_ns) = life
            && let Some(process) = self.processes.get_mut(&task.pid)
        {
            process.exited_ns = process.exited_ns.max(time_ns);
        }
        self.exited[0].push((tid, task.serial));
        true
    }

    /// Notes that a task did something at `time_ns` that only living tasks do. Returns true if it
    /// counted as exited: it lives since then.
    pub(crate) fn note_life(&mut self, tid: u32, time_ns: u64) -> bool {
        let Some(task) = self.tasks.get_mut(&tid) else { return false };
        let is_refuted = match task.life {
            Life::Lives => false,
            Life::InDoubt(exit_ns) | Life::Exited(exit_ns) => exit_ns < time_ns,
        };
        let is_again = is_refuted && task.has_exited();
        if is_refuted {
            task.life = Life::Lives;
        }
        if is_again {
            task.time_ns = time_ns;
        }
        is_again
    }

    /// Ends a batch of records: removes the tasks that had ended before it began. Returns those for
    /// which no record has shown whether they exited.
    ///
    /// `runs` is true if a task that was known at a time has not ended yet, given its thread id.
    pub(crate) fn end_batch(&mut self, runs: impl Fn(u32, u64) -> bool) -> Vec<DoubtfulExit> {
        let mut doubtful = Vec::new();
        let [mut exited, ended] = std::mem::take(&mut self.exited);
        for (tid, serial) in ended {
            // The id may belong to another task by now.
            let Some(task) = self.tasks.get(&tid).filter(|task| task.serial == serial) else {
                continue;
            };
            match task.life {
                Life::Lives => {}
                Life::InDoubt(time_ns) => {
                    let (pid, known_since_ns) = (task.pid, task.time_ns);
                    let follows_exec = self.has_just_executed(pid, tid);
                    doubtful.push(DoubtfulExit { pid, tid, time_ns, known_since_ns, follows_exec });
                }
                Life::Exited(_) => self.remove(tid),
            }
        }
        let is_ending = |&mut (tid, serial): &mut (u32, TaskSerial)| {
            let task = self.tasks.get(&tid).filter(|task| task.serial == serial);
            task.is_some_and(|task| task.has_exited() && runs(tid, task.time_ns))
        };
        let ending = exited.extract_if(.., is_ending).collect();
        self.exited = [ending, exited];
        doubtful
    }

    /// Returns the doubtful exits of the last batches.
    pub(crate) fn remaining_doubts(&mut self) -> Vec<DoubtfulExit> {
        let no_record_follows = |_, _| false;
        [self.end_batch(no_record_follows), self.end_batch(no_record_follows)].concat()
    }
}
