//! The summary of a recording: one line, and warnings. Pure.

use std::collections::BTreeMap;

use nprof_stream::{Cause, Mark};

use crate::convert::counts::Sum;

/// The numbers of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) samples: u64,
    /// Samples with an incomplete stack, by the reason.
    pub(crate) incomplete: BTreeMap<Mark, u64>,
    /// Samples with a stack that was completed with callers read earlier from the process.
    pub(crate) stitched: u64,
    /// Lost samples of the recorded processes, by cause.
    pub(crate) lost: BTreeMap<Cause, u64>,
    /// Lost samples of other processes. If there are any, `lost` is an estimate.
    pub(crate) lost_others: u64,
    /// Lost sideband records (mmap, comm, fork, exit).
    pub(crate) sideband_lost: u64,
    /// True if lost sideband records may have hidden processes.
    pub(crate) may_miss_processes: bool,
    /// Tasks whose events the kernel ended when they executed a set-user-ID program.
    pub(crate) ended_by_exec: u64,
    /// The CPU time that the command used outside of its control group, in ns.
    pub(crate) outside_ns: u64,
    /// The number of existing descendants of attached processes that are not recorded; `None` for
    /// another target.
    pub(crate) existing_descendants: Option<usize>,
    /// Records that came too late to be put in order.
    pub(crate) late: u64,
    /// The CPU time that was used, in ns; `None` if it could not be measured.
    pub(crate) task_ns: Option<u64>,
    /// The samples of the first event that measures CPU time; `None` if there is none.
    pub(crate) clock: Option<Sum>,
    /// CPU time of the recorder itself, in ns.
    pub(crate) recorder_ns: u64,
    /// Peak memory of the recorder, in bytes.
    pub(crate) recorder_bytes: u64,
    /// The requested samples per second.
    pub(crate) frequency: u64,
}

/// Expected samples from which on having none is an error.
const EXPECTED: u64 = 10;

/// Coverage below which a warning is printed.
const LOW_COVERAGE: f64 = 0.9;

impl Summary {
    /// Returns the warnings, which are printed even with -q.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        // A command that exits before its first sample is nothing unusual; reports say so.
        let expected = self.expected();
        if let Some(reason) = self.missing_processes() {
            warnings.push(reason);
        } else if self.samples == 0 && self.clock.is_some() && expected >= EXPECTED {
            // Ten times as many, not in step with timers; no more than 9973 per second.
            let rate = (self.frequency * 10 + 3).min(9973).max(self.frequency);
            warnings.push(format!("no samples were taken; try -F {rate}"));
        }
        if self.lost.get(&Cause::Ring).is_some_and(|&count| count > 0) {
            warnings.push("the rings were full: try a lower -F or --stack-size".to_owned());
        }
        if self.sideband_lost > 0 {
            let count = self.sideband_lost;
            let processes = if self.may_miss_processes {
                "processes that ended soon after may be missing, and "
            } else {
                ""
            };
            warnings.push(format!(
                "{count} records of processes and mappings were lost: {processes}some frames may \
                 be wrong"
            ));
        }
        let is_explained = self.missing_processes().is_some();
        let coverage = self.coverage().filter(|_| self.samples > 0 && expected >= EXPECTED);
        let coverage = coverage.filter(|_| !is_explained);
        if let Some(coverage) = coverage.filter(|&coverage| coverage < LOW_COVERAGE) {
            warnings.push(format!(
                "only {:.0} % of the CPU time was sampled: the rest may have been spent elsewhere",
                coverage * 100.0
            ));
        }
        warnings
    }

    /// Returns the processes that could not be recorded, and the remedy. None if there are none.
    fn missing_processes(&self) -> Option<String> {
        if self.ended_by_exec > 0 {
            let count = self.ended_by_exec;
            let tasks = if count == 1 { "a task".to_owned() } else { format!("{count} tasks") };
            return Some(format!(
                "the kernel ended the sampling of {tasks} that executed a set-user-ID or unreadable \
                 program, and of later children; record as root with --follow system"
            ));
        }
        if self.outside_ns > 0 {
            return Some(format!(
                "the command used {} of CPU time outside of its control group, where it is not \
                 sampled; record it with --follow system",
                duration(self.outside_ns)
            ));
        }
        let used_ns = self.task_ns.filter(|_| self.samples == 0 && self.expected() < EXPECTED)?;
        let descendants = match self.existing_descendants? {
            0 => String::new(),
            1 => "; 1 existing descendant is not recorded, see --descendants".to_owned(),
            count => format!("; {count} existing descendants are not recorded, see --descendants"),
        };
        let used = duration(used_ns);
        Some(format!("no samples: the processes used {used} of CPU time{descendants}"))
    }

    /// Returns the number of samples that the used CPU time should yield.
    fn expected(&self) -> u64 {
        self.task_ns.unwrap_or(0).saturating_mul(self.frequency) / 1_000_000_000
    }

    /// Returns the sampled share of the CPU time.
    fn coverage(&self) -> Option<f64> {
        let used = self.task_ns.filter(|&used| used > 0)?;
        Some(self.clock?.weight as f64 / used as f64)
    }

    /// Returns the recording on one line.
    pub(crate) fn line(&self) -> String {
        let plural = if self.samples == 1 { "" } else { "s" };
        let mut lost = by_cause(&self.lost, "lost");
        if self.lost_others > 0 {
            lost = format!("about {lost}, without {} of other processes", self.lost_others);
        }
        let incomplete = by_cause(&self.incomplete, "incomplete");
        let mut line = format!("{} sample{plural}, {lost}, {incomplete}", self.samples);
        if self.stitched > 0 {
            line += &format!(", {} stitched", self.stitched);
        }
        if self.late > 0 {
            line += &format!(", {} late", self.late);
        }
        if let Some(used) = self.task_ns.filter(|&used| used > 0) {
            line += &format!("; {} CPU", duration(used));
            if let (Some(clock), Some(coverage)) = (self.clock, self.coverage()) {
                let hertz = clock.samples as f64 * 1e9 / used as f64;
                line += &format!(" at {hertz:.0} Hz, coverage {:.1} %", coverage * 100.0);
            }
        }
        line += &format!(
            "; recorder {} CPU, {:.1} MiB",
            duration(self.recorder_ns),
            self.recorder_bytes as f64 / f64::from(1 << 20)
        );
        line
    }
}

/// Formats a sum and its parts: `5 lost (ring 3, throttle)`.
fn by_cause<T: std::fmt::Display>(counts: &BTreeMap<T, u64>, word: &str) -> String {
    let total: u64 = counts.values().sum();
    let part = |(cause, &count): (&T, &u64)| match count {
        0 => format!("{cause}"),
        count => format!("{cause} {count}"),
    };
    match counts.iter().map(part).collect::<Vec<_>>() {
        parts if parts.is_empty() => format!("{total} {word}"),
        parts => format!("{total} {word} ({})", parts.join(", ")),
    }
}

fn duration(ns: u64) -> String {
    match ns {
        0..10_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        Summary {
            samples: 90,
            task_ns: Some(100_000_000),
            clock: Some(Sum { samples: 90, weight: 95_000_000 }),
            recorder_ns: 1_500_000,
            recorder_bytes: 3 << 20,
            frequency: 997,
            ..Summary::default()
        }
    }

    #[test]
    fn summary_line_lists_all_counts() {
        let mut summary = summary();
        let line = "90 samples, 0 lost, 0 incomplete; 100 ms CPU at 900 Hz, coverage 95.0 %; \
                    recorder 1.5 ms CPU, 3.0 MiB";
        assert_eq!(summary.line(), line);
        assert!(summary.warnings().is_empty());
        summary.incomplete = BTreeMap::from([(Mark::StackTruncated, 4), (Mark::NoUnwindInfo, 1)]);
        summary.lost_others = 325;
        summary.lost = BTreeMap::from([(Cause::Ring, 36)]);
        let start = "90 samples, about 36 lost (ring 36), without 325 of other processes, 5 inc";
        assert!(summary.line().starts_with(start), "{}", summary.line());
        summary.lost_others = 0;
        summary.lost = BTreeMap::from([(Cause::Throttle, 0)]);
        (summary.stitched, summary.late) = (7, 2);
        let start = "90 samples, 0 lost (throttle), 5 incomplete (stack-truncated 4, \
                     no-unwind-info 1), 7 stitched, 2 late; 100";
        assert!(summary.line().starts_with(start), "{}", summary.line());
    }

    #[test]
    fn unknown_cpu_time_is_left_out() {
        let summary = Summary { task_ns: None, ..summary() };
        assert!(summary.line().contains("incomplete; recorder"), "{}", summary.line());
    }

    #[test]
    fn warnings_state_a_remedy() {
        let none = Summary { samples: 0, clock: Some(Sum::default()), ..summary() };
        assert_eq!(none.warnings(), ["no samples were taken; try -F 9973"]);
        let short = Summary { task_ns: Some(4_200_000), ..none };
        assert!(short.warnings().is_empty(), "it was too short for one");
        let little = Summary { clock: Some(Sum { samples: 2, weight: 2_000_000 }), ..summary() };
        assert!(little.warnings()[0].starts_with("only 2 % of the CPU time"));
        let idle =
            Summary { samples: 0, task_ns: Some(0), existing_descendants: Some(3), ..summary() };
        let message = "no samples: the processes used 0.0 ms of CPU time; 3 existing descendants \
                       are not recorded, see --descendants";
        assert_eq!(idle.warnings(), [message]);
        let lost = BTreeMap::from([(Cause::Ring, 3)]);
        let full = Summary { lost, sideband_lost: 1, ..summary() };
        assert_eq!(full.warnings().len(), 2);
        assert!(full.warnings()[1].ends_with("were lost: some frames may be wrong"));
        let hidden = Summary { may_miss_processes: true, ..full };
        assert!(hidden.warnings()[1].contains("lost: processes that ended soon after may be"));
    }

    #[test]
    fn missing_processes_explain_low_coverage() {
        let little = Summary { clock: Some(Sum { samples: 2, weight: 2_000_000 }), ..summary() };
        let ended = Summary { ended_by_exec: 1, ..little.clone() };
        assert_eq!(ended.warnings().len(), 1);
        assert!(ended.warnings()[0].contains("of a task that executed a set-user-ID or"));
        let several = Summary { ended_by_exec: 2, samples: 0, ..little.clone() };
        assert_eq!(several.warnings().len(), 1);
        assert!(several.warnings()[0].contains("of 2 tasks"));
        let left = Summary { outside_ns: 98_000_000, ..little };
        assert_eq!(left.warnings().len(), 1);
        assert!(left.warnings()[0].contains("98 ms of CPU time outside of its control group"));
    }
}
