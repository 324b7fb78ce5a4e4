//! One run of the tool: starts the parts in order, prints messages, returns the exit status.

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::fs;
use std::io::{self, BufReader, Write};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, bail};
use nprof_cli::usage;
use nprof_preload::Listener;
use nprof_preload::protocol::Settings;
use nprof_stream::escape::escaped;
use nprof_stream::{EventId, Record};

use crate::cli::args::Args;
use crate::cli::target::{RunningProcesses, Target};
use crate::convert::allocations::state::AllocationState;
use crate::convert::converter::Converter;
use crate::convert::dictionary::Sink;
use crate::convert::process_tree::{Membership, ProcessTree};
use crate::convert::switches::SwitchTimes;
use crate::convert::value_events::ValueEvents;
use crate::convert::waits::{Random, WaitEvent, WaitState};
use crate::event::{
    self, Catalog, CpuMode, EventRate, EventSpec, HeapPeriod, PerfEventConfig, PreloadPlan,
    PreloadedEvent, StackMode, Waiting, WeightField,
};
use crate::image::kept_images::{KeptImages, KeptSummary};
use crate::image::kernel::kallsyms::WaitSymbols;
use crate::image::kernel::running_kernel::RunningKernel;
use crate::os::load;
use crate::os::machine;
use crate::os::procfs;
use crate::perf::open::{Kernel, OpenTarget};
use crate::perf::plan::{self, OpenMode, Plan, PlannedEvent, Request, RequestedEvent};
use crate::perf::ring_set::RingSet;
use crate::perf::switches::tracer::SwitchTracer;
use crate::perf::waits::tracer::WaitTracer;
use crate::session::event_source::{EventSource, SourceSet};
use crate::session::header;
use crate::session::launch::ForkedCommand;
use crate::session::output::{Destination, OpenOutput, Stream};
use crate::session::preload::source::{FIRST_PERIOD, PreloadSource, RING_BYTES};
use crate::session::preload::{environment, library};
use crate::session::recording::{Outcome, Recording};
use crate::session::wait_meter::{SwitchSource, WaitMeter};
use crate::session::workload::Workload;
use crate::sys::{self, EventTarget, Priority, Signals};

/// The name of the tool in messages.
const TOOL: &str = "nprof-record";

/// The exit status of failures of the recorder itself, as with env(1).
const FAILURE: u8 = 125;

/// The looks per second at blocked threads without BPF programs, unless another frequency is
/// requested. Each wakes the recorder.
const TICKS_PER_SECOND: u64 = 250;

/// Passes over the threads of running processes of which the waiting is measured.
const THREAD_SCANS: usize = 2;

/// Runs the command line and returns the exit status.
pub fn main() -> ExitCode {
    let args: Args = match usage::arguments_or(TOOL, FAILURE) {
        Ok(args) => args,
        Err(end) => return end,
    };
    match run(&args) {
        Ok(status) => status.into(),
        Err(error) => {
            print_message(&format!("{error:#}"));
            FAILURE.into()
        }
    }
}

/// Prints a message on one line of standard error.
fn print_message(message: &str) {
    // An error of standard error cannot be reported anywhere.
    let _ = writeln!(io::stderr(), "{TOOL}: {message}");
}

/// Executes a parsed command line and returns the exit status.
///
/// # Errors
///
/// If the recording could not be started.
fn run(args: &Args) -> anyhow::Result<u8> {
    if args.list {
        return list();
    }
    let destination = match Destination::for_option(args.output.as_deref()) {
        Ok(destination) => destination,
        Err(usage) => bail!(usage),
    };
    let target = Target::find(args)?;
    if !Path::new("/proc/self/maps").exists() {
        print_message(
            "/proc is not mounted: programs cannot be read through it, so stacks will be \
             incomplete; mount it",
        );
    }
    let cpus = args.cpus.as_ref().map_or_else(machine::online_cpus, |cpus| cpus.0.clone());
    if let Target::Processes(running) = &target {
        print_excluded(running.excluded().len());
    }
    let group = target.group()?;
    let mut specs =
        EventSpec::expanded_all(&args.event).map_err(|reason| anyhow::anyhow!("-e: {reason}"))?;
    let has_snapshot = specs.iter().any(|spec| spec.name == PreloadedEvent::HeapSnapshot.name());
    if args.snapshot.is_some() && !has_snapshot {
        let name = PreloadedEvent::HeapSnapshot.name().to_owned();
        specs.push(EventSpec { name, ..EventSpec::default() });
    }
    let preload =
        PreloadPlan::split(&mut specs).map_err(|reason| anyhow::anyhow!("-e: {reason}"))?;
    let mut plan = plan(args, &specs, &target, &Kernel { group: group.as_ref() }, cpus[0])?;
    let preload = preload.map(|events| Preload::prepare(events, &plan, args)).transpose()?;
    let tracer = load_tracer(args, &mut plan)?;
    let kept = match &args.keep_images {
        Some(directory) => Some(
            KeptImages::create(directory)
                .with_context(|| format!("--keep-images: cannot create {}", directory.display()))?,
        ),
        None => None,
    };
    // Opening a FIFO blocks until it has a reader. Ctrl-C must still end us then, so signals are
    // blocked afterwards.
    let opened = destination.open_early()?;
    let signals = Rc::new(Signals::block().context("cannot receive signals")?);
    let opened = opened.into();
    let kept = kept.into();
    let samples_kernel = plan.common.scope != CpuMode::User;
    let kernel = Cell::new(samples_kernel.then(RunningKernel::before_sampling));
    let waiting = Cell::new(wait_state(&plan)?);
    let invocation = Invocation {
        args,
        destination,
        opened,
        target,
        cpus,
        group,
        plan,
        kernel,
        signals,
        kept,
        preload,
        waiting,
        tracer,
        priority: Cell::new(Priority::Ordinary),
    };
    match &invocation.target {
        Target::Command(_) => invocation.launch(),
        _ => invocation.attach(),
    }
}

/// Loads the BPF programs that measure waiting, if an event needs them. Without them, the plan is
/// changed to measure waiting by records of context switches.
///
/// # Errors
///
/// If wake-ups are recorded: only the programs see them.
fn load_tracer(args: &Args, plan: &mut Plan) -> anyhow::Result<Option<Rc<WaitTracer>>> {
    let Some(config) = plan.wait_config() else { return Ok(None) };
    let last_cpu = machine::online_cpus().last().copied().unwrap_or(0);
    let loaded = WaitTracer::load(config, last_cpu)
        .and_then(|tracer| tracer.try_start().map(|()| Rc::new(tracer)));
    match loaded {
        Ok(tracer) => Ok(Some(tracer)),
        Err(error) if config.has_wakes => Err(error),
        Err(error) => {
            let highest = if args.frequency.is_some() { u64::MAX } else { TICKS_PER_SECOND };
            plan.measure_waits_by_switches(&format!("bpf: {}", error.root_cause()), highest);
            Ok(None)
        }
    }
}

/// Returns the state of the events that measure waiting. None without them.
///
/// # Errors
///
/// If there are no random bits, or interrupts cannot be recognized.
fn wait_state(plan: &Plan) -> anyhow::Result<Option<WaitState>> {
    let event = |kind| plan.waiting(kind).map(|(event, period)| WaitEvent { event, period });
    let (blocked, runnable) = (event(Waiting::Blocked), event(Waiting::Runnable));
    if blocked.or(runnable).is_none() {
        return Ok(None);
    }
    let wakes = event(Waiting::Wakes);
    let is_without_kernel = |(event, _): (EventId, u64)| {
        let scope = plan.events[event.0 as usize - 1].scope;
        scope == CpuMode::User || !plan.common.has_callchain()
    };
    if plan.waiting(Waiting::Wakes).is_some_and(is_without_kernel) {
        bail!(
            "-e wakes: wake-ups by interrupts are recognized by the kernel's part of stacks; leave out \
             /u, --user-only and --unwind none"
        );
    }
    let random = Random::new(sys::random().context("cannot get random bits")?);
    let symbols = fs::File::open("/proc/kallsyms").map(BufReader::new);
    let symbols = symbols.map(WaitSymbols::read).unwrap_or_default();
    if wakes.is_some() && symbols.interrupts.is_empty() {
        bail!(
            "-e wakes: the kernel hides its addresses, so that wake-ups by interrupts are not \
             recognized; run as root, with sysctl kernel.kptr_restrict below 2"
        );
    }
    let mut state = WaitState::new(blocked, runnable, wakes, random, symbols);
    state.leaf_only = plan.common.unwind == StackMode::None;
    state.switches = plan.waits_by_switches.then(SwitchTimes::default);
    Ok(Some(state))
}

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

/// Prints the number of descendants that are not recorded, if there are any.
fn print_excluded(descendants: usize) {
    match descendants {
        0 => {}
        1 => print_message("1 existing descendant is not recorded; --descendants records it"),
        _ => print_message(&format!(
            "{descendants} existing descendants are not recorded; --descendants records them"
        )),
    }
}

/// Prints the list of events and returns the exit status.
fn list() -> anyhow::Result<u8> {
    let paranoid = machine::sysctl("kernel/perf_event_paranoid").parse().ok();
    let kernel = Kernel { group: None };
    let cpus = machine::online_cpus();
    let try_open = |config: &PerfEventConfig| plan::try_open(&kernel, config, cpus[0]);
    let mut listed = event::list(&Catalog::of_this_machine(), try_open, paranoid);
    // The event that the programs write to can be opened without these.
    if let Err(error) = WaitTracer::check() {
        for line in listed.iter_mut().filter(|line| line.is_available_wait()) {
            line.state = match line.needs_bpf() {
                true => Err(format!("{error:#}")),
                false => Ok("by context switches".to_owned()),
            };
        }
    }
    // A closed pipe (`nprof-record -l | head`) is no failure.
    match io::stdout().write_all(event::print(&listed).as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the list")
        }
        _ => Ok(0),
    }
}

/// Plans the events of the command line, and prints warnings about the plan.
fn plan(
    args: &Args,
    specs: &[EventSpec],
    target: &Target,
    kernel: &Kernel<'_>,
    cpu: u32,
) -> anyhow::Result<Plan> {
    let mut request = request(args, specs, target)?;
    check_rate(&request)?;
    let mut plan = match open_plan(&request, kernel, cpu) {
        // The library needs no right of the kernel.
        Err(_) if request.events.is_empty() => return Ok(Plan::without_kernel(&request)),
        opened => opened?,
    };
    // Rings of all CPUs then overflow by the samples of other programs.
    let is_choice = request.open_modes.contains(&OpenMode::Task);
    let has_samples = !request.events.is_empty();
    if plan.common.open_mode == OpenMode::System
        && is_choice
        && has_samples
        && load::must_wait_for_cpu(machine::online_cpus().len())
    {
        request.open_modes = vec![OpenMode::Task];
        plan = open_plan(&request, kernel, cpu)?;
        print_message(
            "busy machine: most of the work of short-lived processes and threads will be missing; \
             run as root or with CAP_SYS_NICE to record it, or select --follow system",
        );
    }
    let reads_register = |planned: &PlannedEvent| {
        let fields = planned.event.configs.iter().filter_map(|config| config.field);
        fields.into_iter().any(|field| matches!(field, WeightField::Register(_)))
    };
    if let Some(planned) = plan.events.iter().find(|planned| reads_register(planned))
        && plan.common.unwind != StackMode::Dwarf
    {
        bail!("{}: registers are read with --unwind dwarf only", planned.requested_name);
    }
    let is_without_frequency = |(wanted, chosen): (&RequestedEvent, &PlannedEvent)| {
        wanted.period.is_some() || chosen.event.rate == EventRate::EveryEvent
    };
    if args.frequency.is_some() && request.events.iter().zip(&plan.events).all(is_without_frequency)
    {
        print_message("-F is not used: each event has a period of its own");
    }
    if has_samples
        && plan.common.open_mode == OpenMode::Task
        && request.open_modes.contains(&OpenMode::System)
    {
        let loses_kernel = request.scope == CpuMode::Both && plan.common.scope == CpuMode::User;
        let kernel = if loses_kernel { "the kernel and " } else { "" };
        print_message(&format!(
            "not privileged: {kernel}most of the work of short-lived processes and threads will be \
             missing; run as root or with CAP_PERFMON to record it"
        ));
    }
    Ok(plan)
}

fn open_plan(request: &Request, kernel: &Kernel<'_>, cpu: u32) -> anyhow::Result<Plan> {
    plan::plan(kernel, request, cpu).map_err(|refusal| {
        let paranoid = machine::sysctl("kernel/perf_event_paranoid").parse().ok();
        anyhow::anyhow!(refusal.explain(paranoid, !request.open_modes.contains(&OpenMode::Task)))
    })
}

/// Looks up the events of the command line, and collects the options for them.
fn request(args: &Args, specs: &[EventSpec], target: &Target) -> anyhow::Result<Request> {
    let catalog = Catalog::of_this_machine();
    let mut events = Vec::new();
    for spec in specs {
        let mut candidates =
            catalog.candidates(spec).map_err(|reason| anyhow::anyhow!("-e: {reason}"))?;
        let mut period = spec.period.or(args.count);
        // The kernel counts events, not the values of their fields.
        for candidate in candidates.iter_mut().filter(|candidate| candidate.is_weighed()) {
            candidate.value_period = period.take();
        }
        events.push(RequestedEvent {
            name: spec.name.clone(),
            candidates,
            period,
            scope: spec.mode,
        });
    }
    Ok(Request {
        events,
        frequency: args.frequency(),
        unwind: args.unwind(),
        stack_size: args.stack_size,
        scope: args.mode(),
        open_modes: target.open_modes(args.follow),
        delayed: args.times().delay.is_some(),
    })
}

/// Checks the sampling rates against the kernel's limit.
///
/// # Errors
///
/// If an event exceeds it. The kernel refuses such a frequency, and throttles such a period.
fn check_rate(request: &Request) -> anyhow::Result<()> {
    let setting = machine::sysctl("kernel/perf_event_max_sample_rate");
    let Ok(highest) = setting.parse::<u64>() else { return Ok(()) };
    for wanted in &request.events {
        let rate = wanted.rate().unwrap_or(request.frequency);
        if rate > highest {
            bail!(
                "{}: {rate} samples per second exceed the kernel's limit of {highest}; lower the \
                 rate or raise sysctl kernel.perf_event_max_sample_rate",
                wanted.name
            );
        }
    }
    Ok(())
}

/// Adds running processes to the converter. Their sideband events are enabled already.
fn add_running(converter: &mut Converter<Stream>, running: &RunningProcesses) {
    let recorded = running.recorded();
    for &pid in &recorded {
        converter.add_existing_process(pid);
        converter.read_maps(pid);
    }
    for &pid in running.excluded() {
        converter.exclude(pid);
    }
    // Children that were forked after `Target::find` and before the sideband was enabled.
    for pid in procfs::descendants(&recorded, &running.known()) {
        converter.add_existing_process(pid);
    }
}

/// The open sources of a recording. The kernel has none if no event needs it.
struct Sources {
    rings: Option<RingSet>,
    waits: Option<WaitMeter>,
}

/// The library that the command loads, and its connection to the recorder.
struct Preload {
    events: PreloadPlan,
    environment: Vec<CString>,
    listener: Cell<Option<Listener>>,
}

impl Preload {
    /// Installs the library, and opens the socket that processes connect to.
    ///
    /// # Errors
    ///
    /// If the target is not a command, or the library or the socket cannot be made.
    fn prepare(mut events: PreloadPlan, plan: &Plan, args: &Args) -> anyhow::Result<Self> {
        if args.command.is_empty() {
            bail!(
                "heap and fd events need a command: the library that records them is loaded when a \
                 program starts"
            );
        }
        events.number_after(plan.events.len());
        let library = library::install()?;
        let listener = Listener::bind().context("cannot open a socket for the library")?;
        let heap_period = match events.heap_period {
            _ if !events.has_heap() => 0,
            HeapPeriod::Fixed(bytes) => bytes,
            HeapPeriod::Adaptive(_) => FIRST_PERIOD,
        };
        let settings = Settings {
            socket: listener.name(),
            heap_period,
            stack_bytes: args.stack_size,
            ring_bytes: RING_BYTES,
            descriptors: events.has_descriptors(),
            // A lost release would look like a leak.
            wait: true,
            // Without records of mappings they must be read before it exits.
            acknowledge: !plan.has_records,
        };
        let environment = environment::with_library(std::env::vars_os(), &library, &settings);
        Ok(Self { events, environment, listener: Cell::new(Some(listener)) })
    }
}

/// One invocation of the tool, ready to record.
struct Invocation<'a> {
    args: &'a Args,
    destination: Destination,
    waiting: Cell<Option<WaitState>>,
    /// The BPF programs that measure waiting, if they do.
    tracer: Option<Rc<WaitTracer>>,
    /// The output. None if its name contains the pid of the command, which does not run yet.
    opened: Cell<Option<OpenOutput>>,
    target: Target,
    cpus: Vec<u32>,
    /// The directory of the control group.
    group: Option<std::fs::File>,
    plan: Plan,
    /// The kernel as it was before sampling. None if it is not sampled.
    kernel: Cell<Option<RunningKernel>>,
    signals: Rc<Signals>,
    /// The priority of this process.
    priority: Cell<Priority>,
    /// The directory of copied images.
    kept: Cell<Option<KeptImages>>,
    /// The library that the command loads; `None` if no event needs it.
    preload: Option<Preload>,
}

impl Invocation<'_> {
    /// Starts the command and records it.
    fn launch(self) -> anyhow::Result<u8> {
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
        let recorded = self.record(sources, output, &workload, tree);
        workload.wait(&self.signals).context("cannot wait for the command")?;
        Ok(self.finish(&workload, recorded, pid))
    }

    /// Records running processes.
    fn attach(self) -> anyhow::Result<u8> {
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
        let recorded = self.record(sources, output, &workload, tree);
        Ok(self.finish(&workload, recorded, pid))
    }

    /// Returns the unknown tasks that belong to the target.
    fn membership(&self) -> Membership {
        match self.plan.common.open_mode {
            OpenMode::System => Membership::Descendants,
            OpenMode::Group | OpenMode::Task => Membership::AllWithRecords,
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
        // First, as the rings of samples take all the memory that may be locked.
        let waits = self.open_meter(open_target)?;
        let has_records = self.plan.has_records;
        let open = || RingSet::open(&self.plan, &self.cpus, open_target, self.tracer.as_ref());
        let rings = has_records.then(open).transpose()?;
        let sources = Sources { rings, waits };
        let output = match self.opened.take() {
            Some(opened) => opened,
            None => self.destination.open(pid)?,
        };
        if !self.is_delayed() {
            self.start_waits(&sources, pid)?;
        }
        // The command is forked by now, so it does not inherit the priority.
        self.priority.set(sys::raise_priority());
        // Inherited events of a command start at its exec (`attr.enable_on_exec`).
        if let Some(rings) = &sources.rings
            && (open_mode != OpenMode::Task || !matches!(self.target, Target::Command(_)))
        {
            // Processes must be known before their samples. Reading thousands of threads takes long
            // enough to fill a ring: only sideband events start here, samples after that.
            let samples = !self.is_delayed() && !matches!(self.target, Target::Processes(_));
            rings.enable(samples).context("cannot enable an event")?;
            if let Some(WaitMeter::Switches(tracer)) = sources.waits.as_ref().filter(|_| samples) {
                tracer.borrow().enable().context("cannot enable an event")?;
            }
        }
        Ok((sources, output))
    }

    /// Opens the measurement of waiting. None if no event needs it.
    fn open_meter(&self, open_target: OpenTarget<'_>) -> anyhow::Result<Option<WaitMeter>> {
        if let Some(tracer) = &self.tracer {
            return Ok(Some(WaitMeter::Bpf(tracer.clone())));
        }
        let Some((event, period)) = self.plan.first_wait() else { return Ok(None) };
        let tracer = SwitchTracer::open(&self.plan.common, open_target, event, period)?;
        Ok(Some(WaitMeter::Switches(Rc::new(RefCell::new(tracer)))))
    }

    /// Starts to measure the waiting of the target, if an event needs it.
    fn start_waits(&self, sources: &Sources, pid: u32) -> anyhow::Result<()> {
        let waits = match &sources.waits {
            Some(WaitMeter::Bpf(waits)) => waits,
            // The threads of running processes are those at the time at which its events are enabled.
            Some(WaitMeter::Switches(tracer)) if !matches!(self.target, Target::Processes(_)) => {
                tracer.borrow_mut().begin(self.target.threads());
                return Ok(());
            }
            _ => return Ok(()),
        };
        waits.start()?;
        if let Target::Command(_) = &self.target {
            return waits.follow_command(pid);
        }
        // Each pass finds threads that were created by others before these were followed.
        for _ in 0..THREAD_SCANS {
            waits.follow(self.target.threads())?;
        }
        Ok(())
    }

    /// Records until the end of the target.
    fn record(
        &self,
        sources: Sources,
        output: OpenOutput,
        workload: &Rc<Workload>,
        tree: ProcessTree,
    ) -> anyhow::Result<Outcome> {
        let stream = output.begin(workload.clone(), self.signals.clone());
        let mut stream = stream.context("cannot write the stream")?;
        stream.take(&Record::Head(Box::new(header::head(self.target.described(self.args))?)));
        stream.take(&Record::Step(Box::new(header::step())));
        let mut converter = Converter::new(stream, self.stream_events(), self.args.depth(), tree);
        // A recorder that is killed early leaves a stream that names its command.
        converter.sink.flush();
        if let Some(kernel) = self.kernel.take() {
            converter.set_kernel(kernel);
        }
        converter.keep_images(self.kept.take());
        let Sources { mut rings, waits } = sources;
        if let Some(rings) = &rings {
            rings.enable_stack_copies(&mut converter);
        }
        if let Some(events) = value_events(&self.plan)? {
            converter.set_value_events(events);
        }
        if let Some(preload) = &self.preload {
            let has_records = self.plan.has_records;
            converter.set_allocations(AllocationState::new(preload.events.clone()), has_records);
        }
        if let Some(state) = self.waiting.take() {
            converter.set_waiting(state);
        }
        if let Target::Processes(running) = &self.target {
            if let Some(rings) = &mut rings {
                rings.expect_quiet();
            }
            add_running(&mut converter, running);
            if let Some(rings) = &rings
                && !self.is_delayed()
            {
                rings.enable(true).context("cannot enable an event")?;
                if let Some(WaitMeter::Switches(tracer)) = &waits {
                    tracer.borrow_mut().begin(self.target.threads());
                    tracer.borrow().enable().context("cannot enable an event")?;
                }
            }
        }
        let recording = Recording {
            plan: self.plan.clone(),
            sources: self.sources(rings, waits.as_ref()),
            waits,
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
        header::events(&self.plan, self.preload.as_ref().map(|preload| &preload.events))
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
        if let Some(preload) = &self.preload
            && let Some(listener) = preload.listener.take()
        {
            sources.push(Box::new(PreloadSource::new(listener, preload.events.clone())));
        }
        SourceSet(sources)
    }

    /// Prints the reason why the command was not executed; returns the exit status.
    fn not_executed(&self, error: &io::Error) -> u8 {
        let name = escaped(self.args.command[0].as_encoded_bytes());
        let is_missing = error.raw_os_error() == Some(libc::ENOENT);
        let why = if is_missing { "command not found".to_owned() } else { error.to_string() };
        print_message(&format!("{name}: {why}"));
        if is_missing { 127 } else { 126 }
    }

    /// Prints the summary and warnings; returns the exit status.
    fn finish(&self, workload: &Workload, recorded: anyhow::Result<Outcome>, pid: u32) -> u8 {
        let status = workload.status();
        // A failure of the command takes precedence over ours.
        let failed = if status == 0 { FAILURE } else { status };
        let outcome = match recorded {
            Ok(outcome) => outcome,
            Err(error) => {
                print_message(&format!("{error:#}"));
                return failed;
            }
        };
        let was_written = match outcome.error {
            None => true,
            // The reader has seen enough, as in `| head`: no failure.
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => return status,
            Some(error) => {
                print_message(&format!("cannot write the stream: {error}; it is truncated"));
                false
            }
        };
        let kept = outcome.kept.iter().flat_map(KeptSummary::warnings);
        for line in outcome.summary.warnings().into_iter().chain(kept) {
            print_message(&line);
        }
        if !self.args.quiet {
            for line in outcome.summary.remarks() {
                print_message(&line);
            }
            let name = self.destination.chosen_name(pid);
            let mut into = name.map_or_else(String::new, |name| format!("; wrote {name}"));
            if let Some(kept) = &outcome.kept {
                into = format!("{into}; {}", kept.line());
            }
            print_message(&format!("{}{into}", outcome.summary.line()));
        }
        if was_written { status } else { failed }
    }
}
