//! The tree of the processes and threads that are followed, kept from the kernel's records. Pure.
//!
//! Samples of tasks outside of the tree are dropped before they are decoded. A task that has exited
//! stays for one more batch, for records that were stamped before its exit and come after it.
//!
//! Processes that exist when recording starts are read from /proc. The state in /proc holds for the
//! moment of reading: kernel records with an earlier time are ignored.

use std::rc::Rc;

use nprof_stream::TaskId;
use rustc_hash::FxHashMap;

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
    pub(crate) has_exited: bool,
}

/// An exec before its image is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingExec {
    pub(crate) tid: u32,
    pub(crate) time_ns: u64,
}

/// The state that the threads of a process share.
#[derive(Debug)]
pub(crate) struct Process {
    /// The serial of its first thread.
    pub(crate) serial: TaskSerial,
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
    fn new(serial: TaskSerial, maps_known_until_ns: u64, jit: ProcessJit) -> Self {
        Self {
            serial,
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

/// The processes and threads that are followed.
#[derive(Debug, Default)]
pub(crate) struct ProcessTree {
    /// The process of the command, until it executes.
    pending_command: Option<u32>,
    /// True if every task of the system belongs to it.
    is_open: bool,
    tasks: FxHashMap<u32, Task>,
    processes: FxHashMap<u32, Process>,
    serials: TaskSerial,
    /// Tasks that exited in this batch, and in the one before.
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
    pub(crate) fn for_command(pid: u32) -> Self {
        Self { pending_command: Some(pid), ..Self::default() }
    }

    /// Creates a tree of all tasks of the system, except for the idle task.
    pub(crate) fn for_system() -> Self {
        Self { is_open: true, ..Self::default() }
    }

    /// True if samples of a thread are recorded, even if the thread is not known yet.
    pub(crate) fn accepts(&self, tid: u32) -> bool {
        self.tasks.contains_key(&tid) || self.is_open && tid != 0
    }

    /// True if unknown threads belong to the tree.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
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
            self.processes.insert(pid, Process::new(serial, NEVER_READ, ProcessJit::default()));
        }
        // It has exited since its record was written.
        if found.is_none() {
            self.exit(ids);
        }
    }

    /// True if the mappings of a process are still to be read from /proc.
    pub(crate) fn needs_maps(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.maps_known_until_ns == NEVER_READ)
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
        let is_newer = |task: &Task| !task.has_exited && task.time_ns > sample_id.time;
        // It was found in /proc since, perhaps as another task with the same id.
        if self.tasks.get(&ids.tid).is_some_and(is_newer) {
            return false;
        }
        let Some(parent) = self.processes.get_mut(&ids.parent_pid) else { return false };
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
        let mut child =
            Process::new(TaskSerial::default(), known_until_ns, parent.jit.forked(sample_id.time));
        child.maps = parent.maps.clone();
        child.not_seen_since_exec = parent.not_seen_since_exec;
        child.serial = self.add(ids, None, above, comm, sample_id.time);
        self.processes.insert(ids.pid, child);
        true
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
            has_exited: false,
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
        let exec = Some(PendingExec { tid: pid, time_ns });
        if self.pending_command == Some(pid) {
            self.pending_command = None;
            let serial = self.add(ids, None, None, name.to_vec(), time_ns);
            let mut process = Process::new(serial, 0, ProcessJit::executed(time_ns));
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
        let serial = process.serial;
        // Without this check, an exec would cost a pass over all tasks of the system.
        if had_threads {
            self.tasks.retain(|&tid, task| task.process != serial || tid == pid);
        }
        if let Some(task) = self.tasks.get_mut(&pid).filter(|task| !task.has_exited) {
            task.comm = name.to_vec();
            return Some(CommChange::Executed);
        }
        // The first thread has exited, and another one executed the image under its id.
        let parent = self.tasks.get(&pid).and_then(|task| task.parent);
        let serial = self.add(ids, None, parent, name.to_vec(), time_ns);
        self.processes.get_mut(&pid)?.serial = serial;
        Some(CommChange::Started)
    }

    /// Adds a mapping to a process of the tree, unless /proc was read later.
    pub(crate) fn map(&mut self, pid: u32, time_ns: u64, mapping: Mapping) {
        if let Some(process) = self.processes.get_mut(&pid)
            && time_ns >= process.maps_known_until_ns
        {
            Rc::make_mut(&mut process.maps).map(mapping);
        }
    }

    /// Notes that a task has exited. Returns true if it was in the tree.
    pub(crate) fn exit(&mut self, ids: TaskIds) -> bool {
        let Some(task) = self.tasks.get_mut(&ids.tid).filter(|task| !task.has_exited) else {
            return false;
        };
        task.has_exited = true;
        self.exited[0].push((ids.tid, task.serial));
        true
    }

    /// Ends a batch of records: removes the tasks that exited in the one before.
    pub(crate) fn end_batch(&mut self) {
        let now = std::mem::take(&mut self.exited[0]);
        for (tid, serial) in std::mem::replace(&mut self.exited[1], now) {
            // The id may belong to another task by now.
            let Some(task) = self.tasks.get(&tid).filter(|task| task.serial == serial) else {
                continue;
            };
            let (pid, serial) = (task.pid, task.process);
            self.tasks.remove(&tid);
            let process = self.processes.get_mut(&pid).filter(|process| process.serial == serial);
            let Some(process) = process else { continue };
            process.threads = process.threads.saturating_sub(1);
            if process.threads == 0 {
                self.processes.remove(&pid);
            }
        }
    }
}

#[cfg(test)]
mod tests;
