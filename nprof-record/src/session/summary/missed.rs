//! The warnings on the events of the preloaded library: what they lack, and the remedy.

use nprof_stream::escape::escaped;

use super::{Summary, counted};
use crate::convert::allocations::state::{BLOCKS_MAX, Executed, Missed, Unseen};
use crate::image::allocator::AllocationFunction;

impl Summary {
    /// Returns the warnings on the events of the preloaded library.
    pub(super) fn missing_allocations(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let Some(plan) = &self.preloaded else { return warnings };
        let (events, has_calls_only) = (plan.description(), plan.has_calls_only());
        if self.has_no_calls {
            warnings.push(
                "no calls: no function was instrumented by the compiler, or the program defines the \
                 hooks itself; compile it with -finstrument-functions or -pg, or count calls with --calls"
                    .to_owned(),
            );
        }
        if self.lost_preloaded > 0 {
            let were = if self.lost_preloaded == 1 { "was" } else { "were" };
            let wrong = if has_calls_only { "" } else { ", and live blocks may be wrong" };
            // Threads wait for room, unless it is not read for ten seconds.
            warnings.push(format!(
                "{} of {events} {were} lost{wrong}: nprof-record did not read them for ten seconds, \
                 signal handlers wrote them, or the program may map no more memory (ulimit -v, ulimit -d); \
                 let it run, raise the limit, or choose a larger period, such as {}",
                counted(self.lost_preloaded, "record"),
                if has_calls_only { "calls:1000" } else { "heap:1m" }
            ));
        }
        let Missed { unseen, bypassed, bound_deeply, unconnected, unfollowed } = &self.missed;
        if *unfollowed > 0 {
            warnings.push(format!(
                "{unfollowed} allocations are not in heap.free, heap.live and heap.peak: more than \
                 {BLOCKS_MAX} sampled blocks at a time; choose a larger period"
            ));
        }
        if unseen.processes > 0 {
            warnings.push(format!(
                "{} without {events}; the first is {}: static, set-user-ID and 32-bit programs, those of \
                 AddressSanitizer without -static-libasan, and those with an environment without LD_PRELOAD or with \
                 one of their own (set it before nprof-record) do not load the library; in another network \
                 namespace or at limits (raise ulimit -n, -f and -v) it cannot connect; {}",
                processes(unseen),
                name(&unseen.first),
                if has_calls_only {
                    "count calls with --calls".to_owned()
                } else {
                    format!("weigh a probe instead, as root, such as {}", probe(&unseen.first))
                }
            ));
        }
        if unconnected.processes > 0 {
            warnings.push(format!(
                "{} without {events}, forked by {}: no descriptor was free, or a limit, a filter of system calls \
                 or another network namespace kept {} from nprof-record; raise ulimit -n, -f and -v",
                processes(unconnected),
                name(&unconnected.first),
                if unconnected.processes == 1 { "it" } else { "them" },
            ));
        }
        if bypassed.processes > 0 {
            warnings.push(format!(
                "{} with an allocator in the executable; the first is {}: its blocks are not in heap \
                 events; weigh a probe instead, as root, such as {}",
                processes(bypassed),
                name(&bypassed.first),
                probe(&bypassed.first)
            ));
        }
        if bound_deeply.processes > 0 {
            warnings.push(format!(
                "{} loaded a library with RTLD_DEEPBIND; the first is {}: what the library allocates is not in \
                 {events}, and blocks that it frees for others look live",
                processes(bound_deeply),
                name(&bound_deeply.first)
            ));
        }
        warnings
    }
}

fn processes(unseen: &Unseen) -> String {
    counted(unseen.processes, "process")
}

fn name(executed: &Executed) -> String {
    // It has ended before it could be read.
    if executed.comm.is_empty() {
        return "an unknown program".to_owned();
    }
    String::from_utf8_lossy(&executed.comm).escape_debug().to_string()
}

/// Returns the option that records the allocations of an executable by a probe.
fn probe(executed: &Executed) -> String {
    match &executed.allocator {
        Some(AllocationFunction { name, offset }) => {
            let path = escaped(&executed.path);
            format!("-e 'uprobe:{path}:{:#x}*di' at its {name}", offset.0)
        }
        // The size is in this register in 64-bit code only.
        None => "-e 'uprobe:PATH:0xOFFSET*di' at malloc of a 64-bit program".to_owned(),
    }
}
