//! Writes allocations, releases and descriptors, and what processes have at their end.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nprof_preload::protocol::{
    Allocated, Capture, Content, FLAG_PROGRAM_ALLOCATOR, Hello, Opened, Origin, Registers, Repeated,
};
use nprof_preload::{Memos, WalkedStack};
use nprof_stream::{EventId, ExtrasBuilder, NO_CPU, NodeId, Record, Sample, TaskId};
use nprof_unwind::arch;
use nprof_unwind::unwind::stack_input::{CopiedStack, StackInput, UserStack, Words};

use crate::convert::allocations::descriptors::{Descriptors, OpenDescriptor};
use crate::convert::allocations::known_stacks::KnownStacks;
use crate::convert::allocations::live_set::{Block, Blocks, LiveSet};
use crate::convert::allocations::state::{AllocationState, Allocator, Executed, Missed};
use crate::convert::converter::Converter;
use crate::convert::dictionary::Sink;
use crate::event::PreloadedEvent;
use crate::image::allocator::AllocationFunction;
use crate::os::procfs;
use crate::perf::preloaded::{PreloadContent, PreloadRecord};
use crate::perf::record::{self, SampleId, TaskIds};
use crate::sys;

/// The shortest time between two readings of mappings that may have changed.
const MAPS_INTERVAL_NS: u64 = 10_000_000;

/// The most executables of which it is remembered whether they bring an allocator.
const ALLOCATORS_MAX: usize = 4096;

/// A sample of an event of the library.
#[derive(Clone, Copy, Debug)]
struct Written {
    event: PreloadedEvent,
    time_ns: u64,
    task: TaskId,
    node: NodeId,
    weight: u64,
    count: u64,
}

impl<S: Sink> Converter<S> {
    /// Takes the events of the preloaded library.
    ///
    /// Without `has_records` no other record reports processes and mappings.
    pub(crate) fn set_allocations(&mut self, state: AllocationState, has_records: bool) {
        self.allocations = Some(state);
        self.reads_proc = !has_records;
    }

    /// True if the mappings of a process may have changed without a record, and are to be read again.
    pub(super) fn may_read_maps_again(&mut self) -> bool {
        // Most recordings have records of all mappings, and stacks without frame pointers often end in
        // memory that is not mapped.
        if !self.reads_proc {
            return false;
        }
        let now_ns = sys::monotonic_ns();
        // Code that is mapped nowhere would otherwise cost a reading for each sample.
        let is_due = now_ns.saturating_sub(self.checked_ns) >= MAPS_INTERVAL_NS;
        if is_due {
            self.checked_ns = now_ns;
        }
        is_due
    }

    /// Returns what the events of the library lack. None if they are not recorded.
    pub(crate) fn missed(&mut self) -> Option<Missed> {
        let state = self.allocations.as_mut()?;
        let mut missed = Missed {
            unseen: state.unseen(),
            bypassed: state.bypassed.clone(),
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
            state.note_bypassed(executed);
        }
    }

    /// Takes a record of a process that has loaded the library.
    pub(super) fn handle_preloaded(&mut self, id: SampleId, record: &PreloadRecord<'_>) {
        let ring = record.ring;
        // The program may have written any number: that of another process's thread must not lead to its mappings.
        let is_foreign = self.tree.task(id.tid).is_some_and(|task| task.pid != id.pid);
        let id = if is_foreign { SampleId { tid: id.pid, ..id } } else { id };
        match &record.content {
            PreloadContent::Started(hello, memos) => self.start_allocator(id, hello, memos.clone()),
            PreloadContent::Ended => self.end_allocator(ring, id.time),
            PreloadContent::Written(content) => match content {
                Content::Allocated(allocated) => self.allocate(id, ring, allocated),
                Content::Repeated(repeated) => self.allocate_again(id, ring, repeated),
                Content::Freed(address) => self.release(id, ring, *address),
                Content::Kept(address) => self.keep(id, ring, *address),
                Content::Opened(opened) => self.open_descriptor(id, ring, opened),
                Content::Closed(range) => {
                    self.close_descriptors(id, ring, range.first, range.last);
                }
            },
        }
    }

    fn start_allocator(&mut self, id: SampleId, hello: &Hello, memos: Option<Memos>) {
        let is_known = self.tree.task(id.pid).is_some();
        self.add_if_new(id.pid, id.tid);
        if self.reads_proc {
            self.read_process(id, is_known && hello.parent_id == 0);
        }
        let task = self.tree.task(id.pid).map_or(TaskId::NONE, |task| task.id);
        if hello.parent_id == 0 {
            self.note_allocator(id.pid, hello);
        }
        let Some(state) = &mut self.allocations else { return };
        // An exec keeps descriptors, but for those that are closed on exec.
        let mut descriptors = Descriptors::default();
        if hello.parent_id == 0 {
            // Of several images that have not ended yet, the latest has those of the others.
            for before in state.processes.values_mut().filter(|it| it.pid == id.pid) {
                descriptors.append(&mut before.descriptors);
            }
        }
        let pid = id.pid;
        let is_open = |number| fs::symlink_metadata(format!("/proc/{pid}/fd/{number}")).is_ok();
        let closed = descriptors.split_off(is_open);
        if memos.is_some() {
            self.resolver.find_words();
        }
        let known = memos.map(KnownStacks::new);
        let process = Allocator { pid, task, heap: LiveSet::new(0), descriptors, known };
        state.start(hello.id, hello.parent_id, hello.started_at_ns, process);
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

    fn allocate(&mut self, id: SampleId, ring: u64, allocated: &Allocated<'_>) {
        let Some((task, node)) = self.locate_captured(id, &allocated.capture) else { return };
        let &Allocated { pointer, size, weight, .. } = allocated;
        let count = u64::from(allocated.count).max(1);
        self.note_leader(ring, id.pid);
        self.remember_stack(id, ring, &allocated.capture, node);
        let block = Block { node, size, weight, count, time_ns: id.time };
        self.add_block(ring, task, pointer, block);
    }

    /// Takes an allocation at a known stack.
    fn allocate_again(&mut self, id: SampleId, ring: u64, repeated: &Repeated) {
        let Some((task, node)) = self.locate_known(id, ring, repeated.stack) else { return };
        let &Repeated { pointer, size, .. } = repeated;
        // A record has 32 bits for the count of an allocation with the period 1.
        let count = size.clamp(1, u64::from(u32::MAX));
        let block = Block { node, size, weight: size, count, time_ns: id.time };
        self.add_block(ring, task, pointer, block);
    }

    /// Returns the task and the node of a known stack. None if it is not of a task of the tree.
    fn locate_known(&mut self, id: SampleId, ring: u64, number: u32) -> Option<(TaskId, NodeId)> {
        let process = self.allocations.as_ref()?.processes.get(&ring)?;
        let stack = process.known.as_ref()?.get(number);
        let owner = self.tree.task(id.tid).filter(|task| task.pid == id.pid);
        let task = owner.map_or(TaskId::NONE, |task| task.id);
        let maps = self.tree.process_mut(id.pid).map(|process| process.maps.clone());
        if let (Some(maps), Some(stack), false) = (&maps, stack, task.is_none())
            && let Some(node) = stack.node(maps)
        {
            return Some((task, node));
        }
        // A number that the program has made up leads to no stack.
        let addresses = stack.map(|stack| stack.addresses.clone());
        let user = addresses.as_deref().map_or(UserStack::Walked(Words(&[])), UserStack::Known);
        let stack = StackInput { user, ..StackInput::default() };
        let found = self.locate(id, &record::Sample { stack, ..record::Sample::default() });
        if let (Some((_, node)), Some(process)) = (found, self.tree.process_mut(id.pid)) {
            let maps = process.maps.clone();
            let state = self.allocations.as_mut()?;
            if let Some(known) = &mut state.processes.get_mut(&ring)?.known {
                known.set_node(number, node, &maps);
            }
        }
        found
    }

    /// Makes the current stack known to the library, if its walk depends on few words.
    fn remember_stack(&mut self, id: SampleId, ring: u64, capture: &Capture<'_>, node: NodeId) {
        let Some((words, addresses)) = self.resolver.words() else { return };
        let Some(process) = self.tree.process_mut(id.pid) else { return };
        let state = self.allocations.as_mut();
        let allocator = state.and_then(|state| state.processes.get_mut(&ring));
        let Some(known) = allocator.and_then(|allocator| allocator.known.as_mut()) else { return };
        let &Registers { ip, sp, bp, .. } = &capture.registers;
        let frame_pointer = words.has_frame_pointer.then_some(bp);
        let walked = WalkedStack { ip, sp, frame_pointer, words: &words.words };
        known.add(&walked, addresses, node, &process.maps);
    }

    /// Adds a block, and writes its allocation.
    fn add_block(&mut self, ring: u64, task: TaskId, pointer: u64, block: Block) {
        let Some(state) = &mut self.allocations else { return };
        let mut replaced = None;
        if state.has_room()
            && let Some(process) = state.processes.get_mut(&ring)
        {
            let before = process.heap.len();
            replaced = process.heap.allocate(pointer, block);
            state.blocks += process.heap.len().saturating_sub(before);
        }
        // The record of its release was lost.
        if let Some(replaced) = replaced {
            self.write_release(block.time_ns, task, &replaced);
        }
        self.write_block(PreloadedEvent::HeapAlloc, block.time_ns, task, &block, None);
    }

    fn release(&mut self, id: SampleId, ring: u64, address: u64) {
        let Some(state) = &mut self.allocations else { return };
        let Some(process) = state.processes.get_mut(&ring) else { return };
        let Some(block) = process.heap.release(address, id.time) else { return };
        state.blocks = state.blocks.saturating_sub(1);
        let task = self.task_of(id);
        self.write_release(id.time, task, &block);
    }

    /// Takes back a release that did not happen: it is followed by an allocation of the same block, so
    /// that what is allocated less what is released stays what is live.
    fn keep(&mut self, id: SampleId, ring: u64, address: u64) {
        let Some(state) = &mut self.allocations else { return };
        let Some(process) = state.processes.get_mut(&ring) else { return };
        let Some(block) = process.heap.keep(address, id.time) else { return };
        state.blocks += 1;
        let task = self.task_of(id);
        self.write_block(PreloadedEvent::HeapAlloc, id.time, task, &block, None);
    }

    fn write_release(&mut self, time_ns: u64, task: TaskId, block: &Block) {
        let age_ns = time_ns.saturating_sub(block.time_ns);
        self.write_block(PreloadedEvent::HeapFree, time_ns, task, block, Some(age_ns));
    }

    fn write_block(
        &mut self,
        event: PreloadedEvent,
        time_ns: u64,
        task: TaskId,
        block: &Block,
        age_ns: Option<u64>,
    ) {
        let mut extras = ExtrasBuilder::new();
        if block.size != block.weight {
            extras.add("size", block.size.to_string().as_bytes());
        }
        if let Some(age_ns) = age_ns {
            extras.add("age", age_ns.to_string().as_bytes());
        }
        let &Block { node, weight, count, .. } = block;
        self.write_preloaded(&Written { event, time_ns, task, node, weight, count }, &extras);
    }

    fn open_descriptor(&mut self, id: SampleId, ring: u64, opened: &Opened<'_>) {
        let Ok(number) = u32::try_from(opened.descriptor) else { return };
        let Some((task, node)) = self.locate_captured(id, &opened.capture) else { return };
        self.note_leader(ring, id.pid);
        let object = object(id.pid, number, opened);
        let descriptor = OpenDescriptor { node, time_ns: id.time, object: object.clone() };
        let Some(state) = &mut self.allocations else { return };
        let Some(process) = state.processes.get_mut(&ring) else { return };
        let replaced = process.descriptors.open(number, descriptor);
        if let Some(replaced) = replaced {
            self.write_closed(id.time, task, &replaced);
        }
        let event = PreloadedEvent::FdOpen;
        self.write_descriptor(event, id.time, task, node, &object, None);
    }

    fn close_descriptors(&mut self, id: SampleId, ring: u64, first: u32, last: u32) {
        let Some(state) = &mut self.allocations else { return };
        let Some(process) = state.processes.get_mut(&ring) else { return };
        let closed = process.descriptors.close(first, last);
        let task = self.task_of(id);
        for descriptor in closed {
            self.write_closed(id.time, task, &descriptor);
        }
    }

    fn write_closed(&mut self, time_ns: u64, task: TaskId, closed: &OpenDescriptor) {
        let age_ns = Some(time_ns.saturating_sub(closed.time_ns));
        let (event, node) = (PreloadedEvent::FdClose, closed.node);
        self.write_descriptor(event, time_ns, task, node, &closed.object, age_ns);
    }

    fn write_descriptor(
        &mut self,
        event: PreloadedEvent,
        time_ns: u64,
        task: TaskId,
        node: NodeId,
        object: &[u8],
        age_ns: Option<u64>,
    ) {
        let mut extras = ExtrasBuilder::new();
        if !object.is_empty() {
            extras.add("on", object);
        }
        if let Some(age_ns) = age_ns {
            extras.add("age", age_ns.to_string().as_bytes());
        }
        self.write_preloaded(&Written { event, time_ns, task, node, weight: 1, count: 1 }, &extras);
    }

    /// Writes what a process has at its end.
    fn end_allocator(&mut self, ring: u64, time_ns: u64) {
        let Some(ended) = self.allocations.as_mut().and_then(|state| state.end(ring)) else {
            return;
        };
        self.write_live(&ended, time_ns);
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

    /// Writes the blocks that all processes have now.
    pub(crate) fn write_snapshot(&mut self, time_ns: u64) {
        let Some(state) = &self.allocations else { return };
        if state.id(PreloadedEvent::HeapSnapshot).is_none() {
            return;
        }
        let row = |it: &Allocator| (it.pid, it.task, it.heap.live());
        let mut processes: Vec<_> = state.processes.values().map(row).collect();
        processes.sort_unstable_by_key(|(pid, ..)| *pid);
        for (_, task, rows) in processes {
            self.write_rows(PreloadedEvent::HeapSnapshot, task, time_ns, &rows, None);
        }
    }

    /// Writes the blocks of each stack; `peak_ns` is the time at which the process had them.
    fn write_rows(
        &mut self,
        event: PreloadedEvent,
        task: TaskId,
        time_ns: u64,
        rows: &[(NodeId, Blocks)],
        peak_ns: Option<u64>,
    ) {
        for (node, blocks) in rows {
            let &Blocks { weight, count, .. } = blocks;
            let mut extras = ExtrasBuilder::new();
            extras.add("blocks", blocks.blocks().to_string().as_bytes());
            extras.add("largest", blocks.largest.to_string().as_bytes());
            if let Some(peak_ns) = peak_ns {
                extras.add("peak", peak_ns.to_string().as_bytes());
            }
            let count = count.max(1);
            let written = Written { event, time_ns, task, node: *node, weight, count };
            self.write_preloaded(&written, &extras);
        }
    }

    /// Writes what a process has and had at its peak.
    fn write_live(&mut self, process: &Allocator, time_ns: u64) {
        let task = process.task;
        let (peak_ns, at_peak) = (process.heap.peak_ns(), process.heap.at_peak());
        self.write_rows(PreloadedEvent::HeapPeak, task, time_ns, &at_peak, Some(peak_ns));
        self.write_rows(PreloadedEvent::HeapLive, task, time_ns, &process.heap.live(), None);
        for (_, descriptor) in process.descriptors.iter() {
            let age_ns = Some(time_ns.saturating_sub(descriptor.time_ns));
            let (event, node) = (PreloadedEvent::FdLive, descriptor.node);
            self.write_descriptor(event, time_ns, task, node, &descriptor.object, age_ns);
        }
    }

    fn write_preloaded(&mut self, written: &Written, extras: &ExtrasBuilder) {
        let id = self.allocations.as_ref().and_then(|state| state.id(written.event));
        let Some(event) = id else { return };
        let &Written { time_ns, task, node, weight, count, .. } = written;
        self.count_sample(event, weight);
        let extras = extras.extras();
        self.sink.take(&Record::Sample(Sample {
            time: time_ns,
            event,
            task,
            cpu: NO_CPU,
            node,
            weight,
            count,
            extras,
        }));
    }

    fn count_sample(&mut self, event: EventId, weight: u64) {
        if let Some(sum) = self.sums.get_mut((event.0 as usize).wrapping_sub(1)) {
            sum.samples += 1;
            sum.weight = sum.weight.saturating_add(weight);
        }
    }

    /// Returns the task of a record; none if it is unknown.
    fn task_of(&mut self, id: SampleId) -> TaskId {
        self.add_if_new(id.pid, id.tid);
        self.tree.task(id.tid).map_or(TaskId::NONE, |task| task.id)
    }

    /// Notes the first thread of a process: its live blocks and descriptors are written for it.
    fn note_leader(&mut self, ring: u64, pid: u32) {
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

    /// Returns the task and the node of a call of the library. None if it is not of a task of the tree.
    fn locate_captured(&mut self, id: SampleId, capture: &Capture<'_>) -> Option<(TaskId, NodeId)> {
        let registers = registers(capture);
        let copied = CopiedStack {
            registers: Words(&registers),
            bytes: capture.stack,
            requested_bytes: capture.stack.len(),
            is_after_call: true,
            ..CopiedStack::default()
        };
        let user = UserStack::Copied(copied);
        let stack = StackInput { ip: capture.registers.ip, user, ..StackInput::default() };
        self.locate(id, &record::Sample { stack, ..record::Sample::default() })
    }
}

/// Returns the image that a process executes now, as /proc describes it.
fn executed(pid: u32) -> Executed {
    let path = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let comm = procfs::thread_info(pid, pid).map(|found| found.comm).unwrap_or_default();
    Executed { comm, path: path.into_os_string().into_vec(), allocator: None }
}

/// Returns the registers of a call in the order of [`arch::NUMBERS`]. Those that a call does not
/// preserve are 0: no caller needs them.
fn registers(capture: &Capture<'_>) -> Vec<u8> {
    let known = &capture.registers;
    let value = |number: u16| match number {
        arch::IP => known.ip,
        arch::SP => known.sp,
        arch::FP => known.bp,
        number => {
            let at = arch::CALL_SAVED.iter().position(|saved| *saved == number);
            let values = [&[known.bx][..], &known.r12_to_r15].concat();
            at.and_then(|at| values.get(at)).copied().unwrap_or(0)
        }
    };
    arch::NUMBERS.iter().flat_map(|&number| value(number).to_le_bytes()).collect()
}

/// Returns the file or the peer of a descriptor: the name by which it was opened if that is absolute,
/// else what /proc shows, else the kind.
fn object(pid: u32, number: u32, opened: &Opened<'_>) -> Vec<u8> {
    let is_named = matches!(opened.origin, Some(Origin::File | Origin::Temporary | Origin::Memory));
    let name = if is_named { opened.name } else { b"" };
    if name.starts_with(b"/") {
        return name.to_vec();
    }
    let link = fs::read_link(format!("/proc/{pid}/fd/{number}"));
    let link = link.map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default();
    // The process may have closed it by now, and opened another file with its number.
    let base = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if !link.is_empty() && (!is_named || link.ends_with(base)) {
        return link;
    }
    if !name.is_empty() {
        return name.to_vec();
    }
    match opened.origin {
        Some(Origin::Socket | Origin::Accept) => b"socket".to_vec(),
        Some(Origin::Pipe) => b"pipe".to_vec(),
        _ => Vec::new(),
    }
}
