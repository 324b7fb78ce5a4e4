//! Prepares the counts of calls.

use std::rc::Rc;

use anyhow::{Context, bail};

use crate::cli::args::Args;
use crate::os::machine;
use crate::perf::calls::points::PointList;
use crate::perf::calls::routines::CountedEvent;
use crate::perf::calls::tracer::CallTracer;

/// Loads the BPF programs that count calls, and an event by routine, if the command line has a list of
/// functions.
///
/// # Errors
///
/// If the list cannot be read, the event cannot be opened, or the programs cannot be loaded.
pub(crate) fn load_calls(args: &Args) -> anyhow::Result<Option<Rc<CallTracer>>> {
    let Some(path) = &args.calls else { return Ok(None) };
    if path.as_os_str() == "-" && !args.command.is_empty() {
        bail!("--calls: the command reads standard input; write the list to a file");
    }
    let list = PointList::read(path)?;
    let cpus = machine::online_cpus();
    let counted = match &args.calls_event {
        Some(spec) => {
            list.check_ends()?;
            Some(CountedEvent::open(spec, args.mode(), &cpus).context("--calls-event")?)
        }
        None => None,
    };
    let last_cpu = cpus.last().copied().unwrap_or(0);
    Ok(Some(Rc::new(CallTracer::load(list, counted, last_cpu)?)))
}
