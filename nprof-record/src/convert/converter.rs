//! From kernel records to the records of the stream: follows the processes, and writes their changes
//! and samples. Records of other processes are dropped first.

use std::ffi::OsStr;
use std::rc::Rc;

use nprof_stream::{Cause, EventId, Extras, ExtrasBuilder, Lost, Record, TaskId};

use crate::convert::allocations::state::AllocationState;
use crate::convert::calls::CallState;
use crate::convert::counts::{Counts, Sum};
use crate::convert::deep_stacks::copy_hints::CopyHints;
use crate::convert::dictionary::Sink;
use crate::convert::generated_code::GeneratedCode;
use crate::convert::process_tree::{ProcessEnd, ProcessTree};
use crate::convert::stack_resolver::StackResolver;
use crate::convert::value_events::ValueEvents;
use crate::convert::waits::WaitState;
use crate::image::kept_images::KeptImages;
use crate::image::kernel::running_kernel::RunningKernel;
use crate::os::code_mapping::{Ksymbol, LoadedCode};
use crate::os::procfs;
use crate::os::sockets::SocketNames;
use crate::perf::event_counts::CountingTime;
use crate::perf::handler::RecordHandler;
use crate::perf::lost::LostSamples;
use crate::perf::record::{KernelRecord, SampleId};
use crate::sys::{self, SharedWords};

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
    /// The event whose samples are the CPU time of processes; none without one.
    clock: EventId,
    /// The events that are sampled by the value of a field.
    by_value: ValueEvents,
    /// The state of the events of the preloaded library; `None` without them.
    allocations: Option<AllocationState>,
    /// True if no records report processes and mappings: they are read from /proc.
    reads_proc: bool,
    /// The state of the events that measure waiting; `None` without them.
    waiting: Option<WaitState>,
    /// The state of the event that counts calls; `None` without it.
    calls: Option<CallState>,
    /// The names of the sockets that threads wait for and processes open.
    sockets: SocketNames,
    /// The number of frames of the last stack that an earlier sample supplied.
    stitched: usize,
    /// The number of tasks defined in this epoch.
    tasks: u32,
    /// True if sideband records may have been lost since the tasks were last compared with /proc.
    has_new_gap: bool,
    /// True if unknown threads have had records since [`Self::take_newcomers`].
    has_newcomers: bool,
    /// The time of that comparison.
    checked_ns: u64,
    /// The shortest time from it to the next.
    check_interval_ns: u64,
    /// The time from which on mappings may be read again that may have changed without a record.
    maps_due_ns: u64,
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
            KernelRecord::Call(sample, call) => self.handle_call(sample_id, sample, call),
            KernelRecord::CallRest(rest) => self.handle_rest(sample_id, rest),
            KernelRecord::RoutineCount(count) => self.handle_count(sample_id, count),
            &KernelRecord::TakenOff(taken_off) => self.handle_taken_off(sample_id, taken_off),
            &KernelRecord::MissedCalls(missed) => self.handle_missed_calls(sample_id, missed),
            KernelRecord::Preloaded(record) => self.handle_preloaded(sample_id, record),
            KernelRecord::Note(note) => self.handle_note(sample_id, note),
            &KernelRecord::Switch(switch) => self.handle_switch(sample_id, switch),
            &KernelRecord::Tick(tick) => self.handle_tick(tick),
            &KernelRecord::Existing(state) => self.handle_existing(sample_id, state),
            KernelRecord::Peek(peek) => self.handle_peek(sample_id, peek),
            KernelRecord::WindowOpened(window) => self.handle_window(window),
            KernelRecord::WindowClosed(threads) => self.write_window_end(sample_id.time, threads),
            KernelRecord::Mmap(mmap) => self.handle_mmap(sample_id, mmap),
            &KernelRecord::Comm { pid, tid, exec, name } => {
                self.add_if_new(pid, tid, sample_id.time);
                self.handle_comm(sample_id, tid, exec, name);
            }
            &KernelRecord::Fork(ids) => self.handle_fork(sample_id, ids),
            &KernelRecord::Exit(ids) => self.handle_exit(sample_id, ids),
            KernelRecord::Ksymbol(symbol) => self.resolver.frames.kernel_changed(symbol),
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
        if self.allocations.as_ref().is_some_and(|state| state.has_event(event)) {
            self.counts.lost_preloaded += lost.own;
        }
        // A loss of others alone has no part in the causes.
        if lost.own > 0 || lost.others == 0 {
            *self.counts.lost.entry(cause).or_default() += lost.own;
        }
        let mut extras = ExtrasBuilder::new();
        if lost.others > 0 {
            extras.add_number("others", lost.others);
        }
        self.emit_lost(sample_id, lost.own, event, cause, extras.extras());
    }

    fn on_multiplexed(&mut self, sample_id: SampleId, event: EventId, time: CountingTime) {
        let samples =
            self.sums.get((event.0 as usize).wrapping_sub(1)).map_or(0, |sum| sum.samples);
        let missed = time.missed(samples);
        // An event that never had a counter lost an unknown number.
        if missed != Some(0) {
            let lost = LostSamples::own(missed.unwrap_or(0));
            self.on_lost(sample_id, lost, event, Cause::Multiplex);
        }
    }

    fn on_sideband_lost(&mut self, sample_id: SampleId, count: u64) {
        self.counts.sideband_lost += count;
        self.on_sideband_full();
        let mut extras = ExtrasBuilder::new();
        extras.add_number("records", count);
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
        self.resolver.frames.write_late_names(&mut self.sink);
        if let Some(copy_hints) = &mut self.resolver.copy_hints {
            copy_hints.renew(sys::monotonic_ns());
        }
        let doubtful = self.tree.end_batch(procfs::lives_since);
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
            clock: EventId::NONE,
            by_value: ValueEvents::default(),
            allocations: None,
            reads_proc: false,
            waiting: None,
            calls: None,
            sockets: SocketNames::default(),
            stitched: 0,
            tasks: 0,
            has_new_gap: false,
            has_newcomers: false,
            checked_ns: 0,
            check_interval_ns: 0,
            maps_due_ns: 0,
            exit: None,
        };
        converter.define_events();
        // The recorder may be a child of a recorded process.
        converter.tree.exclude(std::process::id());
        converter
    }

    /// Takes the kernel as it was read before sampling began.
    pub(crate) fn set_kernel(&mut self, kernel: RunningKernel) {
        self.resolver.frames.set_kernel(kernel);
    }

    /// Leaves out the frames of the preloaded library, a file with this name, between those of others.
    pub(crate) fn hide_library(&mut self, file: Option<&OsStr>) {
        self.resolver.frames.library = file.map(OsStr::to_owned);
    }

    /// Adds the code of a BPF program that was loaded before.
    pub(crate) fn add_kernel_code(&mut self, code: &LoadedCode) {
        let LoadedCode { start, size, ref name } = *code;
        self.resolver.frames.kernel_changed(&Ksymbol { start, size, is_unregistered: false, name });
    }

    /// Writes the code of functions generated at run time that have samples.
    pub(crate) fn write_generated_code(&mut self) {
        self.resolver.frames.code = Some(GeneratedCode::default());
    }

    /// Keeps copies of the images that have frames, from now on.
    pub(crate) fn keep_images(&mut self, kept: Option<KeptImages>) {
        self.resolver.frames.images.kept = kept;
    }

    /// Returns the number of images of which the headers or tables were not read for want of descriptors.
    pub(crate) fn images_without_descriptors(&self) -> usize {
        self.resolver.frames.images.without_descriptors()
    }

    /// Returns the copies that were kept.
    pub(crate) fn kept_images(&mut self) -> Option<KeptImages> {
        self.resolver.frames.images.kept.take()
    }

    /// Sums the samples of an event as the CPU time of processes.
    pub(crate) fn set_clock(&mut self, event: EventId) {
        self.clock = event;
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

    /// Returns the state of the event that counts calls. None without it.
    pub(crate) fn calls(&self) -> Option<&CallState> {
        self.calls.as_ref()
    }

    /// Returns the ids of the live processes that are followed.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.tree.processes()
    }

    /// Returns the ends of processes since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<ProcessEnd> {
        self.tree.take_ended()
    }

    /// True if samples need facts that may change soon after them.
    pub(crate) fn needs_changing_facts(&self) -> bool {
        let now_ns = sys::monotonic_ns();
        let waits = self.waiting.as_ref();
        waits.is_some_and(|state| state.waits_for_descriptors(now_ns))
            || self.resolver.frames.has_generated_code
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

    /// Reads the files that name the generated code of a process to their end; entries up to `time_ns`
    /// also name the frames that were written before.
    fn read_names_to_end(&mut self, pid: u32, time_ns: u64) {
        if let Some(process) = self.tree.process_mut(pid) {
            self.resolver.frames.read_names_to_end(pid, process, time_ns);
        }
    }

    /// Names the frames in generated code as far as the files of all processes allow by now.
    fn name_all_frames(&mut self, time_ns: u64) {
        let pids: Vec<u32> = self.tree.processes().collect();
        for pid in pids {
            self.read_names_to_end(pid, time_ns);
        }
        self.resolver.frames.write_late_names(&mut self.sink);
    }

    /// Ends the recording: writes the names that have come since the last batch, and exits that no
    /// later record has refuted.
    pub(crate) fn finish(&mut self) {
        self.name_all_frames(u64::MAX);
        self.end_all_allocators(sys::monotonic_ns());
        self.decide_last_exits();
    }
}

mod blocks;
mod calling;
mod descriptors;
mod gaps;
mod instrumented;
mod library_samples;
mod mappings;
mod preloaded;
mod samples;
mod switching;
mod tasks;
mod waiting;

#[cfg(test)]
mod tests;
