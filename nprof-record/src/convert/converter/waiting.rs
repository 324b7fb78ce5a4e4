//! Writes waits: those that have ended, the parts of those that go on, and the times of threads.

use nprof_stream::{
    Cause, Change, ChangeKind, ExtrasBuilder, Mark, NodeId, Record, Sample, TaskId,
};
use std::ops::Range;

use nprof_unwind::unwind::stack_copy::StackSegments;
use nprof_unwind::unwind::stack_input::{CopiedStack, StackInput, UserStack, Words};
use rustc_hash::FxHashSet;

use crate::arch::pt_regs;
use crate::convert::converter::{Converter, ONGOING_MIN_NS};
use crate::convert::counts::Counts;
use crate::convert::dictionary::Sink;
use crate::convert::waits::{
    self, OngoingWait, TimeSums, WaitEvent, WaitObject, WaitState, Weight, WrittenWake,
};
use crate::os::descriptor_link::{FileId, link_of};
use crate::os::procfs;
use crate::os::sockets::SocketNames;
use crate::perf::record::{self, SampleId};
use crate::perf::waits::data::{
    self as perf, COMPAT_CALL, Capture, NoteContent, Progress, STACK_BYTES, ThreadNote,
    ThreadTimes, Wait, WaitPlace, WaitingThread, Wake,
};
use crate::perf::waits::stack_reader::{self, StackReader};
use crate::sys;

/// The most parts of waits that are written in a second. A part takes about 30 bytes: the stream of a
/// thousand idle threads grows by 1 KiB per second, and has all of their time in the end.
const PARTS_MAX: usize = 32;

/// A part of a wait, as it is written.
pub(super) struct WaitSample<'a> {
    pub(super) time_ns: u64,
    pub(super) cpu: u32,
    pub(super) task: TaskId,
    pub(super) node: NodeId,
    /// None if it is unknown.
    pub(super) place: Option<WaitPlace>,
    pub(super) object: &'a [u8],
    /// The number that the sample of its waker has, too.
    pub(super) pair: Option<u64>,
}

impl<S: Sink> Converter<S> {
    /// Takes the events that measure waiting.
    pub(crate) fn set_waiting(&mut self, mut state: WaitState) {
        state.descriptor_ns = sys::monotonic_ns();
        self.waiting = Some(state);
    }

    /// Writes a wait that has ended.
    pub(super) fn handle_wait(&mut self, id: SampleId, sample: &record::Sample<'_>, wait: &Wait) {
        let Some(state) = &mut self.waiting else { return };
        let wake = state.take_woken(id.tid, wait.since_ns);
        let written = state.take_ongoing(id.tid, wait.since_ns);
        let mut written_ns = written.map_or(0, |it| it.until_ns.saturating_sub(it.since_ns));
        let woken_ns = wait.since_ns + wait.blocked_ns();
        let blocked_ns = state.recorded_ns(wait.since_ns..woken_ns);
        let runnable_ns = state.recorded_ns(woken_ns..wait.until_ns);
        if blocked_ns == 0 && runnable_ns == 0 {
            return;
        }
        let mut sample = sample.clone();
        sample.stack.kernel = state.cause_of(sample.stack.kernel);
        sample.stack.in_kernel = sample.stack.kernel.iter().next().is_some();
        // Its instruction pointer is not one of the thread.
        if sample.stack.user == UserStack::NotCaptured {
            sample.stack.user = UserStack::Walked(Words::default());
        }
        let Some((task, node)) = self.locate(id, &sample) else { return };
        let object = object(id, wait.place, wait.file, &self.sockets);
        let Some(state) = &mut self.waiting else { return };
        state.note_place(wait.place, wait.until_ns);
        let parts = [
            (state.blocked, wait.blocked_ns(), blocked_ns, wait.blocked_hits, wake),
            (state.runnable, wait.runnable_ns, runnable_ns, wait.runnable_hits, None),
        ];
        for (event, size_ns, recorded_ns, hits, wake) in parts {
            let rest_ns = recorded_ns.saturating_sub(written_ns);
            written_ns = written_ns.saturating_sub(recorded_ns);
            let (Some(event), Some(state)) = (event, &mut self.waiting) else { continue };
            let weight = match (wake, hits) {
                (Some(wake), _) => wake.weight,
                (None, 0) => None,
                (None, _) => event.weight_of_part(rest_ns, size_ns, hits, &mut state.random),
            };
            let (time_ns, cpu, place) = (id.time, id.cpu, Some(wait.place));
            let pair = wake.map(|wake| wake.pair);
            let written = WaitSample { time_ns, cpu, task, node, place, object: &object, pair };
            self.write_wait(event, rest_ns, weight, &written);
        }
    }

    /// Writes a sample of `lasted_ns`, if it was chosen.
    pub(super) fn write_wait(
        &mut self,
        event: WaitEvent,
        lasted_ns: u64,
        weight: Option<Weight>,
        wait: &WaitSample<'_>,
    ) {
        let Some((weight, count)) = weight else { return };
        let scale = self.waiting.as_ref().map_or(1, |state| state.scale);
        let weight = weight.saturating_mul(scale);
        let runnable = self.waiting.as_ref().and_then(|state| state.runnable);
        // Most waits for a CPU, which readers know by their event: two thirds of such a sample.
        let is_implied = |place: &WaitPlace| runnable == Some(event) && place.state.is_preempted();
        let mut extras = ExtrasBuilder::new();
        add_length(&mut extras, lasted_ns, weight);
        if let Some(place) = wait.place.filter(|it| it.call.is_some() || !is_implied(it)) {
            extras.add("call", waits::call_name(place).as_bytes());
        }
        if !wait.object.is_empty() {
            extras.add("on", wait.object);
        }
        if let Some(place) = wait.place.filter(|it| !is_implied(it)) {
            extras.add("state", place.state.letter().to_string().as_bytes());
        }
        if let Some(pair) = wait.pair {
            extras.add_number("pair", pair);
        }
        if let Some(sum) = self.sums.get_mut((event.event.0 as usize).wrapping_sub(1)) {
            sum.samples += 1;
            sum.weight = sum.weight.saturating_add(weight);
        }
        let WaitSample { time_ns, cpu, task, node, .. } = *wait;
        self.sink.take(&Record::Sample(Sample {
            time: time_ns,
            event: event.event,
            task,
            cpu,
            node,
            weight,
            count,
            extras: extras.extras(),
        }));
    }

    /// Writes a wake-up. Those by threads that are not recorded are left out, with their pair.
    pub(super) fn handle_wake(&mut self, id: SampleId, sample: &record::Sample<'_>, wake: &Wake) {
        let Some(state) = &self.waiting else { return };
        let (Some(event), Some(blocked)) = (state.wakes, state.blocked) else { return };
        let mut sample = sample.clone();
        let (kernel, is_interrupt) = state.waker_of(sample.stack.kernel);
        sample.stack.kernel = kernel;
        sample.stack.in_kernel = kernel.iter().next().is_some();
        // The idle task has the id 0.
        let is_interrupt = is_interrupt || id.tid == 0;
        let located = if is_interrupt {
            sample.stack.user = UserStack::NotCaptured;
            // The kernel's frames are the same in each process.
            self.locate(SampleId { pid: wake.pid, tid: wake.tid, ..id }, &sample)
        } else if self.tree.accepts(id.tid) {
            self.locate(id, &sample)
        } else {
            None
        };
        let (Some((task, node)), Some(state)) = (located, &mut self.waiting) else { return };
        let task = if is_interrupt { TaskId::NONE } else { task };
        let size_ns = wake.until_ns.saturating_sub(wake.since_ns);
        let ongoing = state.ongoing.get(&wake.tid).filter(|it| it.since_ns == wake.since_ns);
        let written_ns = ongoing.map_or(0, |it| it.until_ns.saturating_sub(it.since_ns));
        let lasted_ns = size_ns.saturating_sub(written_ns);
        if lasted_ns == 0 {
            return;
        }
        // The parts before have their waker from the last one, which is therefore always written.
        let weight = if written_ns > 0 && size_ns >= blocked.period {
            Some(blocked.exact(lasted_ns, &mut state.random))
        } else {
            blocked.weight_of_part(lasted_ns, size_ns, wake.hits, &mut state.random)
        };
        state.pairs += 1;
        let (since_ns, pair) = (wake.since_ns, state.pairs);
        state.woken.insert(wake.tid, WrittenWake { since_ns, lasted_ns, weight, pair });
        let Some(weight) = weight else { return };
        let mut extras = ExtrasBuilder::new();
        add_length(&mut extras, lasted_ns, weight.0);
        extras.add_number("pair", pair);
        if let Some(sum) = self.sums.get_mut((event.event.0 as usize).wrapping_sub(1)) {
            sum.samples += 1;
            sum.weight = sum.weight.saturating_add(weight.0);
        }
        self.sink.take(&Record::Sample(Sample {
            time: id.time,
            event: event.event,
            task,
            cpu: id.cpu,
            node,
            weight: weight.0,
            count: weight.1,
            extras: extras.extras(),
        }));
    }

    /// Writes a note of the programs that measure waiting.
    pub(super) fn handle_note(&mut self, id: SampleId, note: &ThreadNote) {
        match &note.content {
            NoteContent::Ended(times) => self.write_times(note.tid, times),
            NoteContent::TwoSamples => {
                if let Some(state) = &mut self.waiting {
                    state.note_two_samples(id.cpu, note.tid, id.time);
                }
            }
            &NoteContent::Runnable { begin_ns, end_ns, hits } => {
                let Some(state) = &mut self.waiting else { return };
                let exited = state.exited.get(&note.tid).copied();
                let task = self.tree.task(note.tid).map(|task| task.id).or(exited);
                let Some(task) = task else { return };
                let Some(event) = state.runnable else { return };
                let whole_ns = end_ns.saturating_sub(begin_ns);
                let lasted_ns = state.recorded_ns(begin_ns..end_ns);
                let weight = event.weight_of_part(lasted_ns, whole_ns, hits, &mut state.random);
                // It runs no instruction of the program yet, or no more.
                let (node, place) = (NodeId::NONE, Some(WaitPlace::default()));
                let (time_ns, cpu) = (id.time, id.cpu);
                let (object, pair) = (&b""[..], None);
                let wait = WaitSample { time_ns, cpu, task, node, place, object, pair };
                self.write_wait(event, lasted_ns, weight, &wait);
            }
        }
    }

    /// Begins a window in which waits are recorded.
    pub(super) fn handle_window(&mut self, window: &Range<u64>) {
        if let Some(state) = &mut self.waiting {
            state.window = Some(window.clone());
        }
    }

    /// Writes the waits that go on at the end of a window, as far as they lie in it.
    pub(super) fn write_window_end(&mut self, end_ns: u64, threads: &[WaitingThread]) {
        // The end of the recording may come before that of the window.
        if let Some(window) = self.waiting.as_mut().and_then(|state| state.window.as_mut()) {
            window.end = end_ns;
        }
        for WaitingThread { progress: thread, stack } in threads {
            let (Some(state), Some((since_ns, at))) = (&mut self.waiting, thread.wait()) else {
                continue;
            };
            let lasted_ns = state.recorded_ns(since_ns..u64::MAX);
            let event = if at.is_preempted() { state.runnable } else { state.blocked };
            let Some(event) = event.filter(|_| self.tree.accepts(thread.tid)) else { continue };
            let weight = event.choose(lasted_ns, &mut state.random);
            if weight.is_none() {
                continue;
            }
            let id = SampleId { pid: thread.pid, tid: thread.tid, ..SampleId::at(end_ns, None) };
            // The kernel reports no stack of a thread that has been woken by now.
            let located = thread.capture.as_ref().map(|capture| {
                let (node, place) = self.locate_stack(id, at, capture, stack, Some(thread));
                (node, Some(place), object(id, place, None, &self.sockets))
            });
            let (node, place, object) = located.unwrap_or((NodeId::NONE, None, Vec::new()));
            let Some(task) = self.tree.task(id.tid).map(|task| task.id) else { continue };
            let (time_ns, cpu, object) = (end_ns, id.cpu, &object[..]);
            let wait = WaitSample { time_ns, cpu, task, node, place, object, pair: None };
            self.write_wait(event, lasted_ns, weight, &wait);
        }
    }

    /// True if the times of a thread that has exited are still to come, unless it is `known`.
    pub(crate) fn awaits_times(&self, known: &FxHashSet<u32>) -> bool {
        let mut exited = self.waiting.iter().flat_map(|state| state.exited.keys());
        exited.any(|tid| !known.contains(tid))
    }

    /// True if the times of exited threads may be lost: those of each come in one record.
    fn may_lack_times(&self) -> bool {
        let Counts { lost, sideband_lost, .. } = &self.counts;
        let is_awaited = self.waiting.as_ref().is_some_and(|state| !state.exited.is_empty());
        *sideband_lost > 0 || lost.contains_key(&Cause::Ring) && is_awaited
    }

    /// Returns the sums of the times of all threads. None if they are not measured, or some were lost.
    pub(crate) fn time_sums(&self) -> Option<TimeSums> {
        let state = self.waiting.as_ref().filter(|state| state.window.is_none())?;
        (!self.may_lack_times()).then_some(state.sums)
    }

    /// Writes the times of a thread that has ended.
    pub(super) fn write_times(&mut self, tid: u32, times: &ThreadTimes) {
        let Some(state) = &mut self.waiting else { return };
        let exited = state.exited.remove(&tid);
        // The id may belong to a later thread by now.
        let living = self.tree.task(tid).filter(|task| task.time_ns <= times.end_ns);
        if let Some(task) = living.map(|task| task.id).or(exited) {
            self.write_times_of(task, tid, times);
        }
    }

    pub(super) fn write_times_of(&mut self, task: TaskId, tid: u32, times: &ThreadTimes) {
        let Some(state) = &mut self.waiting else { return };
        // A later thread with this id may wait by now.
        let _ = (state.take_ongoing(tid, times.end_ns), state.take_woken(tid, times.end_ns));
        state.sums.add(times);
        let wall_ns = times.end_ns.saturating_sub(times.begin_ns);
        let parts_ns = times.cpu_ns + times.runnable_ns + times.blocked_ns;
        let pairs = [
            ("wall", if wall_ns == parts_ns { 0 } else { wall_ns }),
            ("cpu", times.cpu_ns),
            ("runnable", times.runnable_ns),
            ("blocked", times.blocked_ns),
        ];
        let mut extras = ExtrasBuilder::new();
        // Of a thousand idle threads, three of four are absent.
        for (key, ns) in pairs.into_iter().filter(|(_, ns)| *ns > 0) {
            extras.add_number(key, ns);
        }
        self.sink.take(&Record::Change(Change {
            time: times.end_ns,
            task,
            kind: ChangeKind::Times,
            value: b"",
            extras: extras.extras(),
        }));
    }

    /// Keeps the id of a thread that has exited: its times and its last calls come after its exit.
    pub(super) fn note_exited(&mut self, tid: u32) {
        let Some((pid, task)) = self.tree.task(tid).map(|task| (task.pid, task.id)) else { return };
        if let Some(state) = &mut self.allocations {
            state.note_exited(pid, tid, task);
        }
        if let Some(state) = &mut self.calls {
            state.note_exited(tid, task);
        }
        if let Some(state) = &mut self.waiting {
            state.note_exited(tid, task);
        }
    }

    /// Writes parts, up to `until_ns`, of the waits that go on: [`PARTS_MAX`] of them, those of which the
    /// last part is oldest.
    pub(crate) fn write_ongoing(&mut self, threads: &[WaitingThread], until_ns: u64) {
        let mut due = Vec::new();
        for WaitingThread { progress: thread, stack } in threads {
            let Some((since_ns, wait_state)) = thread.wait() else { continue };
            // The kernel reports a stack once, and later than `until_ns`: the wait may not be due yet.
            self.take_capture(thread, since_ns, wait_state, until_ns, stack);
            // A thread that was woken is written when it runs, which divides its wait.
            if !thread.is_woken() && until_ns.saturating_sub(since_ns) > ONGOING_MIN_NS {
                due.push((self.written_until_ns(thread.tid, since_ns), since_ns, thread));
            }
        }
        due.sort_by_key(|(written_ns, ..)| *written_ns);
        due.truncate(PARTS_MAX);
        for (_, since_ns, thread) in due {
            self.write_part(thread, since_ns, until_ns, false);
        }
    }

    /// Writes the last parts of all waits that go on at the end of the recording. They end when
    /// [`Self::write_last_times`] does for their threads, so that the sums agree.
    pub(crate) fn write_last_waits(&mut self, threads: &[WaitingThread]) {
        for WaitingThread { progress: thread, stack } in threads {
            let Some((since_ns, wait_state)) = thread.wait() else { continue };
            if thread.now_ns > since_ns {
                self.take_capture(thread, since_ns, wait_state, thread.now_ns, stack);
                // It was about to run when its state was read: it has no stack, and the wait is in its times.
                if let Some(state) = &mut self.waiting {
                    state.add_without_stack(thread.tid, since_ns, wait_state);
                }
                match thread.woken_ns() {
                    Some(woken_ns) => self.write_woken(thread, since_ns, woken_ns),
                    None => self.write_part(thread, since_ns, thread.now_ns, true),
                }
            }
        }
    }

    /// Writes the times of the threads that lived at the end of the recording, after all records.
    pub(crate) fn write_last_times(&mut self, threads: &[WaitingThread]) {
        for WaitingThread { progress: thread, .. } in threads {
            // A thread that waited all the time has no record: its task is defined with its last wait,
            // after the end of its times.
            let living = self.tree.task(thread.tid).map(|task| task.id);
            let exited = self.waiting.as_mut().and_then(|it| it.exited.remove(&thread.tid));
            if let Some(task) = living.or(exited) {
                self.write_times_of(task, thread.tid, &thread.times());
            }
        }
    }

    /// Writes the last parts of the wait of a thread that has been woken and does not run yet: the one in which
    /// it was blocked, if its wake-up was chosen, and the one in which it waits for a CPU.
    fn write_woken(&mut self, thread: &Progress, since_ns: u64, woken_ns: u64) {
        let Some(state) = &mut self.waiting else { return };
        if state.woken.get(&thread.tid).is_some_and(|wake| wake.since_ns == since_ns) {
            self.write_part(thread, since_ns, woken_ns, true);
        }
        let Some(state) = &mut self.waiting else { return };
        let ongoing = state.ongoing.get(&thread.tid).filter(|it| it.since_ns == since_ns).cloned();
        let Some(ongoing) = ongoing else { return };
        let lasted_ns = thread.now_ns.saturating_sub(woken_ns.max(ongoing.until_ns));
        let Some(event) = state.runnable else { return };
        let weight = event.choose(lasted_ns, &mut state.random);
        let Some(task) = self.tree.task(thread.tid).map(|task| task.id) else { return };
        let SampleId { time: time_ns, cpu, .. } = SampleId::at(thread.now_ns, None);
        let (object, pair) = (&ongoing.object[..], None);
        let (node, place) = (ongoing.node.unwrap_or(NodeId::NONE), ongoing.place);
        let wait = WaitSample { time_ns, cpu, task, node, place, object, pair };
        self.write_wait(event, lasted_ns, weight, &wait);
    }

    /// Returns the time up to which a wait was written.
    fn written_until_ns(&self, tid: u32, since_ns: u64) -> u64 {
        let ongoing = self.waiting.as_ref().and_then(|state| state.ongoing.get(&tid));
        ongoing.filter(|it| it.since_ns == since_ns).map_or(since_ns, |it| it.until_ns)
    }

    /// Keeps the stack of a wait, which comes once.
    fn take_capture(
        &mut self,
        thread: &Progress,
        since_ns: u64,
        wait_state: perf::WaitState,
        until_ns: u64,
        stack: &[u8],
    ) {
        let id = SampleId { pid: thread.pid, tid: thread.tid, ..SampleId::at(until_ns, None) };
        if let Some(capture) = &thread.capture {
            let (node, place) = self.locate_stack(id, wait_state, capture, stack, Some(thread));
            let object = object(id, place, None, &self.sockets);
            let (node, capture, place) = (Some(node), capture.clone(), Some(place));
            let wait = OngoingWait { since_ns, until_ns: since_ns, node, capture, place, object };
            if let Some(state) = &mut self.waiting {
                state.ongoing.insert(id.tid, wait);
            }
        }
    }

    fn write_part(&mut self, thread: &Progress, since_ns: u64, until_ns: u64, is_last: bool) {
        let id = SampleId { pid: thread.pid, tid: thread.tid, ..SampleId::at(until_ns, None) };
        self.locate_again(id, thread, since_ns);
        let Some(task) = self.tree.task(id.tid).map(|task| task.id) else { return };
        let Some(state) = &mut self.waiting else { return };
        let ongoing = state.ongoing.get_mut(&id.tid);
        let Some(ongoing) = ongoing.filter(|ongoing| ongoing.since_ns == since_ns) else { return };
        let node = ongoing.node.unwrap_or(NodeId::NONE);
        let mut lasted_ns = until_ns.saturating_sub(ongoing.until_ns);
        let wake = state.woken.get(&id.tid).filter(|wake| wake.since_ns == since_ns).copied();
        // It was woken, and is written when it runs, or when the recording ends before.
        if wake.is_some() && !is_last {
            return;
        }
        ongoing.until_ns = until_ns;
        let ongoing = ongoing.clone();
        let is_preempted = ongoing.place.is_some_and(|place| place.state.is_preempted());
        let event = if is_preempted { state.runnable } else { state.blocked };
        let Some(event) = event else { return };
        let weight = match wake {
            Some(wake) => {
                lasted_ns = wake.lasted_ns;
                wake.weight
            }
            None => event.choose(lasted_ns, &mut state.random),
        };
        let pair = wake.map(|wake| wake.pair);
        let OngoingWait { place, object, .. } = ongoing;
        let (time_ns, cpu) = (until_ns, id.cpu);
        let wait = WaitSample { time_ns, cpu, task, node, place, object: &object, pair };
        self.write_wait(event, lasted_ns, weight, &wait);
    }

    /// Defines the stack of a wait that goes on in this epoch. The thread still waits, so that its
    /// registers and its memory are those of the capture.
    fn locate_again(&mut self, id: SampleId, thread: &Progress, since_ns: u64) {
        let Some(state) = &self.waiting else { return };
        let Some(ongoing) = state.ongoing.get(&id.tid) else { return };
        if ongoing.since_ns != since_ns || ongoing.node.is_some() {
            return;
        }
        let capture = ongoing.capture.clone();
        let state = thread.wait().map(|(_, state)| state).unwrap_or_default();
        let mut stacks = StackReader::default();
        let (node, _) =
            self.locate_stack(id, state, &capture, stacks.read(id.pid, id.tid, &capture), None);
        let ongoing = self.waiting.as_mut().and_then(|state| state.ongoing.get_mut(&id.tid));
        if let Some(ongoing) = ongoing {
            ongoing.node = Some(node);
        }
    }

    /// Returns the node and the place of a thread that waits, from its captured registers and its
    /// stack. The rest of a stack with absent pages is read from the `thread` if it has not run since.
    pub(super) fn locate_stack(
        &mut self,
        id: SampleId,
        state: perf::WaitState,
        capture: &Capture,
        stack: &[u8],
        thread: Option<&Progress>,
    ) -> (NodeId, WaitPlace) {
        let registers = pt_regs::sampled(&capture.registers);
        let word = |at: u32| {
            let word = capture.registers.get(at as usize..).and_then(<[u8]>::first_chunk);
            // A thread of the kernel has no registers of user code.
            word.filter(|_| !registers.is_empty())
                .map_or(perf::KERNEL_THREAD, |word| u64::from_le_bytes(*word))
        };
        let is_compat = !registers.is_empty() && pt_regs::is_compat(&capture.registers);
        let mut place = WaitPlace::new(state, word(pt_regs::CALL), word(pt_regs::ARGUMENT));
        if let Some((number, _)) = place.call.as_mut().filter(|_| is_compat) {
            *number |= COMPAT_CALL;
        }
        let copied = CopiedStack {
            registers: Words(&registers),
            is_compat,
            is_of_system_call: capture.is_of_system_call,
            bytes: stack,
            requested_bytes: STACK_BYTES,
            ..CopiedStack::default()
        };
        let kernel = match &self.waiting {
            Some(state) => state.cause_of(Words(&capture.kernel)),
            None => Words::default(),
        };
        let ip = kernel.iter().next();
        let leaf_only = self.waiting.as_ref().is_some_and(|state| state.leaf_only);
        let in_user = capture.registers.get(pt_regs::IP..).and_then(<[u8]>::first_chunk);
        let user = match leaf_only {
            // Without the kernel's frames, the system call is the cause.
            true if ip.is_none() && in_user.is_some() => UserStack::NotCaptured,
            true => UserStack::Walked(Words::default()),
            false => UserStack::Copied(copied),
        };
        let user_ip = in_user.map_or(0, |ip| u64::from_le_bytes(*ip));
        let stack = StackInput { ip: ip.unwrap_or(user_ip), in_kernel: ip.is_some(), kernel, user };
        let mut sample = record::Sample { stack, ..record::Sample::default() };
        let Some((task, mut mark)) = self.resolve(id, &sample, 0) else {
            return (NodeId::NONE, place);
        };
        let beyond = thread.filter(|_| mark == Mark::PageAbsent).and_then(|thread| {
            let beyond = stack_reader::read_beyond(thread.tid, capture, copied.bytes.len());
            (procfs::arrivals(thread.tid) == Some(thread.arrivals)).then_some(beyond)
        });
        let (bytes, places) = beyond.unwrap_or_default();
        if !places.is_empty() {
            let segments = StackSegments { bytes: &bytes, places: &places, gap: (0, 0) };
            sample.stack.user = UserStack::Copied(CopiedStack { segments, ..copied });
            mark = self.resolve(id, &sample, 0).map_or(mark, |(_, mark)| mark);
        }
        (self.define_resolved(id, task, mark).1, place)
    }
}

/// Adds the length of a wait, unless it is the weight of its sample.
fn add_length(extras: &mut ExtrasBuilder, lasted_ns: u64, weight: u64) {
    if lasted_ns != weight {
        extras.add_number("lasted", lasted_ns);
    }
}

/// Returns the object that a thread waits for, as it is written: with the name of the `file` that it was, as far
/// as that is known. Empty if it is unknown.
pub(super) fn object(
    id: SampleId,
    place: WaitPlace,
    file: Option<FileId>,
    sockets: &SocketNames,
) -> Vec<u8> {
    let object = waits::object(place);
    match object {
        Some(WaitObject::Futex(address)) => format!("futex:{address:#x}").into(),
        Some(WaitObject::Descriptor(descriptor) | WaitObject::Epoll(descriptor)) => {
            let mut text = format!("fd:{descriptor}").into_bytes();
            // A thread may have its own descriptors, and the first one may have exited.
            let mut tables = [id.tid, id.pid].into_iter().skip(usize::from(id.tid == id.pid));
            let link = tables.find_map(|task| link_of(task, descriptor, file));
            // Timers and events have the same inode.
            let is_epoll = matches!(object, Some(WaitObject::Epoll(_)));
            if let Some(link) = link.filter(|link| !is_epoll || link == b"anon_inode:[eventpoll]") {
                text.push(b'=');
                text.extend(sockets.name(id.pid, &link).unwrap_or(link));
            }
            text
        }
        None => Vec::new(),
    }
}
