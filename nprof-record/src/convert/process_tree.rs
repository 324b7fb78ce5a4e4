//! The tree of the processes and threads that are followed, kept from the kernel's records. Pure.
//!
//! What is not in the tree is not to be recorded: its samples are dropped before anything is
//! made of them. A task that ended stays until the next round, for what was stamped before its
//! end and comes after it.
//!
//! What was there before the recording is adopted, as /proc tells of it. What /proc told is as
//! of a moment: what the kernel's records tell of an earlier one is passed over.

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
    /// Its process's, which is its first thread's.
    process: TaskSerial,
    /// For a thread its process's first thread, for a process its parent's: thread id and serial.
    parent: Option<(u32, TaskSerial)>,
    pub(crate) comm: Vec<u8>,
    /// When it began, ns.
    pub(crate) time: u64,
    /// Its id in the stream's current epoch.
    pub(crate) id: TaskId,
    pub(crate) ended: bool,
}

/// What threads share.
#[derive(Debug)]
pub(crate) struct Process {
    /// The first thread's.
    pub(crate) serial: TaskSerial,
    pub(crate) maps: Rc<AddressSpace>,
    /// Up to when its mappings are known from /proc, ns; [`NEVER_READ`] before they were asked for.
    known_until: u64,
    /// It has executed an image and not been seen in it yet: the registers that are not of this
    /// image are left over from before.
    pub(crate) not_seen_since_exec: bool,
    /// An exec whose image is not known yet, by whom and when.
    pub(crate) exec: Option<(u32, u64)>,
    /// The code it made itself.
    pub(crate) jit: ProcessJit,
    threads: usize,
}

/// For ever: nothing the records tell of its mappings is of use yet.
const NEVER_READ: u64 = u64::MAX;

/// The tree.
#[derive(Debug, Default)]
pub(crate) struct ProcessTree {
    /// The command, until it executes.
    pending_command: Option<u32>,
    /// Whether whoever is met belongs to it.
    open: bool,
    tasks: FxHashMap<u32, Task>,
    processes: FxHashMap<u32, Process>,
    serials: TaskSerial,
    /// Tasks that ended in this round, and in the one before.
    ended: [Vec<(u32, TaskSerial)>; 2],
}

/// What a name's change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommChange {
    /// It is the first the tree hears of the task.
    Started,
    /// It executed another image.
    Executed,
    /// It took another name.
    Renamed,
}

impl ProcessTree {
    /// A tree that begins when process `pid` executes the command.
    pub(crate) fn for_command(pid: u32) -> Self {
        Self { pending_command: Some(pid), ..Self::default() }
    }

    /// A tree that whoever is met belongs to, but the idle task.
    pub(crate) fn for_system() -> Self {
        Self { open: true, ..Self::default() }
    }

    /// Whether a thread's samples belong to the tree, be it known yet or not.
    pub(crate) fn accepts(&self, tid: u32) -> bool {
        self.tasks.contains_key(&tid) || self.open && tid != 0
    }

    /// Whether a thread that is met for the first time is to be adopted.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Takes up a thread that was there before, as it was found at `time`, ns. Its process's
    /// first thread comes before all others. With `found` none it is gone by now; a thread then
    /// is called as its process's first one.
    pub(crate) fn add_existing_thread(
        &mut self,
        pid: u32,
        tid: u32,
        found: Option<&ThreadInfo>,
        time: u64,
    ) {
        if self.tasks.contains_key(&tid) {
            return;
        }
        let ids = TaskIds { pid, parent_pid: found.map_or(0, |found| found.parent), tid };
        let comm = match (found, self.tasks.get(&pid)) {
            (Some(found), _) => found.comm.clone(),
            (None, first) => first.map(|task| task.comm.clone()).unwrap_or_default(),
        };
        let above = if tid == pid { ids.parent_pid } else { pid };
        let parent = self.processes.get(&above).map(|process| (above, process.serial));
        let process = self.processes.get_mut(&pid).map(|process| {
            process.threads += 1;
            process.serial
        });
        let serial = self.add(ids, process, parent, comm, time);
        if process.is_none() {
            let (maps, jit, exec) = (Rc::default(), ProcessJit::default(), None);
            let known_until = NEVER_READ;
            let process = Process {
                serial,
                maps,
                known_until,
                not_seen_since_exec: false,
                exec,
                jit,
                threads: 1,
            };
            self.processes.insert(pid, process);
        }
        if found.is_none() {
            self.exit(ids);
        }
    }

    /// Whether a process's mappings are to be asked of /proc.
    pub(crate) fn needs_maps(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.known_until == NEVER_READ)
    }

    /// A process's mappings will be told as they are at `time`, ns, or later.
    pub(crate) fn begin_maps(&mut self, pid: u32, time: u64) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.known_until = time;
        }
    }

    /// The processes that live.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.processes.keys().copied()
    }

    /// The images they have mapped, some more than once.
    pub(crate) fn images(&self) -> impl Iterator<Item = ImageIndex> {
        self.processes.values().flat_map(|process| process.maps.images())
    }

    /// The task of that thread id, if it is in the tree.
    pub(crate) fn task(&self, tid: u32) -> Option<&Task> {
        self.tasks.get(&tid)
    }

    /// The process of that id, if it is in the tree.
    pub(crate) fn process_mut(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(&pid)
    }

    /// The stream's id of the first thread of a process, while it is known.
    pub(crate) fn id_of(&self, pid: u32, serial: TaskSerial) -> TaskId {
        let first = self.tasks.get(&pid).filter(|task| task.serial == serial);
        first.map_or(TaskId::NONE, |task| task.id)
    }

    /// The stream's id of a task's parent; none when it is gone.
    pub(crate) fn parent_id(&self, task: &Task) -> TaskId {
        task.parent.map_or(TaskId::NONE, |(pid, serial)| self.id_of(pid, serial))
    }

    /// Every task that lives, oldest first, to be given its id in a new epoch.
    pub(crate) fn living(&mut self) -> Vec<u32> {
        let mut living: Vec<_> = self.tasks.values().map(|task| (task.serial, task.tid)).collect();
        living.sort_unstable();
        living.into_iter().map(|(_, tid)| tid).collect()
    }

    /// Sets a task's id in the stream.
    pub(crate) fn set_id(&mut self, tid: u32, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.id = id;
        }
    }

    /// A task was made. Whether it is in the tree.
    pub(crate) fn fork(&mut self, ids: TaskIds, sample_id: SampleId) -> bool {
        if self.tasks.get(&ids.tid).is_some_and(|task| !task.ended && task.time > sample_id.time) {
            return false; // it was adopted since
        }
        let Some(parent) = self.processes.get_mut(&ids.parent_pid) else { return false };
        let above = Some((ids.parent_pid, parent.serial));
        let maker = self.tasks.get(&sample_id.tid).or_else(|| self.tasks.get(&ids.parent_pid));
        let comm = maker.map(|task| task.comm.clone()).unwrap_or_default();
        if ids.pid == ids.parent_pid {
            parent.threads += 1;
            let process = parent.serial;
            self.add(ids, Some(process), above, comm, sample_id.time);
        } else {
            let jit = parent.jit.forked(sample_id.time);
            let (maps, not_seen_since_exec, exec) =
                (parent.maps.clone(), parent.not_seen_since_exec, None);
            // What /proc told of the parent is as of before the fork, whenever that was asked.
            let known_until =
                if parent.known_until == NEVER_READ { NEVER_READ } else { sample_id.time };
            let serial = self.add(ids, None, above, comm, sample_id.time);
            let child =
                Process { serial, maps, known_until, not_seen_since_exec, exec, jit, threads: 1 };
            self.processes.insert(ids.pid, child);
        }
        true
    }

    /// Adds a task; to no process when it is the first thread of a new one.
    fn add(
        &mut self,
        ids: TaskIds,
        process: Option<TaskSerial>,
        parent: Option<(u32, TaskSerial)>,
        comm: Vec<u8>,
        time: u64,
    ) -> TaskSerial {
        self.serials.0 += 1;
        let serial = self.serials;
        let process = process.unwrap_or(serial);
        let TaskIds { pid, tid, .. } = ids;
        let id = TaskId::NONE;
        self.tasks
            .insert(tid, Task { serial, pid, tid, process, parent, comm, time, id, ended: false });
        serial
    }

    /// A task took a name; `None` when it is not in the tree.
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

    /// A process executed an image. All its other threads are over, and the one that is left has
    /// the process's id, whichever thread it was before (de_thread() in fs/exec.c).
    fn execute(&mut self, pid: u32, name: &[u8], sample_id: SampleId) -> Option<CommChange> {
        let ids = TaskIds { pid, parent_pid: 0, tid: pid };
        if self.pending_command == Some(pid) {
            self.pending_command = None;
            let serial = self.add(ids, None, None, name.to_vec(), sample_id.time);
            let exec = Some((pid, sample_id.time));
            let (maps, jit) = (Rc::default(), ProcessJit::executed(sample_id.time));
            let known_until = 0;
            let process = Process {
                serial,
                maps,
                known_until,
                not_seen_since_exec: true,
                exec,
                jit,
                threads: 1,
            };
            self.processes.insert(pid, process);
            return Some(CommChange::Started);
        }
        let process = self.processes.get_mut(&pid)?;
        if process.known_until != NEVER_READ && sample_id.time < process.known_until {
            process.exec = Some((pid, sample_id.time));
            self.tasks.get_mut(&pid)?.comm = name.to_vec();
            return Some(CommChange::Executed);
        }
        process.known_until = 0;
        process.maps = Rc::default();
        process.jit = ProcessJit::executed(sample_id.time);
        process.not_seen_since_exec = true;
        process.exec = Some((pid, sample_id.time));
        let had_threads = std::mem::replace(&mut process.threads, 1) > 1;
        let serial = process.serial;
        if had_threads {
            self.tasks.retain(|&tid, task| task.process != serial || tid == pid);
        }
        match self.tasks.get_mut(&pid).filter(|task| !task.ended) {
            Some(task) => {
                task.comm = name.to_vec();
                Some(CommChange::Executed)
            }
            None => {
                let parent = self.tasks.get(&pid).and_then(|task| task.parent);
                let serial = self.add(ids, None, parent, name.to_vec(), sample_id.time);
                self.processes.get_mut(&pid)?.serial = serial;
                Some(CommChange::Started)
            }
        }
    }

    /// Executable memory was mapped into a process of the tree, at `time`, ns.
    pub(crate) fn map(&mut self, pid: u32, time: u64, mapping: Mapping) {
        if let Some(process) = self.processes.get_mut(&pid)
            && time >= process.known_until
        {
            Rc::make_mut(&mut process.maps).map(mapping);
        }
    }

    /// A task ended. Whether it was in the tree.
    pub(crate) fn exit(&mut self, ids: TaskIds) -> bool {
        let Some(task) = self.tasks.get_mut(&ids.tid).filter(|task| !task.ended) else {
            return false;
        };
        task.ended = true;
        self.ended[0].push((ids.tid, task.serial));
        true
    }

    /// A round is over: forgets the tasks that ended in the one before.
    pub(crate) fn end_batch(&mut self) {
        let now = std::mem::take(&mut self.ended[0]);
        for (tid, serial) in std::mem::replace(&mut self.ended[1], now) {
            // The id may be another task's by now.
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
