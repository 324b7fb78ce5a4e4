//! Writes waits that were measured by records of context switches, with the stacks of peeks.

use nprof_stream::{NodeId, TaskId};
use nprof_unwind::unwind::stack_input::{CopiedStack, StackInput, UserStack};

use crate::convert::converter::Converter;
use crate::convert::converter::waiting::{self, WaitSample};
use crate::convert::dictionary::Sink;
use crate::convert::switches::{EndedWait, Represented, SwitchTimes};
use crate::convert::waits::OngoingWait;
use crate::os::procfs;
use crate::perf::record::{self, SampleId, Switch, Tick};
use crate::perf::waits::data::{Peek, Progress, WaitPlace, WaitState};

impl<S: Sink> Converter<S> {
    fn switches(&mut self) -> Option<&mut SwitchTimes> {
        self.waiting.as_mut()?.switches.as_mut()
    }

    /// Notes a tick; the first one is the start of sampling.
    pub(super) fn handle_tick(&mut self, tick: Tick) {
        if let Some(switches) = self.switches() {
            switches.tick(tick);
        }
    }

    /// Notes the state of a thread at the start of sampling.
    pub(super) fn handle_existing(&mut self, id: SampleId, state: WaitState) {
        if self.tree.task(id.tid).is_none() {
            let Some(pid) = procfs::process_of(id.tid) else { return };
            self.add_if_new(pid, id.tid, id.time);
        }
        if self.tree.task(id.tid).is_some()
            && let Some(switches) = self.switches()
        {
            switches.existed(id.tid, id.time, state);
        }
    }

    /// Measures a thread from its creation on.
    pub(super) fn measure_created(&mut self, tid: u32, time_ns: u64) {
        if let Some(switches) = self.switches() {
            switches.created(tid, time_ns);
        }
    }

    /// Measures the command from its start on.
    pub(super) fn measure_started(&mut self, tid: u32, time_ns: u64) {
        if let Some(switches) = self.switches() {
            switches.started(tid, time_ns);
        }
    }

    /// Writes the times of a thread that has exited.
    pub(super) fn end_measured(&mut self, tid: u32, time_ns: u64) {
        let times = self.switches().and_then(|switches| switches.exited(tid, time_ns));
        if let Some(times) = times {
            self.write_times(tid, &times);
        }
    }

    /// Writes the times of a thread that an exec of its process has ended, or that has executed the image
    /// and goes on under the id of the process.
    pub(super) fn end_replaced(&mut self, task: TaskId, tid: u32, time_ns: u64) {
        let times = self.switches().and_then(|switches| switches.exited(tid, time_ns));
        match (times, &mut self.waiting) {
            (Some(times), _) => self.write_times_of(task, tid, &times),
            // The BPF programs report them a little later.
            (None, Some(state)) => state.note_exited(tid, task),
            (None, None) => {}
        }
    }

    /// Takes a context switch, and writes the wait that it ends, if it was chosen.
    pub(super) fn handle_switch(&mut self, id: SampleId, switch: Switch) {
        self.add_if_new(id.pid, id.tid, id.time);
        if !self.tree.lives(id.tid) {
            return;
        }
        let known_ns = self.tree.task(id.tid).map_or(0, |task| task.time_ns);
        let Some(switches) = self.switches() else { return };
        match switches.switched(id.tid, known_ns, id.time, switch) {
            Some(wait) if wait.is_preempted => self.write_preempted(id, &wait),
            Some(wait) => self.write_blocked(id, &wait),
            None => {}
        }
    }

    /// Writes a wait for a CPU. Its stack is unknown: /proc shows none of a thread that can run.
    fn write_preempted(&mut self, id: SampleId, wait: &EndedWait) {
        let Some(state) = &mut self.waiting else { return };
        let written = state.take_ongoing(id.tid, wait.since_ns);
        let Some(event) = state.runnable else { return };
        let since_ns = written.map_or(wait.since_ns, |written| written.until_ns);
        let lasted_ns = wait.until_ns.saturating_sub(since_ns);
        let weight = event.choose(lasted_ns, &mut state.random);
        let Some(task) = self.tree.task(id.tid).map(|task| task.id) else { return };
        let (node, place) = (NodeId::NONE, Some(WaitPlace::default()));
        let (time_ns, cpu, object, pair) = (id.time, id.cpu, &b""[..], None);
        let sample = WaitSample { time_ns, cpu, task, node, place, object, pair };
        self.write_wait(event, lasted_ns, weight, &sample);
    }

    /// Writes a wait for anything else, if a tick fell into it.
    fn write_blocked(&mut self, id: SampleId, wait: &EndedWait) {
        let Some(state) = &mut self.waiting else { return };
        let ongoing = state.take_ongoing(id.tid, wait.since_ns);
        let (Some(event), Some(switches)) = (state.blocked, &mut state.switches) else { return };
        let since_ns = ongoing.as_ref().map_or(wait.since_ns, |ongoing| ongoing.until_ns);
        let lasted_ns = wait.until_ns.saturating_sub(since_ns);
        let represented = if since_ns > wait.since_ns {
            Some(Represented { length_ns: lasted_ns, is_by_chance: false })
        } else {
            switches.represented(id.tid, wait.since_ns, wait.until_ns)
        };
        let mut weight = represented.and_then(|it| event.choose(it.length_ns, &mut state.random));
        // It is one observation, also if it represents several periods.
        if let (Some((_, count)), Some(Represented { is_by_chance: true, .. })) =
            (&mut weight, represented)
        {
            *count = 1;
        }
        if weight.is_none() {
            return;
        }
        // A new epoch clears the node alone.
        let (node, place, object) = match ongoing {
            Some(it) => (it.node, it.place, it.object),
            None => (None, None, Vec::new()),
        };
        let node = node.unwrap_or_else(|| self.unknown_stack(id));
        let Some(task) = self.tree.task(id.tid).map(|task| task.id) else { return };
        let (time_ns, cpu, pair) = (id.time, id.cpu, None);
        let sample = WaitSample { time_ns, cpu, task, node, place, object: &object, pair };
        self.write_wait(event, lasted_ns, weight, &sample);
    }

    /// Takes the place at which a thread is blocked, unless it has run since the start of the wait.
    pub(super) fn handle_peek(&mut self, id: SampleId, peek: &Peek) {
        let Some(switches) = self.switches() else { return };
        let is_current = switches
            .wait(id.tid)
            .is_some_and(|(since_ns, state)| since_ns == peek.since_ns && !state.is_preempted());
        if !is_current {
            return;
        }
        switches.set_state(id.tid, peek.state);
        let Some(pid) = self.tree.task(id.tid).map(|task| task.pid) else { return };
        let id = SampleId { pid, ..id };
        let (node, place) = self.locate_stack(id, peek.state, &peek.capture, &peek.stack, None);
        let object = waiting::object(id, place, peek.file, &self.sockets);
        let Some(state) = &mut self.waiting else { return };
        state.note_place(place, id.time);
        let written = state.ongoing.get(&id.tid).filter(|it| it.since_ns == peek.since_ns);
        let until_ns = written.map_or(peek.since_ns, |it| it.until_ns);
        let (since_ns, node, place) = (peek.since_ns, Some(node), Some(place));
        let capture = peek.capture.clone();
        let ongoing = OngoingWait { since_ns, until_ns, node, capture, place, object };
        state.ongoing.insert(id.tid, ongoing);
    }

    /// Returns the node of a stack of which nothing is known.
    fn unknown_stack(&mut self, id: SampleId) -> NodeId {
        let Some(pid) = self.tree.task(id.tid).map(|task| task.pid) else { return NodeId::NONE };
        let user = UserStack::Copied(CopiedStack::default());
        let sample = record::Sample {
            stack: StackInput { user, ..StackInput::default() },
            ..record::Sample::default()
        };
        self.locate(SampleId { pid, ..id }, &sample).map_or(NodeId::NONE, |(_, node)| node)
    }

    /// Returns the state at `now_ns` of the threads that are measured by their switches, and prepares
    /// those that wait since `shortest_ns` for [`Self::write_ongoing`]. `has_not_run` is true for a thread
    /// that has got no CPU since the start.
    pub(crate) fn switched_threads(
        &mut self,
        now_ns: u64,
        shortest_ns: u64,
        has_not_run: impl Fn(u32) -> bool,
    ) -> Vec<Progress> {
        let Some(switches) = self.waiting.as_ref().and_then(|state| state.switches.as_ref()) else {
            return Vec::new();
        };
        let tree = &self.tree;
        let mut threads = switches.progress(now_ns, |tid| Some(tree.task(tid)?.pid));
        for thread in &mut threads {
            thread.note_idle(&has_not_run);
            let Some((since_ns, wait_state)) = thread.wait() else { continue };
            if now_ns.saturating_sub(since_ns) <= shortest_ns {
                continue;
            }
            if let Some(state) = &mut self.waiting {
                state.add_without_stack(thread.tid, since_ns, wait_state);
            }
        }
        threads
    }
}
