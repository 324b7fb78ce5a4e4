//! Prepares the measurement of waiting.

use std::fs;
use std::io::BufReader;
use std::rc::Rc;

use anyhow::{Context, bail};
use nprof_stream::EventId;

use crate::cli::args::Args;
use crate::convert::switches::SwitchTimes;
use crate::convert::waits::{Random, WaitEvent, WaitState};
use crate::event::{CpuMode, StackMode, Waiting};
use crate::image::kernel::kallsyms::WaitSymbols;
use crate::os::machine;
use crate::perf::bpf::symbol_lookup::SymbolLookup;
use crate::perf::loaded_code::CodeListener;
use crate::perf::plan::Plan;
use crate::perf::waits::tracer::WaitTracer;
use crate::sys;

/// The looks per second at blocked threads without BPF programs, unless another frequency is
/// requested. Each wakes the recorder.
const TICKS_PER_SECOND: u64 = 250;

/// Loads the BPF programs that measure waiting, if an event needs them. Without them, the plan is
/// changed to measure waiting by records of context switches.
///
/// # Errors
///
/// If wake-ups are recorded, or windows are requested: only the programs can.
pub(crate) fn load_tracer(args: &Args, plan: &mut Plan) -> anyhow::Result<Option<Rc<WaitTracer>>> {
    plan.wait_windows = args.wait_windows;
    plan.omits_cpus = args.cpus.is_some();
    let Some(config) = plan.wait_config() else {
        if args.wait_windows.is_some() {
            bail!("--wait-windows: no event of waiting is recorded; add -e wait or -e wall");
        }
        return Ok(None);
    };
    if config.has_windows && config.has_wakes {
        bail!("--wait-windows: -e wakes needs both ends of each wait; leave out one of them");
    }
    let last_cpu = machine::online_cpus().last().copied().unwrap_or(0);
    let listener = CodeListener::open(&plan.common);
    let loaded = WaitTracer::load(config, last_cpu).and_then(|mut tracer| {
        tracer.try_start()?;
        tracer.code = listener.map(CodeListener::take).unwrap_or_default();
        Ok(Rc::new(tracer))
    });
    match loaded {
        Ok(tracer) => Ok(Some(tracer)),
        Err(error) if config.has_wakes => Err(error.context("-e wakes")),
        Err(error) if config.has_windows => Err(error.context("--wait-windows")),
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
pub(crate) fn wait_state(plan: &Plan) -> anyhow::Result<Option<WaitState>> {
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
    let samples_kernel = plan.common.scope != CpuMode::User;
    let symbols =
        if samples_kernel { wait_symbols(wakes.is_some()) } else { WaitSymbols::default() };
    if wakes.is_some() && symbols.interrupts.is_empty() {
        bail!(
            "-e wakes: the kernel hides its addresses, so that wake-ups by interrupts are not \
             recognized; run as root, with sysctl kernel.kptr_restrict below 2"
        );
    }
    let mut state = WaitState::new(blocked, runnable, wakes, random, symbols);
    state.leaf_only = plan.common.unwind == StackMode::None;
    state.timer = plan.measured_timer().map(|(event, _)| event);
    if let Some(windows) = plan.wait_windows {
        (state.window, state.scale) = (Some(0..0), windows.of);
    }
    state.switches = plan.waits_by_switches.then(SwitchTimes::default);
    Ok(Some(state))
}

/// Returns the functions of the kernel by which stacks are cut, with those of wake-ups if they are
/// recorded.
fn wait_symbols(has_wakes: bool) -> WaitSymbols {
    // The lookup knows no ends of functions, which wake-ups need.
    let lookup = if has_wakes { None } else { SymbolLookup::load() };
    let scheduler = lookup
        .and_then(|it| Some(it.address("__sched_text_start")?..it.address("__sched_text_end")?));
    if let Some(scheduler) = scheduler {
        return WaitSymbols { scheduler, ..WaitSymbols::default() };
    }
    let symbols = fs::File::open("/proc/kallsyms").map(BufReader::new);
    symbols.map(WaitSymbols::read).unwrap_or_default()
}
