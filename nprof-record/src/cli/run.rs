//! A run from the outside: what is started in which order, what is said on standard error, and
//! with which status it ends.

use std::cell::Cell;
use std::io::{self, Write};
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, bail};
use nprof_cli::usage;
use nprof_stream::Record;
use nprof_stream::escape::escaped;

use crate::cli::args::Args;
use crate::cli::target::Target;
use crate::convert::converter::Converter;
use crate::convert::dictionary::Sink;
use crate::convert::process_tree::ProcessTree;
use crate::event::{self, Asked, Catalog, Encoding, Pace, Scope};
use crate::os::machine;
use crate::os::procfs;
use crate::perf::open::{Kernel, Whom};
use crate::perf::plan::{self, OpenMode, Plan, PlannedEvent, Request, RequestedEvent};
use crate::perf::ring_set::RingSet;
use crate::session::header;
use crate::session::launch::ForkedCommand;
use crate::session::output::{Destination, OpenOutput};
use crate::session::recording::{Outcome, Recording};
use crate::session::workload::Workload;
use crate::sys::{self, Signals};

/// What messages begin with.
const TOOL: &str = "nprof-record";

/// The exit status of the recorder's own failures, as env(1) has it.
const FAILURE: u8 = 125;

/// Runs the command line, and gives the status to exit with.
pub fn main() -> ExitCode {
    let args: Args = match usage::arguments_or(TOOL, FAILURE) {
        Ok(args) => args,
        Err(end) => return end,
    };
    match run(&args) {
        Ok(status) => status.into(),
        Err(error) => {
            say(&format!("{error:#}"));
            FAILURE.into()
        }
    }
}

/// Says something on standard error, on one line.
pub(crate) fn say(message: &str) {
    // There is nobody to tell when this cannot be said.
    let _ = writeln!(io::stderr(), "{TOOL}: {message}");
}

/// Records what the command line says. Gives the status to exit with.
///
/// # Errors
///
/// What kept the recording from being started at all.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    if args.list {
        return list();
    }
    let destination = match Destination::for_option(args.output.as_deref()) {
        Ok(destination) => destination,
        Err(usage) => bail!(usage),
    };
    let target = Target::find(args)?;
    let cpus = args.cpus.as_ref().map_or_else(machine::online_cpus, |cpus| cpus.0.clone());
    let group = target.group()?;
    let plan = plan(args, &target, &Kernel { group: group.as_ref() }, cpus[0])?;
    // Opening a pipe waits for its reader: that must be over before we take to reading signals.
    let opened = destination.open_early()?;
    let signals = Rc::new(Signals::block().context("cannot receive signals")?);
    let run = Run { args, destination, opened: opened.into(), target, cpus, group, plan, signals };
    match &run.target {
        Target::Command(_) => run.launch(),
        _ => run.attach(),
    }
}

/// Prints the events of this machine.
fn list() -> anyhow::Result<u8> {
    let paranoid = machine::setting("kernel/perf_event_paranoid").parse().ok();
    let kernel = Kernel { group: None };
    let cpus = machine::online_cpus();
    let try_open = |encoding: &Encoding| plan::try_open(&kernel, encoding, cpus[0]);
    let listed = event::list(&Catalog::of_this_machine(), try_open, paranoid);
    match io::stdout().write_all(event::print(&listed).as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the list")
        }
        _ => Ok(0),
    }
}

fn plan(args: &Args, target: &Target, kernel: &Kernel<'_>, cpu: u32) -> anyhow::Result<Plan> {
    let catalog = Catalog::of_this_machine();
    let wanted = |asked: &Asked| {
        let candidates = catalog.candidates(asked).map_err(|why| anyhow::anyhow!("-e: {why}"))?;
        let (name, interval, scope) = (asked.name.clone(), asked.interval, asked.scope);
        anyhow::Ok(RequestedEvent { name, candidates, interval, scope })
    };
    let request = Request {
        events: args.event.iter().map(wanted).collect::<Result<_, _>>()?,
        frequency: args.frequency(),
        unwind: args.unwind(),
        stack_size: args.stack_size,
        scope: args.sampled(),
        open_modes: target.open_modes(args.scope),
        delayed: args.times().delay.is_some(),
    };
    check_rate(args.frequency(), &request)?;
    let plan = plan::plan(kernel, &request, cpu).map_err(|refusal| {
        let paranoid = machine::setting("kernel/perf_event_paranoid").parse().ok();
        anyhow::anyhow!(refusal.explain(paranoid, !request.open_modes.contains(&OpenMode::Task)))
    })?;
    let mut events = args.event.iter().zip(&plan.events);
    let has_own = |(asked, chosen): (&Asked, &PlannedEvent)| {
        asked.interval.is_some() || chosen.event.pace == Pace::Each
    };
    if args.frequency.is_some() && events.all(has_own) {
        say("-F is not used: each event is sampled by an interval of its own");
    }
    if plan.common.open_mode == OpenMode::Task && request.open_modes.contains(&OpenMode::System) {
        let kernel = match (request.scope, plan.common.scope) {
            (Scope::Both, Scope::User) => "the kernel and ",
            _ => "",
        };
        say(&format!(
            "not privileged: {kernel}most of what short-lived processes and threads do will not \
             be seen (run as root or with CAP_PERFMON to see it)"
        ));
    }
    Ok(plan)
}

/// Refuses what the kernel would not let through, or only slow the machine down with.
fn check_rate(frequency: u64, request: &Request) -> anyhow::Result<()> {
    let setting = machine::setting("kernel/perf_event_max_sample_rate");
    let Ok(highest) = setting.parse::<u64>() else { return Ok(()) };
    for wanted in &request.events {
        let rate = wanted.rate().unwrap_or(frequency);
        if rate > highest {
            bail!(
                "{}: {rate} samples per second are asked for, the kernel allows {highest} \
                 (sysctl kernel.perf_event_max_sample_rate)",
                wanted.name
            );
        }
    }
    Ok(())
}

/// A recording about to begin.
struct Run<'a> {
    args: &'a Args,
    destination: Destination,
    /// The output, where it could be opened before.
    opened: Cell<Option<OpenOutput>>,
    target: Target,
    cpus: Vec<u32>,
    /// The control group's directory.
    group: Option<std::fs::File>,
    plan: Plan,
    signals: Rc<Signals>,
}

impl Run<'_> {
    /// Starts a command and records it.
    fn launch(self) -> anyhow::Result<u8> {
        let descriptors = sys::raise_descriptor_limit();
        let output_to_error = self.destination == Destination::Stdout;
        let waiting =
            ForkedCommand::fork(&self.args.command, output_to_error, &self.signals, descriptors)?;
        let pid = waiting.pid as u32;
        let (rings, output) = match self.prepare(Whom::Task(pid), pid) {
            Ok(prepared) => prepared,
            Err(error) => {
                waiting.cancel();
                return Err(error);
            }
        };
        let workload = match waiting.execute() {
            Ok(child) => Rc::new(Workload::command(child)),
            Err(error) => {
                output.abandon();
                return Ok(self.not_executed(&error));
            }
        };
        let recorded = self.record(rings, output, &workload, ProcessTree::for_command(pid));
        workload.wait(&self.signals).context("cannot wait for the command")?;
        Ok(self.finish(&workload, recorded, pid))
    }

    /// Records what is there.
    fn attach(self) -> anyhow::Result<u8> {
        sys::raise_descriptor_limit();
        let (workload, tree, whom) = match &self.target {
            Target::Processes(pids) => {
                (Workload::processes(pids), ProcessTree::default(), Whom::Processes(pids))
            }
            _ => (Workload::everyone(), ProcessTree::for_system(), Whom::Everyone),
        };
        let pid = match &self.target {
            Target::Processes(pids) => pids[0],
            _ => std::process::id(),
        };
        let (rings, output) = self.prepare(whom, pid)?;
        let workload = Rc::new(workload);
        let recorded = self.record(rings, output, &workload, tree);
        Ok(self.finish(&workload, recorded, pid))
    }

    fn is_delayed(&self) -> bool {
        self.args.times().delay.is_some()
    }

    /// Opens the events, for `whom` where not for all CPUs, and the output.
    fn prepare(&self, whom: Whom<'_>, pid: u32) -> anyhow::Result<(RingSet, OpenOutput)> {
        let open_mode = self.plan.common.open_mode;
        let whom = match (open_mode, &self.group) {
            (OpenMode::System, _) => Whom::Everyone,
            (OpenMode::Group, Some(group)) => Whom::Group(group),
            _ => whom,
        };
        if let Target::Command(Some(own)) = &self.target {
            own.enter(pid as i32)?;
        }
        let rings = RingSet::open(&self.plan, &self.cpus, whom)?;
        let output = match self.opened.take() {
            Some(opened) => opened,
            None => self.destination.open(pid)?,
        };
        // What is inherited by a command begins by itself when it executes.
        if open_mode != OpenMode::Task || !matches!(self.target, Target::Command(_)) {
            // Processes are to be known before there are samples of them: to read of thousands of
            // threads takes long enough to fill a ring.
            let samples = !self.is_delayed() && !matches!(self.target, Target::Processes(_));
            rings.enable(samples).context("cannot enable an event")?;
        }
        Ok((rings, output))
    }

    fn record(
        &self,
        rings: RingSet,
        output: OpenOutput,
        workload: &Rc<Workload>,
        tree: ProcessTree,
    ) -> anyhow::Result<Outcome> {
        let stream = output.begin(workload.clone(), self.signals.clone());
        let mut stream = stream.context("cannot write the stream")?;
        stream.take(&Record::Head(Box::new(header::head(self.target.described(self.args))?)));
        stream.take(&Record::Step(Box::new(header::step())));
        let (unwind, depth) = (self.plan.common.unwind, self.args.depth());
        let mut converter = Converter::new(stream, header::events(&self.plan), unwind, depth, tree);
        rings.enable_stack_copies(&mut converter);
        if let Target::Processes(pids) = &self.target {
            for &pid in pids {
                procfs::threads(pid)
                    .into_iter()
                    .for_each(|tid| converter.add_existing_thread(pid, tid));
                converter.read_maps(pid);
            }
            if !self.is_delayed() {
                rings.enable(true).context("cannot enable an event")?;
            }
        }
        let recording = Recording {
            plan: self.plan.clone(),
            rings,
            converter,
            workload: workload.clone(),
            signals: self.signals.clone(),
            times: self.args.times(),
            cpu_time_scope: self.target.cpu_time_scope(&self.cpus),
        };
        recording.run().context("cannot wait for events")
    }

    fn not_executed(&self, error: &io::Error) -> u8 {
        let name = escaped(self.args.command[0].as_encoded_bytes());
        let is_missing = error.raw_os_error() == Some(libc::ENOENT);
        let why = if is_missing { "command not found".to_owned() } else { error.to_string() };
        say(&format!("{name}: {why}"));
        if is_missing { 127 } else { 126 }
    }

    /// Says what there is to say, and gives the status to exit with.
    fn finish(&self, workload: &Workload, recorded: anyhow::Result<Outcome>, pid: u32) -> u8 {
        let status = workload.status();
        let failed = if status == 0 { FAILURE } else { status };
        let outcome = match recorded {
            Ok(outcome) => outcome,
            Err(error) => {
                say(&format!("{error:#}"));
                return failed;
            }
        };
        let was_written = match outcome.error {
            None => true,
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => return status,
            Some(error) => {
                say(&format!("cannot write the stream: {error}; it ends early"));
                false
            }
        };
        for line in outcome.summary.warnings() {
            say(&line);
        }
        if !self.args.quiet {
            let name = self.destination.chosen_name(pid);
            let into = name.map_or_else(String::new, |name| format!("; wrote {name}"));
            say(&format!("{}{into}", outcome.summary.line()));
        }
        if was_written { status } else { failed }
    }
}
