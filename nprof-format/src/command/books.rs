//! The exact times of threads in a stream: whether they add up, and whether the samples agree with
//! them. Pure.
//!
//! A recorder of waits writes for each thread how long it was observed, on a CPU, runnable and
//! blocked, counted by the kernel. The first must be the sum of the others, and the samples of each
//! kind must represent about the counted time.

use std::collections::BTreeMap;

use nprof_stream::escape::escaped;
use nprof_stream::number::total;
use nprof_stream::{
    Change, ChangeKind, End, Event, EventId, Measure, Record, Sample, Task, TaskId,
};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

/// The part of a thread's time that may be accounted for twice or not at all, besides one period of the
/// samples: reading several counters takes a moment.
const TOLERANCE: f64 = 0.001;

/// The part of CPU time by which samples may differ from it without a cause: the timers of cpu-clock
/// are late by a few per cent, see COVERAGE in nprof(7).
const USUAL_CPU_DIFFERENCE: f64 = 0.1;

/// Standard deviations that a sum of samples may be off: with 30,000 sums, the probability that chance
/// alone exceeds it is 1 in 10,000.
const DEVIATIONS: f64 = 6.0;

/// Samples that a sum may be off however small it is: of short times, the number of samples is not
/// normally distributed.
const SAMPLES: f64 = 3.0;

/// Threads that are reported; more are counted.
const MAX_FINDINGS: usize = 100;

/// A kind of time of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeKind {
    Cpu,
    Runnable,
    Blocked,
}

impl TimeKind {
    const ALL: [Self; 3] = [Self::Cpu, Self::Runnable, Self::Blocked];

    /// Returns the key of its exact time in the stream.
    fn key(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Runnable => "runnable",
            Self::Blocked => "blocked",
        }
    }

    /// Returns the kind that an event samples. None of other events.
    fn of(event: &Event) -> Option<Self> {
        match (&event.measure, &event.name[..]) {
            (Measure::CpuTime, _) => Some(Self::Cpu),
            (Measure::WaitTime, b"runnable") => Some(Self::Runnable),
            (Measure::WaitTime, b"blocked") => Some(Self::Blocked),
            _ => None,
        }
    }
}

/// The identity of a thread in all epochs of a segment. Lives of one number are added up: so are their
/// samples.
type ThreadKey = (Vec<u8>, u32, u32);

/// The sums of a thread.
#[derive(Clone, Debug, Default)]
struct Thread {
    comm: Vec<u8>,
    /// Exact times. None without a record of them.
    exact: Option<Times>,
    /// By event, the weight of its samples.
    sampled: BTreeMap<usize, u64>,
}

/// Exact times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    wall: u64,
    /// By [`TimeKind`].
    parts: [u64; 3],
}

impl Times {
    fn of(change: &Change<'_>) -> Self {
        let parts = TimeKind::ALL.map(|kind| change.extras.number(kind.key()).unwrap_or(0));
        let wall = change.extras.number("wall");
        Self { wall: wall.unwrap_or_else(|| total(parts.into_iter())), parts }
    }

    fn add(&mut self, other: Self) {
        self.wall = self.wall.saturating_add(other.wall);
        for (part, other) in self.parts.iter_mut().zip(other.parts) {
            *part = part.saturating_add(other);
        }
    }

    /// Returns the time that no part has; negative if the parts have some time twice.
    fn remainder(&self) -> i128 {
        i128::from(self.wall) - self.parts.iter().map(|&part| i128::from(part)).sum::<i128>()
    }
}

/// An event whose samples are times of threads.
#[derive(Clone, Debug)]
struct TimeEvent {
    name: Vec<u8>,
    kind: TimeKind,
    /// True if it samples a part of the code only: user or kernel.
    is_partial: bool,
    /// The largest weight of an observation, at least the period.
    period: u64,
    lost: u64,
}

/// Checks the exact times of the threads of a stream.
#[derive(Debug, Default)]
pub(crate) struct Books {
    tasks: FxHashMap<TaskId, ThreadKey>,
    event_ids: FxHashMap<EventId, usize>,
    events: Vec<TimeEvent>,
    threads: BTreeMap<ThreadKey, Thread>,
    /// The sums over all segments.
    sum: Times,
    threads_with_times: u64,
    findings: Vec<Finding>,
    /// Findings beyond the first ones.
    more: u64,
}

/// A thread, or the whole stream, whose times do not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    /// The thread; empty for the sums in the end of the segment.
    thread: String,
    reason: String,
    remainder_ns: i128,
}

impl Books {
    /// Takes the next record.
    pub(crate) fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::Head(_) => {
                // The segment before it has no end.
                self.end_segment(None);
            }
            Record::Epoch(_) => {
                self.tasks.clear();
                self.event_ids.clear();
            }
            Record::Event(event) => self.event(event),
            Record::Task(task) => self.task(task),
            Record::Sample(sample) => self.sample(sample),
            Record::Lost(lost) => {
                if let Some(&event) = self.event_ids.get(&lost.event) {
                    self.events[event].lost = self.events[event].lost.saturating_add(lost.count);
                }
            }
            Record::Change(change) if change.kind == ChangeKind::Times => {
                if let Some(thread) = self.thread(change.task) {
                    thread.exact.get_or_insert_default().add(Times::of(change));
                }
            }
            Record::Change(change) if change.kind != ChangeKind::Exit => {
                if let Some(thread) = self.thread(change.task) {
                    thread.comm = change.value.to_vec();
                }
            }
            Record::End(end) => self.end_segment(Some(end)),
            _ => {}
        }
    }

    fn event(&mut self, event: &Event) {
        let Some(kind) = TimeKind::of(event) else { return };
        let hertz = event.frequency.filter(|&hertz| hertz > 0);
        let period = event.period.or(hertz.map(|hertz| 1_000_000_000 / hertz)).unwrap_or(1);
        let is_partial = matches!(&event.scope[..], b"user" | b"kernel");
        self.event_ids.insert(event.id, self.events.len());
        let name = event.name.clone();
        self.events.push(TimeEvent { name, kind, is_partial, period, lost: 0 });
    }

    fn task(&mut self, task: &Task<'_>) {
        let run = task.extras.get("run").unwrap_or_default().into_owned();
        let key = (run, task.pid, task.tid);
        self.threads.entry(key.clone()).or_default().comm = task.comm.to_vec();
        self.tasks.insert(task.id, key);
    }

    fn thread(&mut self, task: TaskId) -> Option<&mut Thread> {
        self.threads.get_mut(self.tasks.get(&task)?)
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let Some(&event) = self.event_ids.get(&sample.event) else { return };
        let of_one = sample.weight / sample.count.max(1);
        self.events[event].period = self.events[event].period.max(of_one);
        if let Some(thread) = self.thread(sample.task) {
            let sum = thread.sampled.entry(event).or_default();
            *sum = sum.saturating_add(sample.weight);
        }
    }

    /// Checks the threads of a segment, and forgets them. `end` is None if the segment was cut off.
    fn end_segment(&mut self, end: Option<&End>) {
        let threads = std::mem::take(&mut self.threads);
        let mut sum = Times::default();
        let mut count = 0;
        for exact in threads.values().filter_map(|thread| thread.exact) {
            sum.add(exact);
            count += 1;
        }
        // Without exact times nothing is claimed; in a part of a stream most threads have none.
        if count > 0 {
            for (key, thread) in &threads {
                for (reason, remainder_ns) in self.reasons(thread, end.is_some()) {
                    let (_, pid, tid) = key;
                    let thread = format!("{pid}/{tid} {}", escaped(&thread.comm));
                    self.find(Finding { thread, reason, remainder_ns });
                }
            }
            if let Some(end) = end {
                self.check_end(end, &sum);
            }
        }
        self.sum.add(sum);
        self.threads_with_times += count;
        self.tasks.clear();
        self.event_ids.clear();
        self.events.clear();
    }

    /// Compares the sums in the end of a segment with those of its threads.
    fn check_end(&mut self, end: &End, sum: &Times) {
        let [_, runnable, blocked] = sum.parts;
        let sums = [
            ("wall", end.wall_ns, sum.wall),
            ("runnable", end.runnable_ns, runnable),
            ("blocked", end.blocked_ns, blocked),
        ];
        for (name, total, sum) in sums {
            let Some(total) = total.filter(|&total| total != sum) else { continue };
            let reason = format!(
                "{name} is {} in the end record, and {} in the threads",
                seconds(total),
                seconds(sum)
            );
            let remainder_ns = i128::from(total) - i128::from(sum);
            self.find(Finding { thread: String::new(), reason, remainder_ns });
        }
    }

    /// Returns the reasons for which the times of a thread do not agree, with the difference.
    fn reasons(&self, thread: &Thread, is_ended: bool) -> Vec<(String, i128)> {
        let mut reasons = Vec::new();
        let Some(exact) = thread.exact else {
            let sampled: u64 = thread.sampled.values().copied().fold(0, u64::saturating_add);
            // A thread without samples may have ended before the recording began.
            if is_ended && sampled > 0 {
                let reason = format!("has samples of {}, but no exact times", seconds(sampled));
                reasons.push((reason, -i128::from(sampled)));
            }
            return reasons;
        };
        let period = self.events.iter().map(|event| event.period).max().unwrap_or(0);
        let remainder = exact.remainder();
        if remainder.unsigned_abs() as f64 > exact.wall as f64 * TOLERANCE + period as f64 {
            let [cpu, runnable, blocked] = exact.parts.map(seconds);
            let relation = if remainder > 0 { "unaccounted for" } else { "counted twice" };
            reasons.push((
                format!(
                    "{} of {} {relation}: cpu {cpu}, runnable {runnable}, blocked {blocked}",
                    seconds(remainder.unsigned_abs() as u64),
                    seconds(exact.wall)
                ),
                remainder,
            ));
        }
        for (index, event) in self.events.iter().enumerate() {
            let counted = exact.parts[event.kind as usize];
            let sampled = thread.sampled.get(&index).copied().unwrap_or(0);
            reasons.extend(disagreement(event, counted, sampled));
        }
        reasons
    }

    fn find(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }

    /// True if no thread's times disagree; also without exact times.
    pub(crate) fn is_good(&self) -> bool {
        self.findings.is_empty()
    }

    /// Returns the sums, and a line for each finding; nothing without exact times. The stream must have
    /// ended.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.threads_with_times == 0 {
            return Vec::new();
        }
        let [cpu, runnable, blocked] = self.sum.parts.map(seconds);
        let remainder = self.sum.remainder();
        let sign = if remainder < 0 { "-" } else { "" };
        let mut lines = vec![format!(
            "{} thread{}: wall {} = cpu {cpu} + runnable {runnable} + blocked {blocked}, remainder {sign}{}",
            self.threads_with_times,
            if self.threads_with_times == 1 { "" } else { "s" },
            seconds(self.sum.wall),
            seconds(remainder.unsigned_abs() as u64),
        )];
        for Finding { thread, reason, .. } in &self.findings {
            let subject = if thread.is_empty() { "all threads" } else { thread };
            lines.push(format!("{subject}: {reason}"));
        }
        if self.more > 0 {
            lines.push(format!("{} more threads with such differences", self.more));
        }
        lines
    }

    /// Returns the sums and findings as JSON; null without exact times.
    pub(crate) fn object(&self) -> Value {
        if self.threads_with_times == 0 {
            return Value::Null;
        }
        let [cpu, runnable, blocked] = self.sum.parts;
        let finding = |finding: &Finding| {
            json!({
                "thread": (!finding.thread.is_empty()).then_some(&finding.thread),
                "reason": finding.reason,
                "remainder_ns": finding.remainder_ns as i64,
            })
        };
        json!({
            "threads": self.threads_with_times,
            "wall_ns": self.sum.wall,
            "cpu_ns": cpu,
            "runnable_ns": runnable,
            "blocked_ns": blocked,
            "remainder_ns": self.sum.remainder() as i64,
            "finding_count": self.findings.len() as u64 + self.more,
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
        })
    }

    /// Ends the stream: the last segment may have been cut off.
    pub(crate) fn finish(&mut self) {
        self.end_segment(None);
    }
}

/// Returns the reason and the difference if samples of an event represent another time than the
/// counted one. None within the statistical error.
fn disagreement(event: &TimeEvent, counted: u64, sampled: u64) -> Option<(String, i128)> {
    let period = event.period as f64;
    // A quantity below a period is recorded as a whole one, with the probability of its size: the
    // variance of a sum of them is at most the sum times the period. Larger ones are exact.
    let mut error = DEVIATIONS * (period * counted as f64).sqrt() + SAMPLES * period;
    if event.kind == TimeKind::Cpu {
        error += USUAL_CPU_DIFFERENCE * counted as f64;
    }
    let difference = i128::from(counted) - i128::from(sampled);
    let is_explained = event.is_partial && difference > 0;
    if is_explained || (difference.unsigned_abs() as f64) <= error {
        return None;
    }
    let lost = match event.lost {
        0 => String::new(),
        lost => format!("; {lost} samples of all threads were lost"),
    };
    let reason = format!(
        "samples of {} represent {}, counted are {} {}{lost}",
        escaped(&event.name),
        seconds(sampled),
        seconds(counted),
        event.kind.key(),
    );
    Some((reason, difference))
}

fn seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_stream::Reader;
    use proptest::prelude::*;

    fn books(stream: &str) -> Books {
        let stream = stream.replace(" | ", "\t");
        let (mut reader, mut books) = (Reader::new(stream.as_bytes()), Books::default());
        while let Some(record) = reader.next().unwrap() {
            books.take(&record);
        }
        books.finish();
        books
    }

    /// Two threads of 28 ms; the end of the stream has `more`.
    fn stream(worker: &str, idle: &str, samples: &str, more: &str) -> String {
        format!(
            "@nprof | 1.1 | run=0x1\n\
             @event | id=1 | name=cpu-clock | unit=ns | measure=cpu-time | frequency=1000\n\
             @event | id=2 | name=blocked | unit=ns | measure=wait-time | period=1000000\n\
             T | 1 | 0 | 7 | 7 | 0 | worker\nT | 2 | 0 | 7 | 8 | 1 | id\\nle\n{samples}\
             X | 90 | 1 | times | - | {worker}\nX | 90 | 2 | times | - | {idle}\n\
             @end | samples=0 | records=0 | lost=0{more}\n"
        )
    }

    const WORKER: &str = "wall=28000000 | cpu=6000000 | runnable=1000000 | blocked=21000000";
    const IDLE: &str = "wall=28000000 | cpu=0 | runnable=0 | blocked=28000000";
    const SAMPLES: &str = "S | 1 | 1 | 1 | 0 | 0 | 6000000 | 6\nS | 2 | 2 | 1 | 0 | 0 | 21000000 | 21\n\
                           S | 3 | 2 | 2 | 0 | 0 | 28000000 | 28\n";

    #[test]
    fn times_that_add_up_are_summed() {
        let good = books(&stream(WORKER, IDLE, SAMPLES, " | wall_ns=56000000"));
        assert_eq!(
            good.lines(),
            ["2 threads: wall 0.056 s = cpu 0.006 s + runnable 0.001 s + blocked 0.049 s, \
              remainder 0.000 s"]
        );
        assert!(good.is_good());
        assert_eq!(good.object()["blocked_ns"], 49_000_000);
        let sum = WORKER.replace("wall=28000000 | ", "");
        let implied = books(&stream(&sum, IDLE, SAMPLES, " | wall_ns=56000000"));
        assert!(implied.is_good());
        assert_eq!(implied.lines(), good.lines());
        // Streams without exact times.
        assert!(books("@nprof | 1.1 | run=0x1\n").lines().is_empty());
        assert_eq!(books("@nprof | 1.1 | run=0x1\n").object(), Value::Null);
    }

    #[test]
    fn remainder_names_the_thread_and_the_reason() {
        let missing = WORKER.replace("blocked=21000000", "blocked=9000000");
        let lines = books(&stream(&missing, IDLE, "", "")).lines();
        assert!(
            lines[1].starts_with("7/7 worker: 0.012 s of 0.028 s unaccounted for: cpu 0.006 s"),
            "{lines:?}"
        );
        let twice = WORKER.replace("cpu=6000000", "cpu=60000000");
        let found = books(&stream(&twice, IDLE, SAMPLES, ""));
        assert!(found.lines()[1].contains("7/7 worker: 0.054 s of 0.028 s counted twice"));
        assert_eq!(found.object()["findings"][0]["remainder_ns"], -54_000_000);
        let end = books(&stream(WORKER, IDLE, SAMPLES, " | blocked_ns=50000000"));
        assert_eq!(
            end.lines()[1],
            "all threads: blocked is 0.050 s in the end record, and 0.049 s in the threads"
        );
        assert!(!end.is_good());
    }

    #[test]
    fn samples_far_from_the_counted_time_are_found() {
        // 6 standard deviations of 228 samples and 3 samples: 94 ms.
        let long = IDLE.replace("28000000", "228000000");
        let found = books(&stream(
            WORKER,
            &long,
            &(SAMPLES.to_owned() + "L | 4 | 2 | - | 0 | 9 | ring\n"),
            "",
        ));
        assert_eq!(
            found.lines()[1..],
            ["7/8 id\\nle: samples of blocked represent 0.028 s, counted are 0.228 s blocked; \
              9 samples of all threads were lost"]
        );
        let no_times = stream(WORKER, IDLE, SAMPLES, "");
        let no_times = no_times.replace("X | 90 | 2", "X | 90 | 1");
        let lines = books(&no_times).lines().join("\n");
        assert!(
            lines.contains("7/8 id\\nle: has samples of 0.028 s, but no exact times"),
            "{lines}"
        );
        // User code only: the rest of the CPU time has no samples.
        let user = stream(
            &WORKER.replace("cpu=6", "cpu=900").replace("wall=28", "wall=922"),
            IDLE,
            SAMPLES,
            "",
        );
        assert!(!books(&user).is_good());
        assert!(books(&user.replace("frequency=1000", "frequency=1000 | scope=user")).is_good());
    }

    proptest! {
        /// Waits of any length are recorded by the law of sampled quantities: exactly from a period on,
        /// otherwise as a period with the probability of the length.
        #[test]
        fn samples_by_the_law_agree_with_the_counted_time(
            lengths in prop::collection::vec((1..3_000_000u64, 0..1_000_000u64), 1..400),
        ) {
            let period = 1_000_000;
            let (mut counted, mut sampled) = (0, 0);
            for (length, chance) in lengths {
                counted += length;
                sampled += if length >= period { length } else if chance < length { period } else { 0 };
            }
            let event = TimeEvent {
                name: b"blocked".to_vec(), kind: TimeKind::Blocked, is_partial: false, period, lost: 0,
            };
            prop_assert_eq!(disagreement(&event, counted, sampled), None);
        }
    }
}
