//! Adds the processes that run before the recording, with their threads and mappings.

use crate::cli::target::{RunningProcesses, Target};
use crate::convert::converter::Converter;
use crate::os::cgroup;
use crate::os::procfs::{self, ThreadNames};
use crate::session::output::Stream;

/// The most searches for children of running processes.
const SEARCHES_MAX: usize = 10;

/// Adds the running processes of a target to the converter. Their sideband events are enabled already. Those of
/// threads without `names` are read from /proc.
pub(crate) fn add_running(converter: &mut Converter<Stream>, target: &Target, names: &ThreadNames) {
    match target {
        Target::Command(_) => {}
        Target::Processes(running) => add_processes(converter, running, names),
        Target::Group(directory) => drop(add_all(converter, &cgroup::processes(directory), names)),
        Target::System => drop(add_all(converter, &procfs::processes(), names)),
    }
}

fn add_processes(
    converter: &mut Converter<Stream>,
    running: &RunningProcesses,
    names: &ThreadNames,
) {
    let recorded = running.recorded();
    for &pid in running.excluded() {
        converter.exclude(pid);
    }
    let mut have_maps = add_all(converter, &recorded, names);
    // Children that were forked after `Target::find` and before the sideband was enabled. A child inherits its
    // mappings: if a parent has exited before they were read, those of a living descendant are needed.
    let mut known = running.known();
    for search in 0..SEARCHES_MAX {
        if search > 0 && have_maps {
            break;
        }
        let found = procfs::descendants(&recorded, &known);
        have_maps = add_all(converter, &found, names);
        known.extend(found);
    }
}

/// Returns false if the mappings of one are unknown, as it exits before they are read.
fn add_all(converter: &mut Converter<Stream>, pids: &[u32], names: &ThreadNames) -> bool {
    // All are added, also after one without.
    pids.iter().filter(|&&pid| !converter.add_existing_process(pid, names)).count() == 0
}
