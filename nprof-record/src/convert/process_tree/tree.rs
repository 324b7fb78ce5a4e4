//! The tree of the processes and threads that are followed, kept from the kernel's records. Pure.
//!
//! Samples of tasks outside of the tree are dropped before they are decoded.
//!
//! Processes that exist when recording starts are read from /proc. The state in /proc holds for the
//! moment of reading: kernel records with an earlier time are ignored.

use std::rc::Rc;

use nprof_stream::TaskId;
use rustc_hash::FxHashMap;

use crate::convert::address_space::Mapping;
use crate::convert::process_tree::membership::{Membership, RELEASED, UnknownTasks};
use crate::convert::process_tree::task::{
    Life, NEVER_READ, PendingExec, Process, ProcessEnd, Task,
};
use crate::image::jit::process_jit::ProcessJit;
use crate::image::key::ImageIndex;
use crate::os::procfs::ThreadInfo;
use crate::os::task_serial::TaskSerial;
use crate::perf::record::{SampleId, TaskIds};

/// The most processes between a process and its ancestor in the tree. Ids that are reused while
/// /proc is read could form a cycle.
const LINEAGE_MAX: usize = 1024;

/// The processes and threads that are followed.
#[derive(Debug, Default)]
pub(crate) struct ProcessTree {
    /// The process of the command, until it executes.
    pending_command: Option<u32>,
    unknown: UnknownTasks,
    pub(super) tasks: FxHashMap<u32, Task>,
    pub(super) processes: FxHashMap<u32, Process>,
    serials: TaskSerial,
    /// The tasks that have exited without an exit record: their ids in the stream, and thread ids.
    replaced: Vec<(TaskId, u32)>,
    /// The ends of the processes that were removed.
    ended: Vec<ProcessEnd>,
    /// Tasks that exited or may have exited in this batch or still run in the kernel, and those that
    /// had ended by the end of the batch before.
    pub(super) exited: [Vec<(u32, TaskSerial)>; 2],
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
        let unknown = UnknownTasks::new(membership);
        Self { pending_command: Some(pid), unknown, ..Self::default() }
    }

    /// Creates a tree of existing processes, still empty.
    pub(crate) fn for_processes(membership: Membership) -> Self {
        Self { unknown: UnknownTasks::new(membership), ..Self::default() }
    }

    /// Creates a tree of all tasks of the system, except for the idle task.
    pub(crate) fn for_system() -> Self {
        Self::for_processes(Membership::System)
    }

    /// True if samples of a thread are recorded, or may be: if the thread is not known yet.
    pub(crate) fn accepts(&self, tid: u32) -> bool {
        self.tasks.contains_key(&tid) || self.takes_unknown(tid) || self.may_miss(tid)
    }

    /// True if an unknown thread belongs to the tree.
    pub(crate) fn takes_unknown(&self, tid: u32) -> bool {
        self.pending_command.is_none() && self.unknown.are_taken(tid)
    }

    /// True if a process will be that of the command, once it executes.
    pub(crate) fn is_pending_command(&self, pid: u32) -> bool {
        self.pending_command == Some(pid)
    }

    /// True if a thread is unknown, but its fork record may have been lost.
    pub(crate) fn may_miss(&self, tid: u32) -> bool {
        self.pending_command.is_none()
            && self.unknown.may_belong(tid)
            && !self.tasks.contains_key(&tid)
    }

    /// True if tasks of other processes also have records.
    pub(crate) fn is_filtered(&self) -> bool {
        self.unknown.membership == Membership::Descendants
    }

    /// Notes that records may have been lost: unknown threads may belong to the tree, and processes
    /// may have mappings that are not known.
    pub(crate) fn note_gap(&mut self) {
        self.unknown.note_gap();
        for process in self.processes.values_mut() {
            process.may_lack_maps = true;
            process.may_be_reused = true;
        }
    }

    /// Notes that an existing process does not belong to the tree, though its parent may.
    pub(crate) fn exclude(&mut self, pid: u32) {
        self.unknown.exclude(pid);
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
            && !self.unknown.is_outside(process)
        {
            if self.processes.contains_key(&process) {
                lineage.reverse();
                return Some(lineage);
            }
            lineage.push(process);
            above = parent_of(process);
        }
        for stranger in lineage {
            self.unknown.note_stranger(stranger);
        }
        self.unknown.note_stranger(pid);
        None
    }

    /// Notes that an unknown thread does not belong to the tree.
    pub(crate) fn note_stranger(&mut self, tid: u32) {
        self.unknown.note_stranger(tid);
    }

    /// Adds a thread that is known since `time_ns` and was looked up in /proc at `now_ns`. The first thread of a
    /// process must be added before its others.
    ///
    /// Without `found` the thread has exited by now; it is then added as exited, under the name of
    /// the first thread of its process.
    pub(crate) fn add_existing_thread(
        &mut self,
        pid: u32,
        tid: u32,
        found: Option<&ThreadInfo>,
        time_ns: u64,
        now_ns: u64,
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
            self.note_exit(tid, Life::Exited(now_ns));
        }
    }

    /// True if a process has threads in the tree.
    pub(crate) fn has_process(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// True if the mappings of a process are still to be read from /proc.
    pub(crate) fn needs_maps(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.maps_known_until_ns == NEVER_READ)
    }

    /// Returns the id of a task in the stream, and its process, if all that its samples need is known:
    /// it lives, and the mappings of the process were read and lack none.
    #[inline]
    pub(crate) fn settled(&mut self, pid: u32, tid: u32) -> Option<(TaskId, &mut Process)> {
        let is_settled = |task: &&Task| task.life == Life::Lives && task.pid == pid;
        let task = self.tasks.get(&tid).filter(is_settled)?;
        let process = self.processes.get_mut(&task.pid)?;
        let is_read = process.maps_known_until_ns != NEVER_READ && !process.may_lack_maps;
        is_read.then_some((task.id, process))
    }

    /// Returns the id of a task in the stream, and its process. None if it is not in the tree.
    pub(crate) fn task_and_process(&mut self, tid: u32) -> Option<(TaskId, &mut Process)> {
        let task = self.tasks.get(&tid)?;
        Some((task.id, self.processes.get_mut(&task.pid)?))
    }

    /// Returns true if records of mappings of a process may have been lost since the last call.
    pub(crate) fn take_lost_maps(&mut self, pid: u32) -> bool {
        let process = self.processes.get_mut(&pid);
        process.is_some_and(|process| std::mem::take(&mut process.may_lack_maps))
    }

    /// Returns the time since which a process is known, if its exit may have been lost since the last call.
    pub(crate) fn take_lost_exit(&mut self, pid: u32) -> Option<u64> {
        let process = self.processes.get_mut(&pid)?;
        let may_be_reused = std::mem::take(&mut process.may_be_reused);
        self.tasks.get(&pid).filter(|_| may_be_reused).map(|task| task.time_ns)
    }

    /// Returns true if a thread id of the tree is that of a thread of another process by now.
    pub(crate) fn is_of_another(&self, pid: u32, tid: u32) -> bool {
        pid != RELEASED && self.tasks.get(&tid).is_some_and(|task| task.pid != pid)
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
            self.unknown.note_stranger(ids.tid);
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
        let is_read = parent.maps_known_until_ns != NEVER_READ && !parent.has_unknown_maps;
        let known_until_ns = if is_read { sample_id.time } else { NEVER_READ };
        let mut child = Process::new(
            TaskSerial::default(),
            above,
            known_until_ns,
            parent.jit.forked(sample_id.time),
        );
        child.maps = parent.maps.clone();
        child.may_lack_maps = parent.may_lack_maps;
        child.is_unreadable = parent.is_unreadable;
        child.not_seen_since_exec = parent.not_seen_since_exec;
        child.serial = self.add(ids, None, above, comm, sample_id.time);
        self.processes.insert(ids.pid, child);
        true
    }

    /// Removes the tasks that had an id before, because the kernel has given it to a new task: they
    /// have exited, even if their exit records were lost.
    pub(crate) fn forget_reused(&mut self, tid: u32) {
        self.unknown.note_reused(tid);
        let reused = self.tasks.get(&tid).filter(|task| !task.has_exited());
        self.replaced.extend(reused.map(|task| (task.id, tid)));
        self.remove(tid);
        // The id of a process is free only after all of its threads are gone.
        if let Some(process) = self.processes.remove(&tid) {
            self.ended.push(process.end(tid));
            self.replace(process.serial, None);
        }
    }

    /// Removes the tasks of a process, except for one: they have exited without a record.
    fn replace(&mut self, process: TaskSerial, except: Option<u32>) {
        let is_replaced =
            |&tid: &u32, task: &mut Task| task.process == process && Some(tid) != except;
        let replaced = self.tasks.extract_if(is_replaced).map(|(_, task)| task);
        let replaced = replaced.filter(|task| !task.has_exited());
        self.replaced.extend(replaced.map(|task| (task.id, task.tid)));
    }

    /// Removes a task, and its process if it was the last thread.
    pub(super) fn remove(&mut self, tid: u32) {
        let Some(task) = self.tasks.remove(&tid) else { return };
        let process = self.processes.get_mut(&task.pid);
        let Some(process) = process.filter(|process| process.serial == task.process) else {
            return;
        };
        process.threads = process.threads.saturating_sub(1);
        if process.threads == 0 {
            self.ended.push(process.end(task.pid));
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
        process.has_unknown_maps = false;
        process.maps = Rc::default();
        process.jit = ProcessJit::executed(time_ns);
        process.not_seen_since_exec = true;
        let had_threads = std::mem::replace(&mut process.threads, 1) > 1;
        let (serial, parent) = (process.serial, process.parent);
        // Without this check, an exec would cost a pass over all tasks of the system. If the first
        // thread has exited and was removed, the one that executes had an id of its own, which is
        // free now.
        if had_threads || !self.tasks.contains_key(&pid) {
            self.replace(serial, Some(pid));
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

    /// Returns the tasks that have exited without an exit record, with their ids in the stream and their
    /// thread ids: an exec ended them, or another task has their id.
    pub(crate) fn take_replaced(&mut self) -> Vec<(TaskId, u32)> {
        let mut replaced = std::mem::take(&mut self.replaced);
        replaced.sort_unstable();
        replaced
    }

    /// Returns the ends of the processes that were removed since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<ProcessEnd> {
        std::mem::take(&mut self.ended)
    }

    /// Adds a mapping to a process of the tree, unless /proc was read later.
    pub(crate) fn map(&mut self, pid: u32, time_ns: u64, mapping: Mapping) {
        if let Some(process) = self.processes.get_mut(&pid)
            && time_ns >= process.maps_known_until_ns
        {
            Rc::make_mut(&mut process.maps).map(mapping);
        }
    }
}

#[cfg(test)]
mod tests;
