//! The tree of the processes and threads that are followed, kept from the kernel's records. Pure.
//!
//! Samples of tasks outside of the tree are dropped before they are decoded. A task that has exited
//! stays for one more batch, for records that were stamped before its exit and come after it.
//!
//! Not every exit record is an exit: the kernel also writes one for a task that executes a
//! set-user-ID program, between the exec and the first mapping of the program (`begin_new_exec` in
//! fs/exec.c calls `perf_event_exit_task`). The records that follow decide.
//!
//! After fork records were lost, unknown tasks are looked up in /proc once: those below a process of
//! the tree belong to it.
//!
//! Processes that exist when recording starts are read from /proc. The state in /proc holds for the
//! moment of reading: kernel records with an earlier time are ignored.

use std::rc::Rc;

use nprof_stream::TaskId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::convert::address_space::{AddressSpace, Mapping};
use crate::image::jit::process_jit::ProcessJit;
use crate::image::key::ImageIndex;
use crate::os::procfs::ThreadInfo;
use crate::os::task_serial::TaskSerial;
use crate::perf::record::{SampleId, TaskIds};

/// A process or thread that is followed.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) serial: TaskSerial,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// The serial of its process, which is that of the first thread.
    process: TaskSerial,
    /// For a thread the first thread of its process, for a process that of its parent.
    parent: Option<(u32, TaskSerial)>,
    pub(crate) comm: Vec<u8>,
    /// The time at which it started.
    pub(crate) time_ns: u64,
    /// Its id in the stream's current epoch.
    pub(crate) id: TaskId,
    life: Life,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Lives,
    /// A sign of its exit, from this time, that later records may refute.
    InDoubt(u64),
    /// It exited at this time.
    Exited(u64),
}

impl Task {
    /// True if it has certainly exited.
    fn has_exited(&self) -> bool {
        matches!(self.life, Life::Exited(_))
    }
}

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

/// An exec before its image is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingExec {
    pub(crate) tid: u32,
    pub(crate) time_ns: u64,
    /// True once anything is mapped.
    pub(crate) has_mappings: bool,
}

/// The state that the threads of a process share.
#[derive(Debug)]
pub(crate) struct Process {
    /// The serial of its first thread.
    pub(crate) serial: TaskSerial,
    /// Its parent process, with its serial.
    parent: Option<(u32, TaskSerial)>,
    pub(crate) maps: Rc<AddressSpace>,
    /// The time until which its mappings are known from /proc; [`NEVER_READ`] before they were
    /// read.
    maps_known_until_ns: u64,
    /// True from an exec until a sample with registers of the new image. Registers that are not of
    /// this image are left over from the one before.
    pub(crate) not_seen_since_exec: bool,
    pub(crate) exec: Option<PendingExec>,
    /// The code it generated at run time.
    pub(crate) jit: ProcessJit,
    threads: usize,
}

impl Process {
    /// Creates a process with one thread.
    fn new(
        serial: TaskSerial,
        parent: Option<(u32, TaskSerial)>,
        maps_known_until_ns: u64,
        jit: ProcessJit,
    ) -> Self {
        Self {
            serial,
            parent,
            maps: Rc::default(),
            maps_known_until_ns,
            not_seen_since_exec: false,
            exec: None,
            jit,
            threads: 1,
        }
    }
}

/// The end of time: no record of a mapping is later, so all are ignored until /proc was read.
const NEVER_READ: u64 = u64::MAX;

/// The thread id in records of a task that was released already: its ids are gone
/// (`perf_event_pid_type`, kernel/events/core.c).
const RELEASED: u32 = u32::MAX;

/// The most processes between a process and its ancestor in the tree. Ids that are reused while
/// /proc is read could form a cycle.
const LINEAGE_MAX: usize = 1024;

/// The most strangers that are kept. They are looked up again after that: a machine can have millions
/// of tasks in the course of a recording.
const STRANGERS_MAX: usize = 1 << 16;

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

/// The processes and threads that are followed.
#[derive(Debug, Default)]
pub(crate) struct ProcessTree {
    /// The process of the command, until it executes.
    pending_command: Option<u32>,
    membership: Membership,
    /// True once fork records may have been lost.
    has_gaps: bool,
    /// Tasks that do not belong to the tree, by a look into /proc since the last gap.
    strangers: FxHashSet<u32>,
    /// Processes that never belong to the tree, though their parent may.
    excluded: FxHashSet<u32>,
    tasks: FxHashMap<u32, Task>,
    processes: FxHashMap<u32, Process>,
    serials: TaskSerial,
    /// The ids of the threads that the last exec ended, in the stream.
    replaced: Vec<TaskId>,
    /// Tasks that exited or may have exited in this batch, and in the one before.
    exited: [Vec<(u32, TaskSerial)>; 2],
}

/// The meaning of a new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommChange {
    /// The task is new to the tree.
    Started,
    /// It executed another image.
    Executed,
    /// It has another name (prctl(2)).
    Renamed,
}

impl ProcessTree {
    /// Creates a tree that begins when process `pid` executes the command.
    pub(crate) fn for_command(pid: u32, membership: Membership) -> Self {
        Self { pending_command: Some(pid), membership, ..Self::default() }
    }

    /// Creates a tree of existing processes, still empty.
    pub(crate) fn for_processes(membership: Membership) -> Self {
        Self { membership, ..Self::default() }
    }

    /// Creates a tree of all tasks of the system, except for the idle task.
    pub(crate) fn for_system() -> Self {
        Self { membership: Membership::System, ..Self::default() }
    }

    /// True if samples of a thread are recorded, or may be: if the thread is not known yet.
    pub(crate) fn accepts(&self, tid: u32) -> bool {
        self.tasks.contains_key(&tid) || self.takes_unknown(tid) || self.may_miss(tid)
    }

    /// True if an unknown thread belongs to the tree.
    pub(crate) fn takes_unknown(&self, tid: u32) -> bool {
        match self.membership {
            Membership::Descendants => false,
            Membership::AllWithRecords => {
                self.pending_command.is_none() && tid != 0 && tid != RELEASED
            }
            Membership::System => tid != 0,
        }
    }

    /// True if a thread is unknown, but its fork record may have been lost.
    pub(crate) fn may_miss(&self, tid: u32) -> bool {
        self.has_gaps
            && !self.strangers.contains(&tid)
            && !self.tasks.contains_key(&tid)
            && tid != 0
            && tid != RELEASED
            && self.pending_command.is_none()
    }

    /// True if tasks of other processes also have records.
    pub(crate) fn is_filtered(&self) -> bool {
        self.membership == Membership::Descendants
    }

    /// Notes that fork records may have been lost: unknown threads may belong to the tree.
    pub(crate) fn note_gap(&mut self) {
        self.has_gaps = true;
        self.strangers.clear();
    }

    /// Notes that an existing process does not belong to the tree, though its parent may.
    pub(crate) fn exclude(&mut self, pid: u32) {
        self.excluded.insert(pid);
    }

    /// Returns the processes from below the tree down to `pid`, given the parents in /proc. None if
    /// `pid` does not belong to the tree; [`Self::may_miss`] then returns false until the next gap.
    pub(crate) fn missing_lineage(
        &mut self,
        pid: u32,
        parent_of: impl Fn(u32) -> Option<u32>,
    ) -> Option<Vec<u32>> {
        let mut lineage = Vec::new();
        let mut above = Some(pid);
        while let Some(process) = above
            && lineage.len() < LINEAGE_MAX
            && !self.strangers.contains(&process)
            && !self.excluded.contains(&process)
        {
            if self.processes.contains_key(&process) {
                lineage.reverse();
                return Some(lineage);
            }
            lineage.push(process);
            above = parent_of(process);
        }
        for stranger in lineage {
            self.note_stranger(stranger);
        }
        self.note_stranger(pid);
        None
    }

    /// Notes that an unknown thread does not belong to the tree.
    pub(crate) fn note_stranger(&mut self, tid: u32) {
        if self.strangers.len() >= STRANGERS_MAX {
            self.strangers.clear();
        }
        self.strangers.insert(tid);
    }

    /// Adds a thread found in /proc at `time_ns`. The first thread of a process must be added before
    /// its others.
    ///
    /// Without `found` the thread has exited by now; it is then added as exited, under the name of
    /// the first thread of its process.
    pub(crate) fn add_existing_thread(
        &mut self,
        pid: u32,
        tid: u32,
        found: Option<&ThreadInfo>,
        time_ns: u64,
    ) {
        if self.tasks.contains_key(&tid) {
            return;
        }
        let ids = TaskIds { pid, parent_pid: found.map_or(0, |found| found.parent), tid };
        let comm = match (found, self.tasks.get(&pid)) {
            (Some(found), _) => found.comm.clone(),
            (None, first) => first.map(|task| task.comm.clone()).unwrap_or_default(),
        };
        // A thread hangs below the first thread of its process, a process below its parent.
        let above = if tid == pid { ids.parent_pid } else { pid };
        let parent = self.processes.get(&above).map(|process| (above, process.serial));
        let process = self.processes.get_mut(&pid).map(|process| {
            process.threads += 1;
            process.serial
        });
        let serial = self.add(ids, process, parent, comm, time_ns);
        if process.is_none() {
            let process = Process::new(serial, parent, NEVER_READ, ProcessJit::default());
            self.processes.insert(pid, process);
        }
        // It has exited since its record was written, or is a first thread that has exited before
        // the others.
        if found.is_none_or(|found| found.is_zombie) {
            self.note_exit(tid, Life::Exited(time_ns));
        }
    }

    /// True if the mappings of a process are still to be read from /proc.
    pub(crate) fn needs_maps(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.maps_known_until_ns == NEVER_READ)
    }

    /// Gives a process the name in /proc, because the record of it was lost. The process may have
    /// executed another image: its mappings are to be read again.
    pub(crate) fn set_found_name(&mut self, pid: u32, name: Vec<u8>) {
        if let Some(task) = self.tasks.get_mut(&pid)
            && let Some(process) = self.processes.get_mut(&pid)
        {
            task.comm = name;
            process.maps = Rc::default();
            process.maps_known_until_ns = NEVER_READ;
            process.jit = ProcessJit::default();
        }
    }

    /// Notes that the mappings of a process are about to be read, and hold at `time_ns`.
    pub(crate) fn set_maps_known_until(&mut self, pid: u32, time_ns: u64) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.maps_known_until_ns = time_ns;
        }
    }

    /// Returns the ids of the processes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.processes.keys().copied()
    }

    /// Returns the images that are mapped, some more than once.
    pub(crate) fn images(&self) -> impl Iterator<Item = ImageIndex> {
        self.processes.values().flat_map(|process| process.maps.images())
    }

    /// Returns a task by its thread id. None if it is not in the tree.
    pub(crate) fn task(&self, tid: u32) -> Option<&Task> {
        self.tasks.get(&tid)
    }

    /// True if a task is in the tree and has not exited.
    pub(crate) fn lives(&self, tid: u32) -> bool {
        self.tasks.get(&tid).is_some_and(|task| !task.has_exited())
    }

    /// Returns a process by its id. None if it is not in the tree.
    pub(crate) fn process_mut(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(&pid)
    }

    /// Returns the stream's id of the first thread of a process; none if it was removed.
    pub(crate) fn id_of(&self, pid: u32, serial: TaskSerial) -> TaskId {
        let first = self.tasks.get(&pid).filter(|task| task.serial == serial);
        first.map_or(TaskId::NONE, |task| task.id)
    }

    /// Returns the stream's id of the parent of a task; none if it was removed.
    pub(crate) fn parent_id(&self, task: &Task) -> TaskId {
        task.parent.map_or(TaskId::NONE, |(pid, serial)| self.id_of(pid, serial))
    }

    /// Returns the thread ids of all tasks, oldest first, to be given ids in a new epoch.
    pub(crate) fn living(&mut self) -> Vec<u32> {
        let mut living: Vec<_> = self.tasks.values().map(|task| (task.serial, task.tid)).collect();
        living.sort_unstable();
        living.into_iter().map(|(_, tid)| tid).collect()
    }

    /// Sets the id of a task in the stream.
    pub(crate) fn set_id(&mut self, tid: u32, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.id = id;
        }
    }

    /// Adds a task that was created. Returns true if it belongs to the tree.
    pub(crate) fn fork(&mut self, ids: TaskIds, sample_id: SampleId) -> bool {
        let is_newer = |task: &Task| !task.has_exited() && task.time_ns > sample_id.time;
        // It was found in /proc since, perhaps as another task with the same id.
        if self.tasks.get(&ids.tid).is_some_and(is_newer) {
            return false;
        }
        self.forget_reused(ids.tid);
        let Some(parent) = self.processes.get_mut(&ids.parent_pid) else {
            if self.has_gaps {
                self.note_stranger(ids.tid);
            }
            return false;
        };
        let above = Some((ids.parent_pid, parent.serial));
        let creator = self.tasks.get(&sample_id.tid).or_else(|| self.tasks.get(&ids.parent_pid));
        let comm = creator.map(|task| task.comm.clone()).unwrap_or_default();
        if ids.pid == ids.parent_pid {
            parent.threads += 1;
            let process = parent.serial;
            self.add(ids, Some(process), above, comm, sample_id.time);
            return true;
        }
        // Mappings that /proc listed for the parent hold from before the fork, whenever it was read.
        let is_read = parent.maps_known_until_ns != NEVER_READ;
        let known_until_ns = if is_read { sample_id.time } else { NEVER_READ };
        let mut child = Process::new(
            TaskSerial::default(),
            above,
            known_until_ns,
            parent.jit.forked(sample_id.time),
        );
        child.maps = parent.maps.clone();
        child.not_seen_since_exec = parent.not_seen_since_exec;
        child.serial = self.add(ids, None, above, comm, sample_id.time);
        self.processes.insert(ids.pid, child);
        true
    }

    /// Removes the tasks that had an id before, because the kernel has given it to a new task: they
    /// have exited, even if their exit records were lost.
    fn forget_reused(&mut self, tid: u32) {
        if self.has_gaps {
            self.strangers.remove(&tid);
        }
        self.excluded.remove(&tid);
        self.remove(tid);
        // The id of a process is free only after all of its threads are gone.
        if let Some(process) = self.processes.remove(&tid) {
            self.tasks.retain(|_, task| task.process != process.serial);
        }
    }

    /// Removes a task, and its process if it was the last thread.
    fn remove(&mut self, tid: u32) {
        let Some(task) = self.tasks.remove(&tid) else { return };
        let process = self.processes.get_mut(&task.pid);
        let Some(process) = process.filter(|process| process.serial == task.process) else {
            return;
        };
        process.threads = process.threads.saturating_sub(1);
        if process.threads == 0 {
            self.processes.remove(&task.pid);
        }
    }

    /// Adds a task. With no process it is the first thread of a new one.
    fn add(
        &mut self,
        ids: TaskIds,
        process: Option<TaskSerial>,
        parent: Option<(u32, TaskSerial)>,
        comm: Vec<u8>,
        time_ns: u64,
    ) -> TaskSerial {
        self.serials.0 += 1;
        let serial = self.serials;
        let task = Task {
            serial,
            pid: ids.pid,
            tid: ids.tid,
            process: process.unwrap_or(serial),
            parent,
            comm,
            time_ns,
            id: TaskId::NONE,
            life: Life::Lives,
        };
        self.tasks.insert(ids.tid, task);
        serial
    }

    /// Gives a task a new name, by exec or otherwise. None if it is not in the tree.
    pub(crate) fn rename(
        &mut self,
        tid: u32,
        exec: bool,
        name: &[u8],
        sample_id: SampleId,
    ) -> Option<CommChange> {
        if exec {
            return self.execute(tid, name, sample_id);
        }
        self.tasks.get_mut(&tid)?.comm = name.to_vec();
        Some(CommChange::Renamed)
    }

    /// Notes that a process executed an image. All its other threads exit, and the remaining one
    /// takes the id of the process (de_thread() in fs/exec.c).
    fn execute(&mut self, pid: u32, name: &[u8], sample_id: SampleId) -> Option<CommChange> {
        let time_ns = sample_id.time;
        let ids = TaskIds { pid, parent_pid: 0, tid: pid };
        let exec = Some(PendingExec { tid: pid, time_ns, has_mappings: false });
        if self.pending_command == Some(pid) {
            self.pending_command = None;
            let serial = self.add(ids, None, None, name.to_vec(), time_ns);
            let mut process = Process::new(serial, None, 0, ProcessJit::executed(time_ns));
            process.not_seen_since_exec = true;
            process.exec = exec;
            self.processes.insert(pid, process);
            return Some(CommChange::Started);
        }
        let process = self.processes.get_mut(&pid)?;
        process.exec = exec;
        // /proc already listed the mappings of the new image.
        if process.maps_known_until_ns != NEVER_READ && time_ns < process.maps_known_until_ns {
            self.tasks.get_mut(&pid)?.comm = name.to_vec();
            return Some(CommChange::Executed);
        }
        process.maps_known_until_ns = 0;
        process.maps = Rc::default();
        process.jit = ProcessJit::executed(time_ns);
        process.not_seen_since_exec = true;
        let had_threads = std::mem::replace(&mut process.threads, 1) > 1;
        let (serial, parent) = (process.serial, process.parent);
        // Without this check, an exec would cost a pass over all tasks of the system. If the first
        // thread has exited and was removed, the one that executes had an id of its own, which is
        // free now.
        if had_threads || !self.tasks.contains_key(&pid) {
            let is_replaced = |&tid: &u32, task: &mut Task| task.process == serial && tid != pid;
            let replaced = self.tasks.extract_if(is_replaced).map(|(_, task)| task);
            self.replaced =
                replaced.filter(|task| !task.has_exited()).map(|task| task.id).collect();
        }
        if let Some(task) = self.tasks.get_mut(&pid).filter(|task| !task.has_exited()) {
            task.comm = name.to_vec();
            return Some(CommChange::Executed);
        }
        // The first thread has exited, and another one executed the image under its id. The process
        // is the same: its children refer to it by its serial.
        self.add(ids, Some(serial), parent, name.to_vec(), time_ns);
        if let Some(task) = self.tasks.get_mut(&pid) {
            task.serial = serial;
        }
        Some(CommChange::Started)
    }

    /// Returns the ids of the threads that an exec ended without an exit record, in the stream.
    pub(crate) fn take_replaced(&mut self) -> Vec<TaskId> {
        let mut replaced = std::mem::take(&mut self.replaced);
        replaced.sort_unstable();
        replaced
    }

    /// Adds a mapping to a process of the tree, unless /proc was read later.
    pub(crate) fn map(&mut self, pid: u32, time_ns: u64, mapping: Mapping) {
        if let Some(process) = self.processes.get_mut(&pid)
            && time_ns >= process.maps_known_until_ns
        {
            Rc::make_mut(&mut process.maps).map(mapping);
        }
    }

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
    fn note_exit(&mut self, tid: u32, life: Life) -> bool {
        let Some(task) = self.tasks.get_mut(&tid).filter(|task| !task.has_exited()) else {
            return false;
        };
        task.life = life;
        self.exited[0].push((tid, task.serial));
        true
    }

    /// Notes that a task did something at `time_ns` that only living tasks do. Returns true if it
    /// counted as exited.
    pub(crate) fn note_life(&mut self, tid: u32, time_ns: u64) -> bool {
        let Some(task) = self.tasks.get_mut(&tid) else { return false };
        let is_refuted = match task.life {
            Life::Lives => false,
            Life::InDoubt(exit_ns) | Life::Exited(exit_ns) => exit_ns < time_ns,
        };
        let had_exited = task.has_exited();
        if is_refuted {
            task.life = Life::Lives;
        }
        is_refuted && had_exited
    }

    /// Ends a batch of records: removes the tasks that exited in the one before. Returns those for
    /// which no record has shown whether they exited.
    pub(crate) fn end_batch(&mut self) -> Vec<DoubtfulExit> {
        let mut doubtful = Vec::new();
        let now = std::mem::take(&mut self.exited[0]);
        for (tid, serial) in std::mem::replace(&mut self.exited[1], now) {
            // The id may belong to another task by now.
            let Some(task) = self.tasks.get(&tid).filter(|task| task.serial == serial) else {
                continue;
            };
            match task.life {
                Life::Lives => {}
                Life::InDoubt(time_ns) => {
                    doubtful.push(DoubtfulExit {
                        pid: task.pid,
                        tid,
                        time_ns,
                        known_since_ns: task.time_ns,
                        follows_exec: self.has_just_executed(task.pid, tid),
                    });
                }
                Life::Exited(_) => self.remove(tid),
            }
        }
        doubtful
    }

    /// Returns the doubtful exits of the last batches.
    pub(crate) fn remaining_doubts(&mut self) -> Vec<DoubtfulExit> {
        [self.end_batch(), self.end_batch()].concat()
    }
}

#[cfg(test)]
mod tests;
