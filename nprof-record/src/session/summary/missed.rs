//! The warnings on heap and fd events: what they lack, and the remedy.

use nprof_stream::escape::escaped;

use super::{Summary, counted};
use crate::convert::allocations::state::{BLOCKS_MAX, Executed, Missed, Unseen};
use crate::image::allocator::AllocationFunction;

impl Summary {
    /// Returns the warnings on heap and fd events.
    pub(super) fn missing_allocations(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.lost_preloaded > 0 {
            // Threads wait for room, unless it is not read for ten seconds.
            warnings.push(format!(
                "{} of heap and fd events were lost: nprof-record did not read them for ten seconds, \
                 signal handlers wrote them, or the program may map no more memory (ulimit -v); let it \
                 run, raise the limit, or choose a larger period, such as heap:1m",
                counted(self.lost_preloaded, "record")
            ));
        }
        let Missed { unseen, bypassed, unfollowed } = &self.missed;
        if *unfollowed > 0 {
            warnings.push(format!(
                "{unfollowed} allocations are not in heap.free, heap.live and heap.peak: more than \
                 {BLOCKS_MAX} sampled blocks at a time; choose a larger period"
            ));
        }
        if unseen.processes > 0 {
            warnings.push(format!(
                "{} without heap and fd events, the first of {}: static and set-user-ID programs, and \
                 those with an environment of their own, do not load the library; weigh a probe \
                 instead, such as {}",
                processes(unseen),
                name(&unseen.first),
                probe(&unseen.first)
            ));
        }
        if bypassed.processes > 0 {
            warnings.push(format!(
                "{} with an allocator in the executable, the first of {}: its blocks are not in heap \
                 events; weigh a probe instead, such as {}",
                processes(bypassed),
                name(&bypassed.first),
                probe(&bypassed.first)
            ));
        }
        warnings
    }
}

fn processes(unseen: &Unseen) -> String {
    let plural = if unseen.processes == 1 { "" } else { "es" };
    format!("{} process{plural}", unseen.processes)
}

fn name(executed: &Executed) -> String {
    String::from_utf8_lossy(&executed.comm).escape_debug().to_string()
}

/// Returns the option that records the allocations of an executable by a probe.
fn probe(executed: &Executed) -> String {
    match &executed.allocator {
        Some(AllocationFunction { name, offset }) => {
            let path = escaped(&executed.path);
            format!("-e 'uprobe:{path}:{:#x}*di' at its {name}", offset.0)
        }
        None => "-e 'uprobe:PATH:0xOFFSET*di' at its malloc".to_owned(),
    }
}
