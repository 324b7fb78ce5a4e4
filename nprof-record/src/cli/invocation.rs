//! Starts or attaches to the target, opens the events, and records.

use std::cell::{Cell, RefCell};
use std::fs;
use std::rc::Rc;

use anyhow::Context;
use nprof_stream::{EventId, Record};

use crate::cli::args::Args;
use crate::cli::message::print_message;
use crate::cli::preload::Preload;
use crate::cli::running::add_running;
use crate::cli::target::Target;
use crate::convert::allocations::state::AllocationState;
use crate::convert::calls::CallState;
use crate::convert::converter::Converter;
use crate::convert::dictionary::Sink;
use crate::convert::process_tree::{Membership, ProcessTree};
use crate::convert::value_events::ValueEvents;
use crate::convert::waits::{Random, WaitState};
use crate::event::PreloadedEvent;
use crate::image::kept_images::KeptImages;
use crate::image::kernel::running_kernel::RunningKernel;
use crate::perf::calls::tracer::CallTracer;
use crate::perf::open::{NoLockedMemory, OpenTarget};
use crate::perf::plan::{OpenMode, Plan};
use crate::perf::ring_set::RingSet;
use crate::perf::switches::tracer::{self as switches, SwitchTracer};
use crate::perf::waits::tracer::WaitTracer;
use crate::session::call_source::CallSource;
use crate::session::event_source::{EventSource, SourceSet};
use crate::session::existing_threads::{ExistingThreads, follow_all};
use crate::session::header;
use crate::session::launch::ForkedCommand;
use crate::session::output::{Destination, OpenOutput};
use crate::session::preload::source::PreloadSource;
use crate::session::recording::{Clocks, Outcome, Recording};
use crate::session::wait_meter::{SwitchSource, WaitMeter};
use crate::session::wait_windows::{WaitWindows, WindowSource};
use crate::session::workload::Workload;
use crate::sys::{self, EventTarget, Priority, Signals};

/// Returns the events that are sampled by the value of a field. None without them.
///
/// # Errors
///
/// If there are no random bits.
fn value_events(plan: &Plan) -> anyhow::Result<Option<ValueEvents>> {
    let numbered = (1..).map(EventId).zip(&plan.events);
    let mut periods = numbered.filter_map(|(id, it)| Some((id, it.event.value_period?))).peekable();
    if periods.peek().is_none() {
        return Ok(None);
    }
    let random = Random::new(sys::random().context("cannot get random bits")?);
    Ok(Some(ValueEvents::new(periods, random)))
}

/// The open sources of a recording. The kernel has none if no event needs it.
struct Sources {
    rings: Option<RingSet>,
    waits: Option<WaitMeter>,
    /// The time before they were enabled.
    enabled: Clocks,
}

/// One invocation of the tool, ready to record.
pub(crate) struct Invocation<'a> {
    pub(crate) args: &'a Args,
    pub(crate) destination: Destination,
    pub(crate) waiting: Cell<Option<WaitState>>,
    /// The BPF programs that measure waiting, if they do.
    pub(crate) tracer: Option<Rc<WaitTracer>>,
    /// The BPF programs that count calls; `None` without a list of functions.
    pub(crate) calls: Option<Rc<CallTracer>>,
    /// The output. None if its name contains the pid of the command, which does not run yet.
    pub(crate) opened: Cell<Option<OpenOutput>>,
    pub(crate) target: Target,
    pub(crate) cpus: Vec<u32>,
    /// The directory of the control group.
    pub(crate) group: Option<fs::File>,
    pub(crate) plan: Plan,
    /// The kernel as it was before sampling. None if it is not sampled.
    pub(crate) kernel: Cell<Option<RunningKernel>>,
    pub(crate) signals: Rc<Signals>,
    /// The priority of this process.
    pub(crate) priority: Cell<Priority>,
    /// The directory of copied images.
    pub(crate) kept: Cell<Option<KeptImages>>,
    /// The library that the command loads; `None` if no event needs it.
    pub(crate) preload: Option<Preload>,
}

impl Invocation<'_> {
    /// Starts the command and records it.
    pub(crate) fn launch(self) -> anyhow::Result<u8> {
        let descriptors = sys::raise_descriptor_limit();
        let output_to_error = self.destination == Destination::Stdout;
        let forked = ForkedCommand::fork(
            &self.args.command,
            self.preload.as_ref().map(|preload| &preload.environment[..]),
            output_to_error,
            &self.signals,
            descriptors,
        )?;
        // The child waits: its events are opened before it executes.
        let pid = forked.pid as u32;
        let (sources, output) =
            match self.prepare(OpenTarget::Single(EventTarget::Task(pid as i32)), pid) {
                Ok(prepared) => prepared,
                Err(error) => {
                    forked.cancel();
                    return Err(error);
                }
            };
        let workload = match forked.execute() {
            Ok(child) => Rc::new(Workload::command(child)),
            // Nothing was recorded: an existing file must stay as it was.
            Err(error) => {
                output.abandon();
                return Ok(self.not_executed(&error));
            }
        };
        let tree = if self.plan.has_records {
            ProcessTree::for_command(pid, self.membership())
        } else {
            // No record reports that the command executes.
            ProcessTree::for_processes(self.membership())
        };
        let recorded = self.record(sources, output, &workload, tree, pid);
        // Without an error the time of `-d` is over.
        if recorded.as_ref().is_ok_and(|outcome| outcome.error.is_none()) && workload.goes_on() {
            print_message(&format!(
                "the recording has ended and the command (process {pid}) goes on; waiting for its exit \
                 status"
            ));
        }
        workload.wait(&self.signals).context("cannot wait for the command")?;
        Ok(self.finish(&workload, recorded, pid))
    }

    /// Records running processes.
    pub(crate) fn attach(self) -> anyhow::Result<u8> {
        sys::raise_descriptor_limit();
        let (workload, tree, open_target) = match &self.target {
            Target::Processes(running) => {
                let tree = ProcessTree::for_processes(self.membership());
                let open_target =
                    OpenTarget::Processes { pids: &running.pids, except: running.excluded() };
                (Workload::processes(&running.recorded()), tree, open_target)
            }
            _ => {
                let open_target = OpenTarget::Single(EventTarget::AllTasks);
                (Workload::everyone(), ProcessTree::for_system(), open_target)
            }
        };
        let pid = match &self.target {
            Target::Processes(running) => running.pids[0],
            _ => std::process::id(),
        };
        let (sources, output) = self.prepare(open_target, pid)?;
        let workload = Rc::new(workload);
        let recorded = self.record(sources, output, &workload, tree, pid);
        Ok(self.finish(&workload, recorded, pid))
    }

    /// Returns the unknown tasks that belong to the target.
    fn membership(&self) -> Membership {
        match self.plan.common.open_mode {
            OpenMode::System => Membership::Descendants,
            OpenMode::Group | OpenMode::Task => Membership::AllWithRecords,
        }
    }

    /// True if the processes that run already are read before sampling begins: they may exit right after their first
    /// sample. Of all processes of the machine, most have none, unless their waits are recorded.
    fn reads_running(&self) -> bool {
        match self.target {
            Target::Processes(_) | Target::Group(_) => true,
            Target::System => self.tracer.is_some(),
            Target::Command(_) => false,
        }
    }

    fn is_delayed(&self) -> bool {
        self.args.times().delay.is_some()
    }

    /// Opens the events and the output. Per-task events are opened for `open_target`.
    fn prepare(
        &self,
        open_target: OpenTarget<'_>,
        pid: u32,
    ) -> anyhow::Result<(Sources, OpenOutput)> {
        let open_mode = self.plan.common.open_mode;
        let open_target = match (open_mode, &self.group) {
            (OpenMode::System, _) => OpenTarget::Single(EventTarget::AllTasks),
            (OpenMode::Group, Some(group)) => OpenTarget::Single(EventTarget::Cgroup(group)),
            _ => open_target,
        };
        if let Target::Command(Some(own)) = &self.target {
            own.enter(pid as i32)?;
        }
        let (rings, waits) = self.open_events(open_target)?;
        let sources = Sources { rings, waits, enabled: Clocks::read(0) };
        let output = match self.opened.take() {
            Some(opened) => opened,
            None => self.destination.open(pid)?,
        };
        if let (Some(calls), Target::System) = (&self.calls, &self.target) {
            calls.follow_everyone();
        }
        // Inherited events of a command start at its exec (`attr.enable_on_exec`).
        let is_inherited = open_mode == OpenMode::Task && matches!(self.target, Target::Command(_));
        let rings = sources.rings.as_ref().filter(|_| !is_inherited);
        // Tasks that begin while the existing threads are listed must have records of their creation.
        if let Some(rings) = rings {
            rings.enable(false).context("cannot enable an event")?;
        }
        if !self.is_delayed() {
            self.start_waits(&sources, pid)?;
            self.start_calls(pid)?;
        }
        // The command is forked by now, so it does not inherit the priority.
        self.priority.set(sys::raise_priority());
        // Processes must be known before their samples. Reading thousands of threads takes long enough to
        // fill a ring: those of running processes start after that.
        if let Some(rings) = rings
            && !self.is_delayed()
            && !self.reads_running()
        {
            rings.enable(true).context("cannot enable an event")?;
            self.enable_switches(sources.waits.as_ref(), pid)?;
        }
        Ok((sources, output))
    }

    /// Opens the events with their rings, and the measurement of waiting.
    fn open_events(
        &self,
        open_target: OpenTarget<'_>,
    ) -> anyhow::Result<(Option<RingSet>, Option<WaitMeter>)> {
        let (tracer, calls) = (self.tracer.as_ref(), self.calls.as_ref());
        let open = || RingSet::open(&self.plan, &self.cpus, open_target, tracer, calls);
        let mut switch_ring = switches::RING_BYTES;
        loop {
            // First, as the rings of samples take all the memory that may be locked.
            let waits = self.open_meter(open_target, switch_ring)?;
            match self.plan.has_records.then(open).transpose() {
                Err(error)
                    if error.is::<NoLockedMemory>()
                        && matches!(waits, Some(WaitMeter::Switches(_)))
                        && switch_ring / 2 >= switches::RING_BYTES_MIN =>
                {
                    switch_ring /= 2;
                }
                rings => return Ok((rings?, waits)),
            }
        }
    }

    /// Opens the measurement of waiting, with rings of at most `switch_ring` bytes for context switches. None
    /// if no event needs it.
    fn open_meter(
        &self,
        open_target: OpenTarget<'_>,
        switch_ring: usize,
    ) -> anyhow::Result<Option<WaitMeter>> {
        let Some((event, period)) = self.plan.first_wait() else { return Ok(None) };
        if let Some(tracer) = &self.tracer {
            let tracer = tracer.clone();
            return Ok(Some(match self.plan.wait_windows {
                Some(windows) => {
                    let windows = WaitWindows::new(tracer, windows, event);
                    WaitMeter::Windows(Rc::new(RefCell::new(windows)))
                }
                None => WaitMeter::Bpf(tracer),
            }));
        }
        let tracer =
            SwitchTracer::open(&self.plan.common, open_target, event, period, switch_ring)?;
        Ok(Some(WaitMeter::Switches(Rc::new(RefCell::new(tracer)))))
    }

    /// Starts to measure the waiting of the target, if an event needs it.
    fn start_waits(&self, sources: &Sources, pid: u32) -> anyhow::Result<()> {
        let is_command = matches!(self.target, Target::Command(_));
        match &sources.waits {
            Some(WaitMeter::Bpf(waits)) if is_command => {
                waits.start()?;
                waits.follow_command(pid)
            }
            Some(WaitMeter::Windows(windows)) if is_command => {
                let tracer = windows.borrow().tracer.clone();
                tracer.start()?;
                windows.borrow_mut().begin();
                tracer.follow_command(pid)
            }
            // Only the command itself exists, which does not run yet.
            Some(waits) if is_command => waits.start(&ExistingThreads::none(), Vec::new),
            // The threads that exist are listed once its events are enabled.
            Some(WaitMeter::Switches(_)) | None => Ok(()),
            Some(waits) => waits.start(&self.target.existing_threads(pid), Vec::new),
        }
    }

    /// Enables the events of context switches, if they measure waiting, and starts to measure the threads
    /// that exist after that: a switch in between would be missed.
    fn enable_switches(&self, waits: Option<&WaitMeter>, pid: u32) -> anyhow::Result<()> {
        let Some(waits @ WaitMeter::Switches(tracer)) = waits else { return Ok(()) };
        tracer.borrow().enable().context("cannot enable an event")?;
        // A command was started by `start_waits`.
        if matches!(self.target, Target::Command(_)) {
            return Ok(());
        }
        waits.start(&self.target.existing_threads(pid), Vec::new)
    }

    /// Starts to count the calls of the target.
    fn start_calls(&self, pid: u32) -> anyhow::Result<()> {
        let Some(calls) = &self.calls else { return Ok(()) };
        calls.start()?;
        if let Target::Command(_) = &self.target {
            return calls.follow_command(pid);
        }
        let list = || self.target.existing_threads(pid).list();
        follow_all(list, |threads| calls.follow(threads))
    }

    /// Records until the end of the target.
    fn record(
        &self,
        sources: Sources,
        output: OpenOutput,
        workload: &Rc<Workload>,
        tree: ProcessTree,
        pid: u32,
    ) -> anyhow::Result<Outcome> {
        let stream = output.begin(workload.clone(), self.signals.clone());
        let mut stream = stream.context("cannot write the stream")?;
        let service = self.args.service.as_deref().unwrap_or_default();
        let head = header::head(self.target.described(self.args), service)?;
        let begin_ns = head.time.unwrap_or_default();
        stream.take(&Record::Head(Box::new(head)));
        stream.take(&Record::Step(Box::new(header::step())));
        let mut converter = Converter::new(stream, self.stream_events(), self.args.depth(), tree);
        // A recorder that is killed early leaves a stream that names its command.
        converter.sink.flush();
        if let Some(kernel) = self.kernel.take() {
            converter.set_kernel(kernel);
            let code = self.tracer.iter().flat_map(|tracer| &tracer.code);
            code.for_each(|code| converter.add_kernel_code(code));
        }
        converter.keep_images(self.kept.take());
        if self.args.code {
            converter.write_generated_code();
        }
        let Sources { mut rings, waits, enabled } = sources;
        if let Some(rings) = &rings {
            rings.enable_stack_copies(&mut converter);
        }
        if let Some((number, _)) = self.plan.clock() {
            converter.set_clock(EventId(number as u32 + 1));
        }
        if let Some(events) = value_events(&self.plan)? {
            converter.set_value_events(events);
        }
        if let Some(preload) = &self.preload {
            let has_records = self.plan.has_records;
            converter.set_allocations(AllocationState::new(preload.events.clone()), has_records);
            converter.hide_library(preload.library.file_name());
        }
        if let Some(state) = self.waiting.take() {
            converter.set_waiting(state);
        }
        if let (Some(calls), Some(event)) = (&self.calls, self.plan.calls()) {
            calls.set_begin(begin_ns);
            let mut state = CallState::new(event, calls.list.clone(), begin_ns);
            // It is the last one, see `stream_events`.
            state.counted = EventId(self.stream_events().len() as u32);
            converter.set_calls(state);
        }
        if self.reads_running() {
            if let Some(rings) = &mut rings {
                rings.expect_quiet();
            }
            // Those that it does not have are read from /proc.
            let names = self.tracer.as_ref().and_then(|tracer| tracer.names().ok());
            add_running(&mut converter, &self.target, &names.unwrap_or_default());
            if let Some(rings) = &rings
                && !self.is_delayed()
            {
                rings.enable(true).context("cannot enable an event")?;
                self.enable_switches(waits.as_ref(), pid)?;
            }
        }
        let preloaded = self.preload.as_ref().map(|preload| &preload.events);
        if preloaded.is_some_and(|events| events.id(PreloadedEvent::HeapSnapshot).is_some()) {
            workload.accept_snapshot_requests();
        }
        let recording = Recording {
            plan: self.plan.clone(),
            sources: self.sources(rings, waits.as_ref()),
            waits,
            enabled,
            calls: self.calls.clone(),
            existing_threads: self.target.existing_threads(pid),
            converter,
            workload: workload.clone(),
            signals: self.signals.clone(),
            times: self.args.times(),
            snapshot: self.args.snapshot,
            cpu_time_scope: self.target.cpu_time_scope(&self.cpus),
            has_priority: self.priority.get() == Priority::Realtime,
            existing_descendants: match &self.target {
                Target::Processes(running) => Some(running.excluded().len()),
                _ => None,
            },
        };
        recording.run().context("cannot wait for events")
    }

    /// Returns the definitions of all events.
    fn stream_events(&self) -> Vec<nprof_stream::Event> {
        let preload = self.preload.as_ref().map(|preload| &preload.events);
        let call_cost_ns = self.calls.as_ref().and_then(|calls| calls.cost_ns());
        let mut events = header::events(&self.plan, preload, call_cost_ns);
        if let Some(counted) = self.calls.as_ref().and_then(|calls| calls.counted.as_ref()) {
            events.push(header::counted(EventId(events.len() as u32 + 1), counted));
        }
        events
    }

    /// Returns the sources of records.
    fn sources(&self, rings: Option<RingSet>, waits: Option<&WaitMeter>) -> SourceSet {
        let mut sources: Vec<Box<dyn EventSource>> = Vec::new();
        if let Some(rings) = rings {
            sources.push(Box::new(rings));
        }
        if let Some(WaitMeter::Switches(tracer)) = waits {
            sources.push(Box::new(SwitchSource(tracer.clone())));
        }
        if let Some(WaitMeter::Windows(windows)) = waits {
            sources.push(Box::new(WindowSource(windows.clone())));
        }
        if let Some(preload) = &self.preload
            && let Some(listener) = preload.listener.take()
        {
            let source = PreloadSource::new(listener, preload.events.clone(), self.is_delayed());
            sources.push(Box::new(source));
        }
        if let (Some(calls), Some(event)) = (&self.calls, self.plan.calls()) {
            let limit = self.args.calls_limit;
            sources.push(Box::new(CallSource::new(calls.clone(), event, limit)));
        }
        SourceSet(sources)
    }
}
