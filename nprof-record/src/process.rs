//! The command's tree of processes and threads, followed from the kernel's records. Pure.
//!
//! What is not in the tree is not the command's: its samples are dropped before anything is
//! made of them. A task that ended stays until the next round, for what was stamped before its
//! end and comes after it.

use std::rc::Rc;

use nprof_format::TaskId;
use rustc_hash::FxHashMap;

use crate::maps::{Mapping, Maps};
use crate::ring::{Kin, Stamp};

/// Tells tasks apart for ever, whereas pids are reused.
pub(crate) type Serial = u64;

/// A process or thread of the command.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) serial: Serial,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Its process's, which is its first thread's.
    process: Serial,
    /// For a thread its process's first thread, for a process its parent's: thread id and serial.
    parent: Option<(u32, Serial)>,
    pub(crate) comm: Vec<u8>,
    /// When it began, ns.
    pub(crate) time: u64,
    /// Its id in the stream's current epoch.
    pub(crate) id: TaskId,
    pub(crate) ended: bool,
}

/// What threads share.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// The first thread's.
    pub(crate) serial: Serial,
    pub(crate) maps: Rc<Maps>,
    /// It has executed an image and not been seen in it yet: the registers that are not of this
    /// image are left over from before.
    pub(crate) fresh: bool,
    /// An exec whose image is not known yet, by whom and when.
    pub(crate) exec: Option<(u32, u64)>,
    threads: usize,
}

/// The tree.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The command, until it executes.
    awaited: Option<u32>,
    tasks: FxHashMap<u32, Task>,
    processes: FxHashMap<u32, Process>,
    serials: Serial,
    /// Tasks that ended in this round, and in the one before.
    ended: [Vec<(u32, Serial)>; 2],
}

/// What a name's change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renamed {
    /// It is the first the tree hears of the task.
    Began,
    /// It executed another image.
    Executed,
    /// It took another name.
    Named,
}

impl Tree {
    /// A tree that begins when process `pid` executes the command.
    pub(crate) fn awaiting(pid: u32) -> Self {
        Self { awaited: Some(pid), ..Self::default() }
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
    pub(crate) fn id_of(&self, pid: u32, serial: Serial) -> TaskId {
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
    pub(crate) fn fork(&mut self, kin: Kin, stamp: Stamp) -> bool {
        let Some(parent) = self.processes.get_mut(&kin.parent_pid) else { return false };
        let above = Some((kin.parent_pid, parent.serial));
        let maker = self.tasks.get(&stamp.tid).or_else(|| self.tasks.get(&kin.parent_pid));
        let comm = maker.map(|task| task.comm.clone()).unwrap_or_default();
        if kin.pid == kin.parent_pid {
            parent.threads += 1;
            let process = parent.serial;
            self.add(kin, Some(process), above, comm, stamp.time);
        } else {
            let child = Process { threads: 1, exec: None, ..parent.clone() };
            let serial = self.add(kin, None, above, comm, stamp.time);
            self.processes.insert(kin.pid, Process { serial, ..child });
        }
        true
    }

    /// Adds a task; to no process when it is the first thread of a new one.
    fn add(
        &mut self,
        kin: Kin,
        process: Option<Serial>,
        parent: Option<(u32, Serial)>,
        comm: Vec<u8>,
        time: u64,
    ) -> Serial {
        self.serials += 1;
        let serial = self.serials;
        let process = process.unwrap_or(serial);
        let Kin { pid, tid, .. } = kin;
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
        stamp: Stamp,
    ) -> Option<Renamed> {
        if exec {
            return self.execute(tid, name, stamp);
        }
        self.tasks.get_mut(&tid)?.comm = name.to_vec();
        Some(Renamed::Named)
    }

    /// A process executed an image. All its other threads are over, and the one that is left has
    /// the process's id, whichever thread it was before (de_thread() in fs/exec.c).
    fn execute(&mut self, pid: u32, name: &[u8], stamp: Stamp) -> Option<Renamed> {
        let kin = Kin { pid, parent_pid: 0, tid: pid };
        if self.awaited == Some(pid) {
            self.awaited = None;
            let serial = self.add(kin, None, None, name.to_vec(), stamp.time);
            let exec = Some((pid, stamp.time));
            let process = Process { serial, maps: Rc::default(), fresh: true, exec, threads: 1 };
            self.processes.insert(pid, process);
            return Some(Renamed::Began);
        }
        let process = self.processes.get_mut(&pid)?;
        process.maps = Rc::default();
        process.fresh = true;
        process.exec = Some((pid, stamp.time));
        let had_threads = std::mem::replace(&mut process.threads, 1) > 1;
        let serial = process.serial;
        if had_threads {
            self.tasks.retain(|&tid, task| task.process != serial || tid == pid);
        }
        match self.tasks.get_mut(&pid).filter(|task| !task.ended) {
            Some(task) => {
                task.comm = name.to_vec();
                Some(Renamed::Executed)
            }
            None => {
                let parent = self.tasks.get(&pid).and_then(|task| task.parent);
                let serial = self.add(kin, None, parent, name.to_vec(), stamp.time);
                self.processes.get_mut(&pid)?.serial = serial;
                Some(Renamed::Began)
            }
        }
    }

    /// Executable memory was mapped into a process of the tree.
    pub(crate) fn map(&mut self, pid: u32, mapping: Mapping) {
        if let Some(process) = self.processes.get_mut(&pid) {
            Rc::make_mut(&mut process.maps).map(mapping);
        }
    }

    /// A task ended. Whether it was in the tree.
    pub(crate) fn exit(&mut self, kin: Kin) -> bool {
        let Some(task) = self.tasks.get_mut(&kin.tid).filter(|task| !task.ended) else {
            return false;
        };
        task.ended = true;
        self.ended[0].push((kin.tid, task.serial));
        true
    }

    /// A round is over: forgets the tasks that ended in the one before.
    pub(crate) fn end_round(&mut self) {
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
mod tests {
    use super::*;

    const COMMAND: u32 = 100;

    fn stamp(tid: u32) -> Stamp {
        Stamp { pid: tid, tid, time: u64::from(tid), cpu: 0 }
    }

    fn kin(pid: u32, parent_pid: u32, tid: u32) -> Kin {
        Kin { pid, parent_pid, tid }
    }

    fn tree() -> Tree {
        let mut tree = Tree::awaiting(COMMAND);
        assert_eq!(tree.rename(COMMAND, false, b"early", stamp(COMMAND)), None);
        assert_eq!(tree.rename(COMMAND, true, b"cmd", stamp(COMMAND)), Some(Renamed::Began));
        tree.map(COMMAND, Mapping { start: 1, end: 9, offset: 0, image: 7 });
        tree
    }

    fn process(tree: &Tree, pid: u32) -> Option<&Process> {
        tree.processes.get(&pid)
    }

    fn mapped(tree: &Tree, pid: u32) -> bool {
        process(tree, pid).is_some_and(|process| process.maps.find(1).is_some())
    }

    #[test]
    fn only_the_commands_family_is_in_the_tree() {
        let mut tree = tree();
        assert!(!tree.fork(kin(7, 6, 7), stamp(6)));
        assert!(tree.fork(kin(101, COMMAND, 101), stamp(COMMAND)));
        assert!(tree.fork(kin(102, 101, 102), stamp(101)));
        assert!(tree.task(7).is_none() && process(&tree, 7).is_none());
        assert_eq!(tree.task(102).map(|task| task.comm.as_slice()), Some(&b"cmd"[..]));
        tree.set_id(101, TaskId(5));
        assert_eq!(tree.parent_id(tree.task(102).expect("a task")), TaskId(5));
    }

    #[test]
    fn a_child_has_its_parents_mappings_until_it_executes() {
        let mut tree = tree();
        tree.fork(kin(101, COMMAND, 101), stamp(COMMAND));
        tree.map(101, Mapping { start: 20, end: 30, offset: 0, image: 8 });
        assert!(mapped(&tree, 101) && process(&tree, COMMAND).expect("it").maps.find(20).is_none());
        assert_eq!(tree.rename(101, true, b"other", stamp(101)), Some(Renamed::Executed));
        assert!(!mapped(&tree, 101) && mapped(&tree, COMMAND));
        assert!(process(&tree, 101).expect("it").fresh);
    }

    #[test]
    fn a_process_lives_as_long_as_any_of_its_threads() {
        let mut tree = tree();
        tree.fork(kin(COMMAND, COMMAND, 101), stamp(COMMAND));
        assert!(tree.exit(kin(COMMAND, 1, COMMAND)));
        tree.end_round();
        tree.end_round();
        assert!(tree.task(COMMAND).is_none() && mapped(&tree, COMMAND));
        assert!(tree.exit(kin(COMMAND, 1, 101)));
        assert!(!tree.exit(kin(COMMAND, 1, 101)), "a task ends once");
        assert!(tree.task(101).is_some(), "what is late finds it");
        tree.end_round();
        tree.end_round();
        assert!(process(&tree, COMMAND).is_none());
    }

    #[test]
    fn a_reused_pid_is_another_task() {
        let mut tree = tree();
        tree.fork(kin(101, COMMAND, 101), stamp(COMMAND));
        tree.fork(kin(101, 101, 102), stamp(101));
        let first = tree.task(101).expect("it").serial;
        tree.exit(kin(101, COMMAND, 101));
        tree.exit(kin(101, COMMAND, 102));
        tree.fork(kin(101, COMMAND, 101), stamp(COMMAND));
        tree.end_round();
        tree.end_round();
        assert_ne!(tree.task(101).expect("the new one").serial, first);
        assert!(mapped(&tree, 101) && tree.task(102).is_none());
    }

    #[test]
    fn a_thread_that_executes_becomes_the_process() {
        let mut tree = tree();
        tree.fork(kin(COMMAND, COMMAND, 101), stamp(COMMAND));
        tree.exit(kin(COMMAND, 1, COMMAND));
        let renamed = tree.rename(COMMAND, true, b"new", stamp(COMMAND));
        assert_eq!(renamed, Some(Renamed::Began));
        tree.end_round();
        tree.end_round();
        assert_eq!(tree.task(COMMAND).map(|task| task.comm.as_slice()), Some(&b"new"[..]));
        assert!(tree.task(101).is_none() && process(&tree, COMMAND).is_some());
        tree.exit(kin(COMMAND, 1, COMMAND));
        tree.end_round();
        tree.end_round();
        assert!(process(&tree, COMMAND).is_none());
    }

    #[test]
    fn the_living_are_listed_oldest_first() {
        let mut tree = tree();
        tree.fork(kin(90, COMMAND, 90), stamp(COMMAND));
        assert_eq!(tree.living(), [COMMAND, 90]);
    }
}
