//! From kernel records to the records of the stream: follows the processes, and writes their changes
//! and samples. Records of other processes are dropped first.

use std::rc::Rc;
use std::time::Duration;

use nprof_object::RuntimeAddress;
use nprof_stream::{
    Cause, Change, ChangeKind, EventId, Extras, ExtrasBuilder, ImageKind, Lost, Mark, NodeId,
    Record, Sample, Task, TaskId,
};

use crate::convert::address_space::Mapping;
use crate::convert::allocations::state::AllocationState;
use crate::convert::counts::{Counts, Sum};
use crate::convert::deep_stacks::copy_hints::CopyHints;
use crate::convert::dictionary::Sink;
use crate::convert::process_tree::{CommChange, DoubtfulExit, PendingExec, ProcessTree};
use crate::convert::stack_resolver::StackResolver;
use crate::convert::value_events::ValueEvents;
use crate::convert::waits::{TimeSums, WaitState};
use crate::image::kept_images::KeptImages;
use crate::image::kernel::running_kernel::RunningKernel;
use crate::os::code_mapping::Mmap;
use crate::os::procfs::{self, Stat};
use crate::perf::handler::RecordHandler;
use crate::perf::lost::LostSamples;
use crate::perf::record::{self, KernelRecord, SampleId, TaskIds};
use crate::perf::synthesize;
use crate::sys::{self, SharedWords};

/// Shortest time between two comparisons of the tasks with /proc, while sideband records are lost
/// again and again: each reads files for each task.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The interval is at least this multiple of the time that the comparison took: that of thousands of
/// tasks would else let the rings fill again.
const CHECK_TIMES: u64 = 10;

/// The shortest wait that is written before its end, in ns; a little less than the second between two
/// parts.
pub(crate) const ONGOING_MIN_NS: u64 = 900_000_000;

/// Converts kernel records to records of the stream.
#[derive(Debug)]
pub(crate) struct Converter<S> {
    pub(crate) sink: S,
    pub(crate) counts: Counts,
    /// The samples of each event.
    pub(crate) sums: Vec<Sum>,
    /// The definitions of the events, which every epoch repeats; their ids count from 1.
    events: Vec<nprof_stream::Event>,
    tree: ProcessTree,
    resolver: StackResolver,
    /// The events that are sampled by the value of a field.
    by_value: ValueEvents,
    /// The state of the events of the preloaded library; `None` without them.
    allocations: Option<AllocationState>,
    /// True if no records report processes and mappings: they are read from /proc.
    reads_proc: bool,
    /// The state of the events that measure waiting; `None` without them.
    waiting: Option<WaitState>,
    /// The number of frames of the last stack that an earlier sample supplied.
    stitched: usize,
    /// The number of tasks defined in this epoch.
    tasks: u32,
    /// True if sideband records may have been lost since the tasks were last compared with /proc.
    has_new_gap: bool,
    /// The time of that comparison.
    checked_ns: u64,
    /// The shortest time from it to the next.
    check_interval_ns: u64,
    /// The exit status of the command, once it has exited. The exit record of its first thread
    /// carries it.
    pub(crate) exit: Option<CommandExit>,
}

/// The end of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandExit {
    pub(crate) pid: u32,
    pub(crate) status: String,
}

impl<S: Sink> RecordHandler for Converter<S> {
    fn accepts(&self, tid: u32) -> bool {
        self.tree.accepts(tid)
    }

    fn handle_record(&mut self, sample_id: SampleId, record: &KernelRecord<'_>, event: EventId) {
        match record {
            KernelRecord::Sample(sample) => match &sample.wait {
                Some(wait) => self.handle_wait(sample_id, sample, wait),
                None => self.handle_sample(sample_id, sample, event),
            },
            &KernelRecord::NotPositive { is_negative } => {
                if is_negative {
                    *self.counts.negative.entry(event).or_default() += 1;
                }
            }
            KernelRecord::Wake(sample, wake) => self.handle_wake(sample_id, sample, wake),
            KernelRecord::Preloaded(record) => self.handle_preloaded(sample_id, record),
            KernelRecord::Note(note) => self.handle_note(sample_id, note),
            &KernelRecord::Switch(switch) => self.handle_switch(sample_id, switch),
            KernelRecord::Tick => self.handle_tick(sample_id.time),
            &KernelRecord::Existing(state) => self.handle_existing(sample_id, state),
            KernelRecord::Peek(peek) => self.handle_peek(sample_id, peek),
            KernelRecord::Mmap(mmap) => self.handle_mmap(sample_id, mmap),
            &KernelRecord::Comm { pid, tid, exec, name } => {
                self.add_if_new(pid, tid);
                self.handle_comm(sample_id, tid, exec, name);
            }
            &KernelRecord::Fork(ids) => self.handle_fork(sample_id, ids),
            &KernelRecord::Exit(ids) => self.handle_exit(sample_id, ids),
            KernelRecord::Ksymbol(symbol) => self.resolver.kernel_changed(symbol),
            &KernelRecord::Lost(count) if event.is_none() => {
                self.on_sideband_lost(sample_id, count);
            }
            &KernelRecord::Lost(count) | &KernelRecord::LostSamples(count) => {
                self.on_lost(sample_id, LostSamples::own(count), event, Cause::Ring);
            }
            // The kernel does not report how many samples it suppressed.
            KernelRecord::Throttle => {
                self.on_lost(sample_id, LostSamples::default(), event, Cause::Throttle);
            }
            KernelRecord::Other => {}
        }
    }

    fn on_lost(&mut self, sample_id: SampleId, lost: LostSamples, event: EventId, cause: Cause) {
        self.counts.lost_others += lost.others;
        // A loss of others alone has no part in the causes.
        if lost.own > 0 || lost.others == 0 {
            *self.counts.lost.entry(cause).or_default() += lost.own;
        }
        let mut extras = ExtrasBuilder::new();
        if lost.others > 0 {
            extras.add("others", lost.others.to_string().as_bytes());
        }
        self.emit_lost(sample_id, lost.own, event, cause, extras.extras());
    }

    fn on_sideband_lost(&mut self, sample_id: SampleId, count: u64) {
        self.counts.sideband_lost += count;
        self.on_sideband_full();
        let mut extras = ExtrasBuilder::new();
        extras.add("records", count.to_string().as_bytes());
        self.emit_lost(sample_id, 0, EventId::NONE, Cause::Ring, extras.extras());
    }

    fn on_sideband_full(&mut self) {
        self.has_new_gap = true;
        // The samples of this batch may be of tasks with a lost fork record.
        if self.is_check_due() {
            self.note_gap();
        }
    }

    fn reject_thread(&mut self, tid: u32, thread: u32) {
        let is_command = self.tree.is_pending_command(tid);
        let Some(copy_hints) = &mut self.resolver.copy_hints else { return };
        if is_command {
            // Its samples are needed from its exec on, before the record of it is read.
            copy_hints.ignore_thread(tid, thread);
        } else {
            copy_hints.reject_thread(tid, thread);
        }
    }

    fn enable_stack_copies(&mut self, words: Rc<SharedWords>, max_copy_bytes: u64) {
        let has_global_ids = !procfs::is_in_pid_namespace();
        self.resolver.copy_hints = Some(CopyHints::new(words, max_copy_bytes, has_global_ids));
        self.resolver.watches.rely_on_copies();
    }

    fn enable_wait_copies(&mut self, words: Rc<SharedWords>, max_copy_bytes: u64) {
        // The programs for waiting are not loaded in a pid namespace.
        self.resolver.wait_copy_hints = Some(CopyHints::new(words, max_copy_bytes, true));
        self.resolver.watches.rely_on_copies();
    }

    fn end_batch(&mut self) {
        self.resolver.end_batch(&mut self.tree);
        self.resolver.write_late_names(&mut self.sink);
        if let Some(copy_hints) = &mut self.resolver.copy_hints {
            copy_hints.renew(sys::monotonic_ns());
        }
        let doubtful = self.tree.end_batch();
        self.decide_exits(doubtful);
        if self.has_new_gap && self.is_check_due() {
            self.check_tasks();
        }
    }
}

impl<S: Sink> Converter<S> {
    /// Creates a converter and writes the definitions of the events. Of each part of a stack at
    /// most `depth` frames are kept.
    pub(crate) fn new(
        sink: S,
        events: Vec<nprof_stream::Event>,
        depth: usize,
        tree: ProcessTree,
    ) -> Self {
        let mut converter = Self {
            sink,
            counts: Counts::default(),
            sums: vec![Sum::default(); events.len()],
            events,
            tree,
            resolver: StackResolver::new(depth),
            by_value: ValueEvents::default(),
            allocations: None,
            reads_proc: false,
            waiting: None,
            stitched: 0,
            tasks: 0,
            has_new_gap: false,
            checked_ns: 0,
            check_interval_ns: 0,
            exit: None,
        };
        converter.define_events();
        // The recorder may be a child of a recorded process.
        converter.tree.exclude(std::process::id());
        converter
    }

    /// Takes the kernel as it was read before sampling began.
    pub(crate) fn set_kernel(&mut self, kernel: RunningKernel) {
        self.resolver.set_kernel(kernel);
    }

    /// Keeps copies of the images that have frames, from now on.
    pub(crate) fn keep_images(&mut self, kept: Option<KeptImages>) {
        self.resolver.images.kept = kept;
    }

    /// Returns the copies that were kept.
    pub(crate) fn kept_images(&mut self) -> Option<KeptImages> {
        self.resolver.images.kept.take()
    }

    /// Samples events by the value of a field.
    pub(crate) fn set_value_events(&mut self, events: ValueEvents) {
        self.by_value = events;
    }

    fn define_events(&mut self) {
        for event in &self.events {
            self.sink.take(&Record::Event(Box::new(event.clone())));
        }
    }

    /// Returns the ids of the live threads that are followed.
    pub(crate) fn threads(&mut self) -> Vec<u32> {
        self.tree.living()
    }

    /// Returns the sums of the times of all threads. None if they are not measured.
    pub(crate) fn time_sums(&self) -> Option<TimeSums> {
        self.waiting.as_ref().map(|state| state.sums)
    }

    /// Returns the ids of the live processes that are followed.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.tree.processes()
    }

    /// Adds a process that existed before the recording, with all its threads.
    pub(crate) fn add_existing_process(&mut self, pid: u32) {
        procfs::threads(pid).into_iter().for_each(|tid| self.add_existing_thread(pid, tid));
    }

    /// Notes that an existing process is not recorded, even if its parent is.
    pub(crate) fn exclude(&mut self, pid: u32) {
        self.tree.exclude(pid);
    }

    /// Adds a thread that existed before the recording, and its process, as /proc describes them
    /// now.
    pub(crate) fn add_existing_thread(&mut self, pid: u32, tid: u32) {
        // The first thread comes first: others refer to it as their parent.
        for tid in [pid, tid] {
            if self.tree.task(tid).is_none() {
                let time_ns = sys::monotonic_ns();
                let found = procfs::thread_info(pid, tid);
                self.tree.add_existing_thread(pid, tid, found.as_ref(), time_ns);
                self.define_task(tid);
            }
        }
    }

    /// Adds a thread at its first record, if it belongs to the tree.
    fn add_if_new(&mut self, pid: u32, tid: u32) {
        if self.tree.takes_unknown(tid) && self.tree.takes_unknown(pid) {
            self.add_existing_thread(pid, tid);
        } else if self.tree.may_miss(tid) {
            self.look_up(pid, tid);
        }
    }

    /// Adds a thread of which the fork record may have been lost, and the missing processes above
    /// it, if /proc shows that it belongs to the tree.
    fn look_up(&mut self, pid: u32, tid: u32) {
        let parent_of = |pid| Stat::of(pid).map(|stat| stat.parent);
        let Some(lineage) = self.tree.missing_lineage(pid, parent_of) else {
            return self.tree.note_stranger(tid);
        };
        for above in lineage {
            self.add_existing_thread(above, above);
        }
        self.add_existing_thread(pid, tid);
    }

    /// True if lost sideband records may have hidden processes.
    pub(crate) fn may_miss_processes(&self) -> bool {
        self.tree.is_filtered()
    }

    fn is_check_due(&self) -> bool {
        sys::monotonic_ns().saturating_sub(self.checked_ns) >= self.check_interval_ns
    }

    /// Notes that unknown threads may belong to the tree.
    fn note_gap(&mut self) {
        self.tree.note_gap();
        if let Some(copy_hints) = &mut self.resolver.copy_hints {
            copy_hints.accept_all();
        }
    }

    /// Looks for tasks that have exited and processes that have executed another image without a
    /// record, and forgets the results of earlier looks.
    fn check_tasks(&mut self) {
        self.has_new_gap = false;
        self.checked_ns = sys::monotonic_ns();
        self.note_gap();
        for tid in self.tree.living() {
            let since_ns = self.tree.task(tid).map_or(0, |task| task.time_ns);
            if !procfs::lives_since(tid, since_ns) {
                // If its record is only late, the record decides.
                self.tree.doubt(tid, self.checked_ns);
            } else if self.tree.task(tid).is_some_and(|task| task.pid == tid) {
                self.check_name(tid);
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

    fn decide_exits(&mut self, doubtful: Vec<DoubtfulExit>) {
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
    fn decide_last_exits(&mut self) {
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

    /// Notes that a task lives at `time_ns`.
    fn note_life(&mut self, tid: u32, time_ns: u64) {
        // Its exit is in the stream already: it goes on as a new task.
        if self.tree.note_life(tid, time_ns) {
            self.define_task(tid);
        }
    }

    /// True if samples need facts that may change soon after them.
    pub(crate) fn needs_changing_facts(&self) -> bool {
        self.waiting.is_some() || self.resolver.has_generated_code
    }

    /// True if a BPF program copies stacks, as far as earlier samples needed them.
    pub(crate) fn has_copy_hints(&self) -> bool {
        self.resolver.copy_hints.is_some()
    }

    /// True if threads have stacks that are deeper than their copies, so that the rings should be
    /// drained soon.
    pub(crate) fn has_deep_stacks(&self) -> bool {
        self.resolver.watches.is_busy()
    }

    /// Drops the state of the stack of a thread.
    fn drop_stack_state(&mut self, tid: u32) {
        self.resolver.watches.forget(tid);
        let StackResolver { copy_hints, wait_copy_hints, .. } = &mut self.resolver;
        for copy_hints in [copy_hints, wait_copy_hints].into_iter().flatten() {
            copy_hints.forget(tid);
        }
    }

    fn emit_lost(
        &mut self,
        sample_id: SampleId,
        count: u64,
        event: EventId,
        cause: Cause,
        extras: Extras<'_>,
    ) {
        self.sink.take(&Record::Lost(Lost {
            time: sample_id.time,
            event,
            cpu: sample_id.cpu,
            task: TaskId::NONE,
            count,
            cause,
            extras,
        }));
    }

    /// Reads the mappings of a process that existed before the recording from /proc.
    pub(crate) fn read_maps(&mut self, pid: u32) {
        let time = sys::monotonic_ns();
        let text = procfs::maps(pid);
        // If the process has exited, its records are all there will ever be: accept all of them.
        self.tree.set_maps_known_until(pid, if text.is_some() { time } else { 0 });
        if let Some(process) = self.tree.process_mut(pid) {
            process.is_unreadable = text.is_none() && procfs::are_maps_refused(pid);
        }
        for mmap in synthesize::executable(text.as_deref().unwrap_or_default(), pid) {
            self.handle_mmap(SampleId { time, ..SampleId::default() }, &mmap);
        }
    }

    /// Adds the mappings of a process that are in /proc, because records of some may have been lost.
    fn read_lost_maps(&mut self, pid: u32) {
        let time = sys::monotonic_ns();
        let text = procfs::maps(pid).unwrap_or_default();
        for mmap in synthesize::executable(&text, pid) {
            let Some(process) = self.tree.process_mut(pid) else { return };
            // /proc lacks a part of the identity in records: a known file would become two images.
            let known = process.maps.find(mmap.start);
            let is_known = known.is_some_and(|(image, offset)| {
                self.resolver.images.is_mapping_of(&mmap, image, offset)
            });
            if !is_known {
                self.handle_mmap(SampleId { time, ..SampleId::default() }, &mmap);
            }
        }
        // While records are lost again and again, the time for this is bounded, too.
        let taken_ns = sys::monotonic_ns().saturating_sub(time);
        let interval_ns = taken_ns.saturating_mul(CHECK_TIMES);
        self.check_interval_ns = self.check_interval_ns.saturating_add(interval_ns);
    }

    fn handle_mmap(&mut self, sample_id: SampleId, mmap: &Mmap<'_>) {
        self.note_life(sample_id.tid, sample_id.time);
        let Some(process) = self.tree.process_mut(mmap.pid) else { return };
        let serial = process.serial;
        if let Some(exec) = &mut process.exec {
            exec.has_mappings = true;
        }
        process.jit.mapped(mmap, &self.resolver.files);
        let (image, offset) = self.resolver.images.image_of(mmap, serial);
        // The first file that is mapped after an exec is the executed image.
        if self.resolver.images.get(image).kind == ImageKind::Elf
            && let Some(exec) = process.exec.take()
        {
            self.emit_exec(exec, &mmap.path);
        }
        let end = RuntimeAddress(mmap.start.0.saturating_add(mmap.length));
        let mapping = Mapping { start: mmap.start, end, offset, image };
        self.tree.map(mmap.pid, sample_id.time, mapping);
    }

    fn handle_comm(&mut self, sample_id: SampleId, tid: u32, exec: bool, name: &[u8]) {
        // Another thread of the process may name one that has exited.
        self.note_life(sample_id.tid, sample_id.time);
        // The memory with the watched frames is gone, and the other threads, too.
        if exec {
            self.read_names_to_end(tid, u64::MAX);
            self.resolver.watches.forget_process(tid);
        }
        let change = self.tree.rename(tid, exec, name, sample_id);
        if exec
            && change.is_some()
            && let Some(state) = &mut self.allocations
        {
            state.note_executed(tid, name);
        }
        self.write_replaced(sample_id.time);
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

    /// Writes the exits of tasks that have exited without an exit record.
    fn write_replaced(&mut self, time: u64) {
        for task in self.tree.take_replaced() {
            let (kind, extras) = (ChangeKind::Exit, Extras::NONE);
            self.sink.take(&Record::Change(Change { time, task, kind, value: b"", extras }));
        }
    }

    fn handle_fork(&mut self, sample_id: SampleId, ids: TaskIds) {
        self.note_life(sample_id.tid, sample_id.time);
        self.add_if_new(sample_id.pid, sample_id.tid);
        if self.tree.needs_maps(ids.parent_pid) {
            // The child inherits these mappings, and may have others by its first sample.
            self.read_maps(ids.parent_pid);
        }
        // The id may have been that of an exited thread.
        self.drop_stack_state(ids.tid);
        let is_ours = self.tree.fork(ids, sample_id);
        // Those that had this id.
        self.write_replaced(sample_id.time);
        if is_ours {
            self.define_task(ids.tid);
            self.measure_created(ids.tid, sample_id.time);
        }
    }

    fn handle_exit(&mut self, sample_id: SampleId, ids: TaskIds) {
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
    fn write_exit(&mut self, pid: u32, tid: u32, time_ns: u64) {
        self.write_pending_exec(pid);
        let exit = self.exit.as_ref().filter(|exit| exit.pid == tid);
        let status = exit.map(|exit| exit.status.clone()).unwrap_or_default();
        self.emit_change(time_ns, tid, ChangeKind::Exit, status.as_bytes(), Extras::NONE);
        self.note_exited(tid);
    }

    /// Writes an exec of which no mapping was reported: the exec was killed, or records were lost.
    fn write_pending_exec(&mut self, pid: u32) {
        let pending = self.tree.process_mut(pid).and_then(|process| process.exec.take());
        if let Some(exec) = pending {
            self.emit_exec(exec, b"");
        }
    }

    /// Reads the files that name the generated code of a process to their end; entries up to `time_ns`
    /// also name the frames that were written before.
    fn read_names_to_end(&mut self, pid: u32, time_ns: u64) {
        if let Some(process) = self.tree.process_mut(pid) {
            self.resolver.read_names_to_end(pid, process, time_ns);
        }
    }

    /// Names the frames in generated code as far as the files of all processes allow by now.
    fn name_all_frames(&mut self, time_ns: u64) {
        let pids: Vec<u32> = self.tree.processes().collect();
        for pid in pids {
            self.read_names_to_end(pid, time_ns);
        }
        self.resolver.write_late_names(&mut self.sink);
    }

    /// Ends the recording: writes the names that have come since the last batch, and exits that no
    /// later record has refuted.
    pub(crate) fn finish(&mut self) {
        self.name_all_frames(u64::MAX);
        self.end_all_allocators(sys::monotonic_ns());
        self.decide_last_exits();
    }

    /// Writes an exec, with the path of its image unless it is empty.
    fn emit_exec(&mut self, exec: PendingExec, path: &[u8]) {
        let comm = self.tree.task(exec.tid).map(|task| task.comm.clone()).unwrap_or_default();
        let mut extras = ExtrasBuilder::new();
        if !path.is_empty() {
            extras.add("exe", path);
        }
        self.emit_change(exec.time_ns, exec.tid, ChangeKind::Exec, &comm, extras.extras());
    }

    fn emit_change(
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

    fn define_task(&mut self, tid: u32) {
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
            extras: Extras::NONE,
        };
        self.sink.take(&Record::Task(record));
    }

    fn handle_sample(&mut self, sample_id: SampleId, sample: &record::Sample<'_>, event: EventId) {
        let Some((weight, count)) = self.by_value.weight(event, sample.weight) else { return };
        let Some((task, node)) = self.locate(sample_id, sample) else { return };
        let mut extras = ExtrasBuilder::new();
        if self.stitched > 0 {
            extras.add("stitched", self.stitched.to_string().as_bytes());
        }
        if let Some(sum) = self.sums.get_mut((event.0 as usize).wrapping_sub(1)) {
            sum.samples += 1;
            sum.weight = sum.weight.saturating_add(weight);
        }
        self.sink.take(&Record::Sample(Sample {
            time: sample_id.time,
            event,
            task,
            cpu: sample_id.cpu,
            node,
            weight,
            count,
            extras: extras.extras(),
        }));
    }

    /// Returns the task and the node of a sample, after defining all that they need. None if it is not
    /// of a task of the tree.
    fn locate(
        &mut self,
        sample_id: SampleId,
        sample: &record::Sample<'_>,
    ) -> Option<(TaskId, NodeId)> {
        self.add_if_new(sample_id.pid, sample_id.tid);
        // A task that exits still runs in the kernel.
        if !sample.stack.in_kernel {
            self.note_life(sample_id.tid, sample_id.time);
        }
        let pid = self.tree.task(sample_id.tid)?.pid;
        if self.tree.needs_maps(pid) {
            self.read_maps(pid);
        } else if self.tree.take_lost_maps(pid) {
            self.read_lost_maps(pid);
        }
        let process = self.tree.process_mut(pid)?;
        let is_unreadable = process.is_unreadable;
        let mut mark = self.resolver.resolve(process, sample_id, sample);
        if mark == Mark::Unmapped && self.may_read_maps_again() {
            self.read_lost_maps(pid);
            mark = self.resolver.resolve(self.tree.process_mut(pid)?, sample_id, sample);
        }
        self.counts.unreadable += u64::from(is_unreadable && mark == Mark::Unmapped);
        if mark != Mark::None {
            *self.counts.incomplete.entry(mark).or_default() += 1;
        }
        if mark == Mark::Bits32 {
            self.note_compat(sample_id.tid);
        }
        self.stitched = self.resolver.stitched();
        self.counts.stitched += u64::from(self.stitched > 0);
        // Ids must not change between the frames of a stack and its sample.
        if self.resolver.is_full() {
            // The last chance: a location must be in the epoch of its frame.
            self.name_all_frames(sample_id.time);
            self.begin_epoch();
        }
        let node = self.resolver.node(&self.tree, &mut self.sink);
        let task = self.tree.task(sample_id.tid).map_or(TaskId::NONE, |task| task.id);
        Some((task, node))
    }

    /// Counts a sample of a 32-bit program.
    fn note_compat(&mut self, tid: u32) {
        let compat = &mut self.counts.compat;
        if compat.samples == 0 {
            compat.comm = self.tree.task(tid).map(|task| task.comm.clone()).unwrap_or_default();
        }
        compat.samples += 1;
    }

    /// Drops all ids, and defines the events and the live tasks again.
    fn begin_epoch(&mut self) {
        self.resolver.begin_epoch(&mut self.sink);
        self.resolver.images.begin_epoch(self.tree.images());
        self.define_events();
        if let Some(state) = &mut self.waiting {
            state.begin_epoch();
        }
        if let Some(state) = &mut self.allocations {
            state.begin_epoch();
        }
        self.tasks = 0;
        for tid in self.tree.living() {
            self.define_task(tid);
        }
    }
}

mod preloaded;
mod switching;
mod waiting;

#[cfg(test)]
mod tests;
