//! The exact times of all threads, and the part of them that samples represent. Pure.

use nprof_stream::End;
use nprof_stream::number::total;
use serde_json::{Value, json};

/// The part of the time that may be in no kind of time without a note: reading several counters takes
/// a moment.
const USUAL_REMAINDER: f64 = 0.001;

/// The time of all threads, as the recorders counted it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadTime {
    /// The time that threads were observed, in nanoseconds.
    pub wall_ns: u64,
    /// The part of it that the samples of a sum of all its parts represent, in per cent. None without one.
    pub coverage: Option<f64>,
    /// Its parts.
    pub parts: [TimePart; 3],
}

/// A part of the time of all threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimePart {
    /// Its name: `cpu`, `runnable` or `blocked`.
    pub name: &'static str,
    /// The time in nanoseconds.
    pub ns: u64,
    /// The part of it that samples represent, in per cent. None if it was not sampled.
    pub coverage: Option<f64>,
}

impl ThreadTime {
    /// Returns the time of the threads of all runs from the ends of these, with the weights of the
    /// samples of waiting, and of those of all time. `samples_all` is false if only one mode of the CPU was
    /// sampled: then the CPU time of a run is not that on a CPU, which is the rest. None if a run did not
    /// count the time.
    pub(crate) fn new(
        ends: &[Option<&End>],
        runnable: Option<u64>,
        blocked: Option<u64>,
        all: Option<u64>,
        samples_all: bool,
    ) -> Option<Self> {
        let sum = |of: fn(&End) -> Option<u64>| {
            let times: Option<Vec<u64>> = ends.iter().map(|end| of((*end)?)).collect();
            times.filter(|times| !times.is_empty()).map(|times| total(times.into_iter()))
        };
        let wall_ns = sum(|end| end.wall_ns)?;
        let covered = |ns: u64, sampled: Option<u64>| {
            // A part without time has nothing that samples could represent.
            let sampled = sampled.filter(|_| ns > 0);
            sampled.map(|sampled| 100.0 * sampled as f64 / ns as f64)
        };
        let part = |name, ns, sampled| TimePart { name, ns, coverage: covered(ns, sampled) };
        let (runnable_ns, blocked_ns) = (sum(|end| end.runnable_ns)?, sum(|end| end.blocked_ns)?);
        let cpu = if samples_all {
            part("cpu", sum(|end| end.task_ns)?, sum(|end| end.sampled_ns))
        } else {
            part("cpu", wall_ns.saturating_sub(runnable_ns).saturating_sub(blocked_ns), None)
        };
        let parts =
            [cpu, part("runnable", runnable_ns, runnable), part("blocked", blocked_ns, blocked)];
        Some(Self { wall_ns, coverage: covered(wall_ns, all), parts })
    }

    /// Returns the time that is in no part; negative if some is in two.
    fn remainder_ns(&self) -> i128 {
        let parts: i128 = self.parts.iter().map(|part| i128::from(part.ns)).sum();
        i128::from(self.wall_ns) - parts
    }

    /// Returns the line of a heading: `threads: wall 84.20 s = cpu 11.90 + runnable 0.80 + ...`.
    pub fn line(&self) -> String {
        // A short run would be zeros.
        let digits = if self.wall_ns < 10_000_000_000 { 3 } else { 2 };
        let seconds = |ns: f64| format!("{:.digits$}", ns / 1e9);
        let terms: Vec<String> = self
            .parts
            .iter()
            .map(|part| format!("{} {}", part.name, seconds(part.ns as f64)))
            .collect();
        let mut line =
            format!("threads: wall {} s = {}", seconds(self.wall_ns as f64), terms.join(" + "));
        let remainder = self.remainder_ns() as f64;
        if remainder.abs() > USUAL_REMAINDER * self.wall_ns as f64 {
            let sign = if remainder < 0.0 { "-" } else { "+" };
            line.push_str(&format!(" {sign} {} unaccounted for", seconds(remainder.abs())));
        }
        let parts = self.parts.iter().map(|part| (part.name, part.coverage));
        let sampled: Vec<String> = std::iter::once(("wall", self.coverage))
            .chain(parts)
            .filter_map(|(name, coverage)| Some(format!("{name} {:.1} %", coverage?)))
            .collect();
        if !sampled.is_empty() {
            line.push_str(&format!("; coverage: {}", sampled.join(", ")));
        }
        line
    }

    /// Returns the times and coverages as JSON.
    pub fn object(&self) -> Value {
        let [cpu, runnable, blocked] = self.parts;
        json!({
            "wall_ns": self.wall_ns,
            "cpu_ns": cpu.ns,
            "runnable_ns": runnable.ns,
            "blocked_ns": blocked.ns,
            "remainder_ns": self.remainder_ns() as i64,
            "wall_coverage": self.coverage,
            "cpu_coverage": cpu.coverage,
            "runnable_coverage": runnable.coverage,
            "blocked_coverage": blocked.coverage,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::join::Joins;
    use crate::profile::summary::Summary;
    use crate::profile::{GroupBy, Profile};

    fn summary(ends: &[&str]) -> Summary {
        let mut text = String::new();
        for (end, run) in ends.iter().zip(1..) {
            text += &format!(
                "@nprof\t1.1\trun={run:#x}\n@event\tid=1\tname=blocked\tunit=ns\tmeasure=wait-time\n\
                 S\t1\t1\t0\t0\t0\t3000000000\t3\n@end\tsamples=1\trecords=2\tlost=0\t{end}\n"
            );
        }
        let mut profile = Profile::new(GroupBy::default());
        profile.read("in", text.as_bytes(), |_, _, _| {}).unwrap();
        profile.summary
    }

    const END: &str = "task_ns=1000000000\tsampled_ns=900000000\twall_ns=7000000000\t\
                       runnable_ns=2000000000\tblocked_ns=4000000000";

    #[test]
    fn line_has_the_parts_and_their_coverage() {
        let time = summary(&[END]).thread_time().unwrap();
        assert_eq!(
            time.line(),
            "threads: wall 7.000 s = cpu 1.000 + runnable 2.000 + blocked 4.000; \
             coverage: cpu 90.0 %, blocked 75.0 %"
        );
        assert_eq!(time.object()["blocked_coverage"], 75.0);
        assert_eq!(time.object()["runnable_coverage"], Value::Null);
        let lines = summary(&[END]).heading();
        assert!(lines.contains(&time.line()), "{lines:?}");
    }

    #[test]
    fn sum_of_all_time_has_a_coverage() {
        let text = format!(
            "@nprof\t1.1\trun=0x1\n@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\n\
             @event\tid=2\tname=blocked\tunit=ns\tmeasure=wait-time\n\
             @event\tid=3\tname=runnable\tunit=ns\tmeasure=wait-time\n\
             S\t1\t1\t0\t0\t0\t3500000000\t3\n@end\tsamples=1\trecords=4\tlost=0\t{END}\n"
        );
        let line = |join: &str| {
            let joins = [join.parse().expect("valid")];
            let joins = Joins::new(&joins).expect("valid");
            let mut profile = Profile::new(GroupBy::default()).joining(joins);
            profile.read("in", text.as_bytes(), |_, _, _| {}).expect("a stream");
            profile.summary.thread_time().expect("it was counted").line()
        };
        let all = line("cpu-clock,runnable,blocked=wall");
        assert!(all.ends_with("; coverage: wall 50.0 %, cpu 90.0 %"), "{all}");
        let some = line("runnable,blocked=wait");
        assert!(some.ends_with("; coverage: cpu 90.0 %"), "{some}");
    }

    #[test]
    fn remainder_is_stated_and_runs_without_times_have_none() {
        let late = END.replace("blocked_ns=4", "blocked_ns=3");
        let line = summary(&[END, &late]).thread_time().unwrap().line();
        assert!(
            line.contains(
                "wall 14.00 s = cpu 2.00 + runnable 4.00 + blocked 7.00 + 1.00 unaccounted for"
            ),
            "{line}"
        );
        assert_eq!(summary(&[END, "task_ns=1"]).thread_time(), None);
        assert_eq!(Summary::default().thread_time(), None);
    }
}
