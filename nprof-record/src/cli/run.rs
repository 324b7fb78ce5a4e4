//! One run of the tool: starts the parts in order.

use std::cell::Cell;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, bail};
use nprof_cli::usage;
use nprof_unwind::arch::{Architecture, Native};

use crate::cli::args::Args;
use crate::cli::counting::load_calls;
use crate::cli::invocation::Invocation;
use crate::cli::list::list;
use crate::cli::message::{FAILURE, TOOL, print_message};
use crate::cli::plan::plan;
use crate::cli::preload::Preload;
use crate::cli::target::Target;
use crate::cli::waiting::{load_tracer, wait_state};
use crate::event::{CpuMode, EventSpec, PreloadPeriod, PreloadPlan, PreloadedEvent, Subject};
use crate::image::kept_images::KeptImages;
use crate::image::kernel::running_kernel::RunningKernel;
use crate::os::machine;
use crate::perf::open::Kernel;
use crate::session::output::Destination;
use crate::sys::{Priority, Signals};

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

/// Executes a parsed command line and returns the exit status.
///
/// # Errors
///
/// If the recording could not be started.
fn run(args: &Args) -> anyhow::Result<u8> {
    // A variable of the main thread.
    Native::set_machine((&raw const args).addr() as u64);
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
    let preload = PreloadPlan::split(&mut specs, PreloadPeriod::of_all(args.count, args.frequency))
        .map_err(|reason| anyhow::anyhow!("-e: {reason}"))?;
    if args.calls.is_some() && preload.as_ref().is_some_and(|plan| plan.has(Subject::Calls)) {
        bail!(
            "-e calls has the calls of functions that the compiler instrumented, --calls those of a list: reports \
             would add both; choose one"
        );
    }
    let calls = load_calls(args)?;
    let counted = calls.as_ref().map(|calls| calls.list.mode());
    let kernel = Kernel { group: group.as_ref() };
    let mut plan = plan(args, &specs, &target, counted, &kernel, &cpus, preload.as_ref())?;
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
    if let Some(calls) = &calls {
        calls.measure_cost();
    }
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
        calls,
        priority: Cell::new(Priority::Ordinary),
    };
    match &invocation.target {
        Target::Command(_) => invocation.launch(),
        _ => invocation.attach(),
    }
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
