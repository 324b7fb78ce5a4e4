//! Prepares the counts of calls.

use std::rc::Rc;

use anyhow::bail;

use crate::cli::args::Args;
use crate::os::machine;
use crate::perf::calls::points::PointList;
use crate::perf::calls::tracer::CallTracer;

/// Loads the BPF programs that count calls, if the command line has a list of functions.
///
/// # Errors
///
/// If the list cannot be read, or the programs cannot be loaded.
pub(crate) fn load_calls(args: &Args) -> anyhow::Result<Option<Rc<CallTracer>>> {
    let Some(path) = &args.calls else { return Ok(None) };
    if path.as_os_str() == "-" && !args.command.is_empty() {
        bail!("--calls: the command reads standard input; write the list to a file");
    }
    let list = PointList::read(path)?;
    let last_cpu = machine::online_cpus().last().copied().unwrap_or(0);
    Ok(Some(Rc::new(CallTracer::load(list, last_cpu)?)))
}
