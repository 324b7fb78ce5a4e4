//! Takes the records of the preloaded library: processes that start and end, and those that it misses.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nprof_preload::Memos;
use nprof_preload::protocol::{Content, FLAG_PROGRAM_ALLOCATOR, Hello};
use nprof_stream::{NO_CPU, TaskId};

use crate::convert::allocations::descriptors::Descriptors;
use crate::convert::allocations::known_stacks::KnownStacks;
use crate::convert::allocations::live_set::LiveSet;
use crate::convert::allocations::state::{AllocationState, Allocator, Executed, HeapRows, Missed};
use crate::convert::converter::Converter;
use crate::convert::dictionary::Sink;
use crate::event::{PreloadPlan, PreloadedEvent};
use crate::image::allocator::AllocationFunction;
use crate::os::procfs;
use crate::perf::preloaded::{PreloadContent, PreloadRecord};
use crate::perf::record::{SampleId, TaskIds};
use crate::sys;

/// The shortest time between two readings of mappings that may have changed without a record, and the least multiple of
/// the time that a reading takes.
const MAPS_INTERVAL_NS: u64 = 10_000_000;
const MAPS_PAUSE_TIMES: u64 = 50;

/// The most executables of which it is remembered whether they bring an allocator.
const ALLOCATORS_MAX: usize = 4096;

impl<S: Sink> Converter<S> {
    /// Takes the events of the preloaded library.
    ///
    /// Without `has_records` no other record reports processes and mappings.
    pub(crate) fn set_allocations(&mut self, state: AllocationState, has_records: bool) {
        self.allocations = Some(state);
        self.reads_proc = !has_records;
    }

    /// True if the mappings of a process may have changed without a record, and are to be read again, because the
    /// stack of its thread ended in memory that is not mapped.
    pub(super) fn may_read_maps_again(&mut self, tid: u32) -> bool {
        // Most recordings have records of all mappings, and stacks without frame pointers often end in
        // memory that is not mapped. But code that runs is mapped somewhere: mremap(2) makes no record, and the record
        // of a process with the same memory (CLONE_VM) has its own id.
        let process = self.tree.task_and_process(tid).map(|(_, process)| process);
        let is_leaf = process.is_some_and(|process| self.resolver.is_leaf_unmapped(process));
        if !self.reads_proc && !is_leaf {
            return false;
        }
        // Code that is mapped nowhere would otherwise cost a reading for each sample.
        sys::monotonic_ns() >= self.maps_due_ns
    }

    /// Reads the mappings of the process of a thread again. The next time for that is after a multiple of the time that
    /// it takes.
    pub(super) fn read_maps_again(&mut self, tid: u32) -> Option<()> {
        let taken_ns = self.add_mappings(self.tree.task(tid)?.pid);
        let pause_ns = taken_ns.saturating_mul(MAPS_PAUSE_TIMES).max(MAPS_INTERVAL_NS);
        self.maps_due_ns = sys::monotonic_ns().saturating_add(pause_ns);
        Some(())
    }

    /// Returns the events of the library. None if none are recorded.
    pub(crate) fn preload_plan(&self) -> Option<&PreloadPlan> {
        self.allocations.as_ref().map(AllocationState::plan)
    }

    /// Returns what the events of the library lack. None if they are not recorded.
    pub(crate) fn missed(&mut self) -> Option<Missed> {
        let state = self.allocations.as_mut()?;
        let mut missed = Missed {
            unseen: state.unseen(),
            bypassed: state.bypassed.clone(),
            bound_deeply: state.bound_deeply.clone(),
            unconnected: state.unconnected.clone(),
            unfollowed: state.unfollowed,
        };
        for first in [&mut missed.unseen.first, &mut missed.bypassed.first] {
            let file = fs::File::open(OsStr::from_bytes(&first.path)).ok();
            first.allocator = file.and_then(AllocationFunction::find);
        }
        Some(missed)
    }

    /// Notes that a process has executed an image, which may not load the library.
    pub(super) fn note_executed(&mut self, pid: u32, comm: &[u8]) {
        if let Some(state) = &mut self.allocations {
            let (comm, path) = (comm.to_vec(), Vec::new());
            state.note_executed(pid, Executed { comm, path, allocator: None });
        }
    }

    /// Counts a process of which the executable brings an allocator of its own.
    fn note_allocator(&mut self, pid: u32, hello: &Hello) {
        let Some(state) = self.allocations.as_mut().filter(|state| state.records_heap()) else {
            return;
        };
        // Without records of mappings the process waits until its files in /proc were read.
        let known = state.executed(pid).filter(|executed| !executed.path.is_empty()).cloned();
        let executed = known.unwrap_or_else(|| executed(pid));
        let has_own = match state.allocators.get(&executed.path) {
            Some(&has_own) => has_own,
            None => {
                let file = fs::File::open(OsStr::from_bytes(&executed.path)).ok();
                // The table of symbols of a program may lack what the dynamic linker sees.
                let has_own = hello.flags & FLAG_PROGRAM_ALLOCATOR != 0
                    || file.and_then(AllocationFunction::find).is_some();
                if state.allocators.len() < ALLOCATORS_MAX {
                    state.allocators.insert(executed.path.clone(), has_own);
                }
                has_own
            }
        };
        if has_own {
            state.bypassed.add(executed, 1);
        }
    }

    /// Counts a process that has loaded a library that does not call the hooks.
    fn note_bound_deeply(&mut self, pid: u32, ring: u64) {
        let executed = self.executed_by_name(pid, ring);
        if let Some(state) = &mut self.allocations {
            state.bound_deeply.add(executed, 1);
        }
    }

    /// Counts forked children of a process that could not connect.
    fn note_unconnected(&mut self, pid: u32, ring: u64, children: u64) {
        let parent = self.executed_by_name(pid, ring);
        if let Some(state) = &mut self.allocations {
            state.unconnected.add(parent, children);
        }
    }

    /// Returns the name of a process, also after its exit.
    fn executed_by_name(&self, pid: u32, ring: u64) -> Executed {
        let state = self.allocations.as_ref();
        let started = state.and_then(|state| Some(state.processes.get(&ring)?.comm.clone()));
        let living = self.tree.task(pid).map(|task| task.comm.clone());
        Executed { comm: living.or(started).unwrap_or_default(), ..Executed::default() }
    }

    /// Takes a record of a process that has loaded the library.
    pub(super) fn handle_preloaded(&mut self, id: SampleId, record: &PreloadRecord<'_>) {
        let ring = record.ring;
        // The program may have written any number: that of another process's thread must not lead to its mappings.
        let is_foreign = self.tree.task(id.tid).is_some_and(|task| task.pid != id.pid);
        let id = if is_foreign { SampleId { tid: id.pid, ..id } } else { id };
        match &record.content {
            PreloadContent::Started(hello, memos) => self.start_allocator(id, hello, memos.clone()),
            PreloadContent::BoundDeeply => self.note_bound_deeply(id.pid, ring),
            PreloadContent::UnconnectedChildren(children) => {
                self.note_unconnected(id.pid, ring, *children);
            }
            PreloadContent::Ended => self.end_allocator(ring, id.time),
            PreloadContent::Written(content) => match content {
                Content::Allocated(allocated) => self.allocate(id, ring, allocated),
                Content::Repeated(repeated) => self.allocate_again(id, ring, repeated),
                Content::Freed(address) => self.release(id, ring, *address),
                Content::Kept(address) => self.keep(id, ring, *address),
                Content::Called(called) => self.handle_called(id, ring, called),
                Content::CalledAgain(called) => self.handle_called_again(id, ring, called),
                Content::Opened(opened) => self.open_descriptor(id, ring, opened),
                Content::Closed(range) => {
                    self.close_descriptors(id, ring, range.first, range.last);
                }
            },
        }
    }

    fn start_allocator(&mut self, id: SampleId, hello: &Hello, memos: Option<Memos>) {
        let recorded_ns = self.tree.task(id.pid).map(|task| task.time_ns);
        let is_known = recorded_ns.is_some();
        self.add_if_new(id.pid, id.tid, id.time);
        if self.reads_proc {
            self.read_process(id, is_known && hello.parent_id == 0);
        }
        let first = self.tree.task(id.pid);
        let (task, comm) =
            first.map_or((TaskId::NONE, Vec::new()), |task| (task.id, task.comm.clone()));
        if hello.parent_id == 0 {
            self.note_allocator(id.pid, hello);
        }
        let Some(state) = &mut self.allocations else { return };
        // An exec keeps descriptors, but for those that are closed on exec.
        let mut descriptors = Descriptors::default();
        if hello.parent_id == 0 {
            // Of several images that have not ended yet, the latest has those of the others.
            for before in state.processes.values_mut().filter(|it| it.pid == id.pid) {
                descriptors.take_from(&mut before.descriptors, id.time);
            }
        }
        let pid = id.pid;
        let is_open = |number| fs::symlink_metadata(format!("/proc/{pid}/fd/{number}")).is_ok();
        let closed = descriptors.split_off(is_open);
        if memos.is_some() {
            self.resolver.find_words();
        }
        let known = memos.map(KnownStacks::new);
        let process = Allocator {
            pid,
            task,
            comm,
            heap: LiveSet::new(0),
            is_heap_written: false,
            descriptors,
            known,
        };
        // A child that was not made by the hooked fork(3) states the time of its first record.
        let forked_ns = hello.started_at_ns.min(recorded_ns.unwrap_or(u64::MAX));
        state.start(hello.id, hello.parent_id, forked_ns, process);
        for descriptor in closed {
            self.write_closed(id.time, task, &descriptor);
        }
    }

    /// Reads the mappings of a process that has started, or executed another image.
    fn read_process(&mut self, id: SampleId, has_executed: bool) {
        if has_executed {
            let found = procfs::thread_info(id.pid, id.pid);
            let comm = found.map(|found| found.comm).unwrap_or_default();
            self.handle_comm(id, id.pid, true, &comm);
        }
        self.read_maps(id.pid);
    }

    /// Writes what a process has at its end.
    fn end_allocator(&mut self, ring: u64, time_ns: u64) {
        let Some(mut ended) = self.allocations.as_mut().and_then(|state| state.end(ring)) else {
            return;
        };
        self.write_live(&mut ended, time_ns);
        if self.reads_proc {
            self.exit_without_record(ended.pid, time_ns);
        }
    }

    /// Writes the exits of the threads of a process, unless it lives on with another image.
    fn exit_without_record(&mut self, pid: u32, time_ns: u64) {
        let state = self.allocations.as_ref();
        if state.is_some_and(|state| state.processes.values().any(|it| it.pid == pid)) {
            return;
        }
        let mut threads = self.tree.living();
        threads.retain(|&tid| self.tree.task(tid).is_some_and(|task| task.pid == pid));
        for tid in threads {
            let id = SampleId { pid, tid, time: time_ns, cpu: NO_CPU };
            self.handle_exit(id, TaskIds { pid, parent_pid: 0, tid });
        }
    }

    /// Writes what all processes have, at the end of the recording.
    pub(super) fn end_all_allocators(&mut self, time_ns: u64) {
        let Some(state) = &self.allocations else { return };
        let mut rings: Vec<_> = state.processes.iter().map(|(ring, it)| (it.pid, *ring)).collect();
        rings.sort_unstable();
        for (_, ring) in rings {
            self.end_allocator(ring, time_ns);
        }
    }

    /// Writes the blocks of a process that executes another image, while the stream has its name from before.
    pub(super) fn end_heaps(&mut self, pid: u32, time_ns: u64) {
        let Some(state) = &mut self.allocations else { return };
        for rows in state.take_rows_of(pid, time_ns) {
            self.write_heap(rows, time_ns);
        }
    }

    /// Writes the blocks that a process has and had at its peak.
    fn write_heap(&mut self, rows: HeapRows, time_ns: u64) {
        let HeapRows { task, peak_ns, at_peak, live } = rows;
        self.write_rows(PreloadedEvent::HeapPeak, task, time_ns, &at_peak, Some(peak_ns));
        self.write_rows(PreloadedEvent::HeapLive, task, time_ns, &live, None);
    }

    /// Writes what a process has and had at its peak.
    fn write_live(&mut self, process: &mut Allocator, time_ns: u64) {
        let task = process.task;
        if let Some(rows) = process.take_rows(time_ns) {
            self.write_heap(rows, time_ns);
        }
        for (_, descriptor) in process.descriptors.iter() {
            let age_ns = Some(time_ns.saturating_sub(descriptor.time_ns));
            let (event, node) = (PreloadedEvent::FdLive, descriptor.node);
            self.write_descriptor(event, time_ns, task, node, &descriptor.object, age_ns);
        }
    }

    /// Notes the first thread of a process: its live blocks and descriptors are written for it.
    pub(super) fn note_leader(&mut self, ring: u64, pid: u32) {
        let task = self.tree.task(pid).map_or(TaskId::NONE, |task| task.id);
        let Some(state) = &mut self.allocations else { return };
        if let Some(process) = state.processes.get_mut(&ring).filter(|it| it.task.is_none()) {
            process.task = task;
        }
    }

    /// Notes the first threads of all processes, which have other ids in a new epoch.
    pub(super) fn note_leaders(&mut self) {
        let Some(state) = &mut self.allocations else { return };
        for process in state.processes.values_mut() {
            process.task = self.tree.task(process.pid).map_or(TaskId::NONE, |task| task.id);
        }
    }
}

/// Returns the image that a process executes now, as /proc describes it.
fn executed(pid: u32) -> Executed {
    let path = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let comm = procfs::thread_info(pid, pid).map(|found| found.comm).unwrap_or_default();
    Executed { comm, path: path.into_os_string().into_vec(), allocator: None }
}
