//! The counts of calls, and the warnings on them.

use nprof_stream::escape::escaped;

use super::counted;
use crate::perf::calls::points::Point;

/// The most functions that are named of those that were called too often.
const TAKEN_OFF_SHOWN: usize = 10;

/// The counts of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallSummary {
    /// All calls, as the kernel counted them.
    pub(crate) calls: u64,
    /// Those in the stream.
    pub(crate) written: u64,
    /// The number of functions.
    pub(crate) functions: usize,
    /// The CPU time that counting adds to a call, in ns. None if it is unknown.
    pub(crate) cost_ns: Option<u64>,
    /// The number of functions with a higher cost, if there are others, and this cost.
    pub(crate) slow_cost_ns: Option<(usize, u64)>,
    /// The functions that were called too often, with their calls per second.
    pub(crate) taken_off: Vec<(Point, u64)>,
    /// The calls of functions of the kernel that were not counted, also by threads that are not recorded.
    pub(crate) missed: u64,
    /// The threads for which there was no room.
    pub(crate) missed_threads: u64,
    /// How often there was no room for the events of a routine.
    pub(crate) missed_routines: u64,
    /// The functions that are no routines, since their ends are unknown.
    pub(crate) unended: Vec<Vec<u8>>,
    /// How often the event that is counted by routine could not be read.
    pub(crate) unreadable: u64,
    /// The first failure.
    pub(crate) failure: Option<String>,
}

impl CallSummary {
    /// Returns the warnings.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let shown = self.taken_off.iter().take(TAKEN_OFF_SHOWN);
        warnings.extend(shown.map(|(point, rate)| {
            let steps = if point.is_slow { " with a single step" } else { "" };
            format!(
                "{}: {rate} calls per second{steps}; it was not counted further, see --calls-limit",
                escaped(&point.name)
            )
        }));
        if let Some(more) = self.taken_off.len().checked_sub(TAKEN_OFF_SHOWN).filter(|&it| it > 0) {
            warnings.push(format!("{more} more functions were called too often"));
        }
        if self.missed > 0 {
            let calls = counted(self.missed, "call");
            warnings.push(format!(
                "not counted: up to {calls} in the kernel, made while it counted another one on the same CPU; list \
                 fewer functions, above all those of interrupts"
            ));
        }
        if self.missed_threads > 0 {
            let threads = counted(self.missed_threads, "thread");
            warnings.push(format!(
                "the calls of {threads} were not counted: more than 131072 at a time; record fewer \
                 processes"
            ));
        }
        if self.missed_routines > 0 {
            let times = counted(self.missed_routines, "time");
            warnings.push(format!(
                "--calls-event: {times} there was no room for more than 16384 threads, 65536 paths, or 262144 \
                 pairs of both: events are missing or those of callers; list fewer functions, or \
                 record fewer threads"
            ));
        }
        if let [first, others @ ..] = &self.unended[..] {
            let more = match others.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            warnings.push(format!(
                "--calls-event: {}{more}: where the function ends is not known; its events are those of its \
                 callers",
                escaped(first)
            ));
        }
        if self.unreadable > 0 {
            warnings.push(format!(
                "the event of --calls-event could not be read {} times: another program has its \
                 counter, a CPU came online, or the kernel hid a switch; its counts are too low",
                self.unreadable
            ));
        }
        let missing = self.calls.saturating_sub(self.written);
        if missing > 0 {
            let calls = counted(self.calls, "call");
            warnings.push(format!("the stream lacks {missing} of {calls}"));
        }
        warnings.extend(self.failure.iter().map(|error| format!("calls are incomplete: {error}")));
        warnings
    }
}
