//! Follows tasks: their creation, names, execs and exits.

use std::rc::Rc;

use nprof_stream::{Change, ChangeKind, Extras, ExtrasBuilder, Record, Task, TaskId};

use crate::convert::converter::Converter;
use crate::convert::dictionary::Sink;
use crate::convert::process_tree::{CommChange, PendingExec};
use crate::convert::stack_resolver::StackResolver;
use crate::os::procfs::{self, ThreadInfo, ThreadNames};
use crate::os::task_serial::ProcessId;
use crate::perf::record::{SampleId, TaskIds};
use crate::sys;

impl<S: Sink> Converter<S> {
    /// Adds a process that existed before the recording, with all its threads. Those of processes without
    /// `names` are looked up in /proc.
    ///
    /// Returns false if it exits before: its mappings are unknown, and those of its children.
    pub(crate) fn add_existing_process(&mut self, pid: u32, names: &ThreadNames) -> bool {
        // First: processes of programs that fork again and again live for a millisecond.
        let (time_ns, maps) = (sys::monotonic_ns(), procfs::maps(pid));
        self.add_existing_threads(pid, names);
        self.set_maps(pid, time_ns, maps.as_deref());
        let has_maps = maps.is_some_and(|text| !text.is_empty());
        has_maps || procfs::living_thread(pid).is_some()
    }

    fn add_existing_threads(&mut self, pid: u32, names: &ThreadNames) {
        let Some(threads) = names.get(&pid) else {
            procfs::threads(pid).into_iter().for_each(|tid| self.add_existing_thread(pid, tid));
            return;
        };
        self.add_existing_thread(pid, pid);
        for (tid, name) in threads {
            if self.tree.task(*tid).is_none() {
                let (comm, time_ns) = (name.clone(), sys::monotonic_ns());
                let found = ThreadInfo { pid, tid: *tid, parent: 0, comm, is_zombie: false };
                self.tree.add_existing_thread(pid, *tid, Some(&found), time_ns, time_ns);
                self.define_task(*tid);
            }
        }
    }

    /// Notes that an existing process is not recorded, even if its parent is.
    pub(crate) fn exclude(&mut self, pid: u32) {
        self.tree.exclude(pid);
    }

    /// Adds a thread that existed before the recording, and its process, as /proc describes them
    /// now.
    pub(crate) fn add_existing_thread(&mut self, pid: u32, tid: u32) {
        self.add_known_thread(pid, tid, sys::monotonic_ns());
    }

    /// Adds a thread that is known since `time_ns`, and its process, as /proc describes them now.
    pub(super) fn add_known_thread(&mut self, pid: u32, tid: u32, time_ns: u64) {
        // The first thread comes first: others refer to it as their parent. It may have exited before them.
        let is_known = self.tree.task(tid).is_some() || self.tree.has_process(pid);
        for tid in [pid, tid].into_iter().skip(usize::from(is_known && tid != pid)) {
            if self.tree.task(tid).is_none() {
                let found = procfs::thread_info(pid, tid);
                let now_ns = sys::monotonic_ns();
                self.tree.add_existing_thread(pid, tid, found.as_ref(), time_ns, now_ns);
                let mut extras = ExtrasBuilder::new();
                if tid == pid
                    && let Some(exe) = procfs::executed_file(pid)
                {
                    extras.add("exe", &exe);
                }
                self.define_task_with(tid, extras.extras());
                // Its exit record will be of no living task.
                if !self.tree.lives(tid) {
                    self.note_exited(tid);
                }
            }
        }
    }

    /// Adds a thread at its first record, of the time `time_ns`, if it belongs to the tree.
    pub(super) fn add_if_new(&mut self, pid: u32, tid: u32, time_ns: u64) {
        if self.tree.takes_unknown(tid) && self.tree.takes_unknown(pid) {
            self.has_newcomers = true;
            // It may have exited since. Its times begin before its lookup.
            self.add_known_thread(pid, tid, time_ns);
        } else if self.tree.may_miss(tid) {
            self.look_up(pid, tid, time_ns);
        }
    }

    /// True if unknown threads have had records since the last call.
    pub(crate) fn take_newcomers(&mut self) -> bool {
        std::mem::take(&mut self.has_newcomers)
    }

    /// Adds those of some processes that are unknown.
    pub(crate) fn add_unknown_processes(&mut self, pids: &[u32]) {
        for &pid in pids {
            if !self.tree.has_process(pid) {
                self.add_existing_process(pid, &ThreadNames::default());
            }
        }
    }

    /// Notes that a task lives at `time_ns`.
    pub(super) fn note_life(&mut self, tid: u32, time_ns: u64) {
        // Its exit is in the stream already: it goes on as a new task, or another thread executed an image
        // under its id.
        if self.tree.note_life(tid, time_ns) {
            self.define_task(tid);
            self.measure_started(tid, time_ns);
        }
    }

    /// Drops the state of the stack of a thread.
    pub(super) fn drop_stack_state(&mut self, tid: u32) {
        self.resolver.watches.forget(tid);
        let StackResolver { copy_hints, wait_copy_hints, .. } = &mut self.resolver;
        for copy_hints in [copy_hints, wait_copy_hints].into_iter().flatten() {
            copy_hints.forget(tid);
        }
    }

    pub(super) fn handle_comm(&mut self, sample_id: SampleId, tid: u32, exec: bool, name: &[u8]) {
        self.drop_reused(sample_id);
        // Another thread of the process may name one that has exited.
        self.note_life(sample_id.tid, sample_id.time);
        // The memory with the watched frames is gone, and the other threads, too.
        if exec {
            self.read_names_to_end(tid, u64::MAX);
            self.resolver.watches.forget_process(tid);
            self.end_heaps(tid, sample_id.time);
        }
        let change = self.tree.rename(tid, exec, name, sample_id);
        if exec && change.is_some() {
            self.note_executed(tid, name);
        }
        for (task, tid) in self.tree.take_replaced() {
            self.end_replaced(task, tid, sample_id.time);
            self.write_exit_of(task, sample_id.time);
        }
        match change {
            Some(CommChange::Started) => {
                self.define_task(tid);
                self.measure_started(tid, sample_id.time);
            }
            Some(CommChange::Renamed) => {
                self.emit_change(sample_id.time, tid, ChangeKind::Comm, name, Extras::NONE);
            }
            // Written when its image is mapped: that record comes next and has the path.
            Some(CommChange::Executed) | None => {}
        }
    }

    /// Writes the exits of tasks that have exited without an exit record, and of which the ids are those of
    /// others. The times of their ends are unknown.
    pub(super) fn write_replaced(&mut self, time_ns: u64) {
        for (task, _) in self.tree.take_replaced() {
            self.write_exit_of(task, time_ns);
        }
    }

    /// Writes the exit of a task that has exited without an exit record.
    fn write_exit_of(&mut self, task: TaskId, time: u64) {
        let (kind, extras) = (ChangeKind::Exit, Extras::NONE);
        self.sink.take(&Record::Change(Change { time, task, kind, value: b"", extras }));
    }

    pub(super) fn handle_fork(&mut self, sample_id: SampleId, ids: TaskIds) {
        self.drop_reused(sample_id);
        self.note_life(sample_id.tid, sample_id.time);
        self.add_if_new(sample_id.pid, sample_id.tid, sample_id.time);
        if self.tree.needs_maps(ids.parent_pid) {
            // The child inherits these mappings, and may have others by its first sample.
            self.read_maps(ids.parent_pid);
        }
        // The id may have been that of an exited thread.
        self.drop_stack_state(ids.tid);
        let is_ours = self.tree.fork(ids, sample_id);
        self.write_replaced(sample_id.time);
        if is_ours {
            self.define_task(ids.tid);
            self.measure_created(ids.tid, sample_id.time);
        }
        if is_ours && ids.pid != ids.parent_pid {
            self.own_memory(ids.pid);
        }
    }

    /// Gives a forked process images of the memory that it has from its parent.
    fn own_memory(&mut self, pid: u32) {
        let images = &mut self.resolver.frames.images;
        let Some(process) = self.tree.process_mut(pid) else { return };
        let owner = ProcessId { pid, serial: process.serial };
        // Few programs have executable memory of their own.
        if process.maps.images().any(|image| images.is_memory_of_another(image, owner)) {
            Rc::make_mut(&mut process.maps).set_images(|index| images.inherited(index, owner));
        }
    }

    pub(super) fn handle_exit(&mut self, sample_id: SampleId, ids: TaskIds) {
        self.drop_stack_state(ids.tid);
        self.end_measured(ids.tid, sample_id.time);
        // Runtimes complete their files before the first thread of the process exits, and the files
        // may be removed soon. Some programs end many threads a second before that.
        if ids.tid == ids.pid || !self.tree.lives(ids.pid) {
            self.read_names_to_end(ids.pid, u64::MAX);
        }
        // If not: it is not in the tree, its exit was found in /proc before, or it may live on.
        if self.tree.exit(ids, sample_id.time) {
            self.write_exit(ids.pid, ids.tid, sample_id.time);
        }
    }

    /// Writes the exit of a task.
    pub(super) fn write_exit(&mut self, pid: u32, tid: u32, time_ns: u64) {
        self.write_pending_exec(pid);
        let exit = self.exit.as_ref().filter(|exit| exit.pid == tid);
        let status = exit.map(|exit| exit.status.clone()).unwrap_or_default();
        self.emit_change(time_ns, tid, ChangeKind::Exit, status.as_bytes(), Extras::NONE);
        self.note_exited(tid);
    }

    /// Writes an exec of which no mapping was reported: the exec was killed, or records were lost.
    pub(super) fn write_pending_exec(&mut self, pid: u32) {
        let pending = self.tree.process_mut(pid).and_then(|process| process.exec.take());
        if let Some(exec) = pending {
            self.emit_exec(exec, b"");
        }
    }

    /// Writes an exec, with the path of its image unless it is empty.
    pub(super) fn emit_exec(&mut self, exec: PendingExec, path: &[u8]) {
        let comm = self.tree.task(exec.tid).map(|task| task.comm.clone()).unwrap_or_default();
        let mut extras = ExtrasBuilder::new();
        if !path.is_empty() {
            extras.add("exe", path);
        }
        self.emit_change(exec.time_ns, exec.tid, ChangeKind::Exec, &comm, extras.extras());
    }

    pub(super) fn emit_change(
        &mut self,
        time: u64,
        tid: u32,
        kind: ChangeKind,
        value: &[u8],
        extras: Extras<'_>,
    ) {
        let Some(task) = self.tree.task(tid).map(|task| task.id) else { return };
        self.sink.take(&Record::Change(Change { time, task, kind, value, extras }));
    }

    pub(super) fn define_task(&mut self, tid: u32) {
        self.define_task_with(tid, Extras::NONE);
    }

    fn define_task_with(&mut self, tid: u32, extras: Extras<'_>) {
        // Ids count from 1; 0 is no task.
        self.tasks += 1;
        let id = TaskId(self.tasks);
        self.tree.set_id(tid, id);
        if let Some(copy_hints) = &mut self.resolver.copy_hints {
            copy_hints.accept_thread(tid);
        }
        let Some(task) = self.tree.task(tid) else { return };
        let record = Task {
            id,
            time: task.time_ns,
            pid: task.pid,
            tid: task.tid,
            parent: self.tree.parent_id(task),
            comm: &task.comm,
            extras,
        };
        self.sink.take(&Record::Task(record));
    }
}
