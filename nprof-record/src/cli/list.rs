//! The list of events, and of features of recordings.

use std::io::{self, Write};

use anyhow::Context;

use crate::event::{self, Catalog, PerfEventConfig};
use crate::os::machine;
use crate::perf::open::Kernel;
use crate::perf::waits::tracer::WaitTracer;
use crate::perf::{features, plan};

/// Prints the list of events and returns the exit status.
pub(crate) fn list() -> anyhow::Result<u8> {
    let paranoid = machine::sysctl("kernel/perf_event_paranoid").parse().ok();
    let kernel = Kernel { group: None };
    let cpus = machine::online_cpus();
    let try_open = |config: &PerfEventConfig| {
        let cpu = cpus.iter().copied().find(|&cpu| config.is_on(cpu));
        plan::try_open(&kernel, config, cpu.unwrap_or(cpus[0]))
    };
    let mut listed = event::list(&Catalog::of_this_machine(), try_open, paranoid, &cpus);
    // The event that the programs write to can be opened without these.
    if let Err(error) = WaitTracer::check() {
        for line in listed.iter_mut().filter(|line| line.is_available_wait()) {
            line.state = match line.needs_bpf() {
                true => Err(format!("{error:#}")),
                false => Ok("by context switches".to_owned()),
            };
        }
    }
    listed.splice(1..1, features::list(&kernel, &cpus, paranoid));
    // A closed pipe (`nprof-record -l | head`) is no failure.
    match io::stdout().write_all(event::print(&listed).as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the list")
        }
        _ => Ok(0),
    }
}
