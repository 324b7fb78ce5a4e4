//! The summary of a recording: one line, and warnings. Pure.

use std::collections::BTreeMap;

use nprof_stream::{Cause, Mark};

use crate::convert::allocations::state::Missed;
use crate::convert::counts::{CompatSamples, Sum};
use crate::convert::waits::TimeSums;
use crate::event::{CpuMode, PreloadPlan};
use crate::perf::plan::OpenMode;
use crate::session::delays::Delay;

pub(crate) use calls::CallSummary;

/// The numbers of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// The part of `lost` that the preloaded library could not write.
    pub(crate) lost_preloaded: u64,
    /// Lost sideband records (mmap, comm, fork, exit).
    pub(crate) sideband_lost: u64,
    /// True if lost sideband records may have hidden processes.
    pub(crate) may_miss_processes: bool,
    /// Tasks whose events the kernel ended when they executed a set-user-ID program.
    pub(crate) ended_by_exec: u64,
    /// Samples of 32-bit programs.
    pub(crate) compat: CompatSamples,
    /// Events that were not counted because the field that weighs them is negative, by name.
    pub(crate) negative: Vec<(String, u64)>,
    /// Samples without callers in processes of which the mappings may not be read.
    pub(crate) unreadable: u64,
    /// The CPU time that the command used outside of its control group, in ns.
    pub(crate) outside_ns: u64,
    /// The number of processes that left the control group of the command.
    pub(crate) left_group: usize,
    /// The number of existing descendants of attached processes that are not recorded; `None` for
    /// another target.
    pub(crate) existing_descendants: Option<usize>,
    /// Processes of the command that go on after its exit.
    pub(crate) remaining: usize,
    /// Samples older than one before them.
    pub(crate) late: u64,
    /// The CPU time that was used, in ns; `None` if it could not be measured.
    pub(crate) task_ns: Option<u64>,
    /// The CPU mode of this time and of the samples of the clock.
    pub(crate) cpu_mode: CpuMode,
    /// The share of this mode in the CPU time of the command; `None` if it is unknown.
    pub(crate) mode_share: Option<f64>,
    /// The samples of the first event that measures CPU time; `None` if there is none.
    pub(crate) clock: Option<Sum>,
    /// CPU time of the recorder itself, in ns.
    pub(crate) recorder_ns: u64,
    /// Peak memory of the recorder, in bytes.
    pub(crate) recorder_bytes: u64,
    /// The requested samples per second.
    pub(crate) frequency: u64,
    /// The period of the clock in ns, if one was requested.
    pub(crate) period_ns: Option<u64>,
    /// The length of sampling, in ns.
    pub(crate) elapsed_ns: u64,
    /// The exact times of all threads; `None` if waiting is not measured.
    pub(crate) times: Option<TimeSums>,
    /// Threads of which waiting was not measured, because there are too many.
    pub(crate) unmeasured: u64,
    /// The counts of calls; `None` if they were not counted.
    pub(crate) calls: Option<CallSummary>,
    /// The events of the library that was loaded into the command; `None` if none was.
    pub(crate) preloaded: Option<PreloadPlan>,
    /// True if no call of an instrumented function was recorded, which should have been.
    pub(crate) has_no_calls: bool,
    /// What the events of the library lack.
    pub(crate) missed: Missed,
    /// Threads of which the stacks may not be read while they wait.
    pub(crate) unread_stacks: usize,
    /// The mean time in ns between two looks at waiting threads, if they were rare; else `None`.
    pub(crate) rare_looks_ns: Option<u64>,
    /// Images of which the unwind tables were not read for want of descriptors.
    pub(crate) unread_images: usize,
    /// True if waiting was measured by records of context switches.
    pub(crate) waits_by_switches: bool,
    /// True if waiting was recorded in windows, so that no times of threads were counted.
    pub(crate) has_wait_windows: bool,
    /// True if a field weighs each sampled event: the kernel writes a record of every occurrence, whatever
    /// `-F` and `-c` are.
    pub(crate) is_weighed: bool,
    /// The cause of most losses in rings; `None` if there were none.
    pub(crate) delay: Option<Delay>,
    /// True if another program reads the stream while it is written.
    pub(crate) has_reader: bool,
    pub(crate) open_mode: OpenMode,
    /// True if events could be opened for all tasks.
    pub(crate) may_open_system: bool,
    /// True if the recorder ran before ordinary programs.
    pub(crate) has_priority: bool,
    /// The recorded processes in messages; `None` for the system and for control groups.
    pub(crate) subject: Option<&'static str>,
    /// True if processes of other pid namespaces cannot be recorded.
    pub(crate) is_in_namespace: bool,
}

/// Coverage below which a warning is printed.
const LOW_COVERAGE: f64 = 0.95;

/// The same for inherited events: higher, since the cause of the missing time is known. It is the time
/// from the last sample of each task to its end, half a period on average, and its end itself: 500
/// processes of 20 ms have 95 %, a single process 99.9 %.
const LOW_COVERAGE_INHERITED: f64 = 0.98;

/// Coverage above which the CPU time is unknown. It differs by a few per cent in short recordings.
const HIGH_COVERAGE: f64 = 1.1;

/// The smallest number of expected samples of which missing ones are reported. Few of them are missing
/// together where the hypervisor runs another machine: a shell with 3.3 ms of CPU time had no sample of
/// 1000 Hz.
const MIN_EXPECTED: f64 = 20.0;

/// The number of expected samples of which chance leaves none in 1 % of all cases.
const CHANCE_OF_NONE: f64 = 4.6;

/// The longest clock tick that kernels are built with, in ns (CONFIG_HZ=100).
const TICK_NS: f64 = 10e6;

/// The smallest share of time without a running task that is stated, and the shortest time.
const WAITED: f64 = 0.9;
const WAITED_MIN_NS: u64 = 100_000_000;

impl Summary {
    /// Returns the warnings, which are printed even with -q.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let explanation = self.missing_processes();
        let is_explained = explanation.is_some();
        warnings.extend(explanation.or_else(|| self.no_samples()));
        let lost = self.lost.get(&Cause::Ring).copied().unwrap_or(0);
        let lost = lost.saturating_sub(self.lost_preloaded);
        if lost > 0 {
            warnings.push(format!("the rings were full: {}", self.cause_of_losses(true)));
        }
        if let Some(&lost) = self.lost.get(&Cause::Multiplex) {
            // An event that never had a counter has no samples that show how many are missing.
            let samples = match lost {
                0 => "all samples of an event".to_owned(),
                lost => format!("about {}", counted(lost, "sample")),
            };
            warnings.push(format!(
                "{samples} were not taken: there are more events than counters; record fewer at a time"
            ));
        }
        if self.remaining > 0 {
            let (go, them) = if self.remaining == 1 { ("goes", "it") } else { ("go", "them") };
            // The library is loaded when a program starts.
            let remedy = match self.preloaded {
                Some(_) => format!("keep {them} in the foreground of the command"),
                None => format!("record {them} with -p"),
            };
            warnings.push(format!(
                "the command has exited, and {} of its processes {go} on unrecorded; {remedy}",
                self.remaining
            ));
        }
        if self.has_wait_windows && self.lost.contains_key(&Cause::Recorder) {
            warnings.push(
                "windows of waiting were skipped, because nprof-record was late: the sums of waits are \
                 too low; choose longer intervals with --wait-windows"
                    .to_owned(),
            );
        }
        warnings.extend(self.missing_allocations());
        if self.sideband_lost > 0 {
            let were = if self.sideband_lost == 1 { "was" } else { "were" };
            let records = counted(self.sideband_lost, "record");
            let processes = if self.may_miss_processes {
                "processes that ended soon after may be missing, and "
            } else {
                ""
            };
            // The same cause as above, if there is one.
            let cause =
                if lost > 0 { String::new() } else { format!(": {}", self.cause_of_losses(false)) };
            warnings.push(format!(
                "{records} of processes and mappings {were} lost, so {processes}some frames may be \
                 wrong{cause}"
            ));
        }
        if !is_explained {
            warnings.extend(self.low_coverage(lost));
        }
        warnings.extend(self.calls.iter().flat_map(CallSummary::warnings));
        if self.unreadable > 0 {
            let have = if self.unreadable == 1 { "has" } else { "have" };
            let remedy = if self.is_in_namespace {
                "run as root, with the /proc of this pid namespace mounted"
            } else {
                "run as root"
            };
            warnings.push(format!(
                "{} of other users' processes {have} no callers: their mappings may not be read; {remedy}",
                counted(self.unreadable, "sample")
            ));
        }
        if self.unmeasured > 0 {
            let were = if self.unmeasured == 1 { "was" } else { "were" };
            warnings.push(format!(
                "{} {were} not measured: more than 131072 at a time; record fewer processes",
                counted(self.unmeasured, "thread")
            ));
        }
        if self.unread_stacks > 0 {
            let have = if self.unread_stacks == 1 { "has" } else { "have" };
            warnings.push(format!(
                "{} {have} no stacks of waits: their memory may not be read by this user; run as root, \
                 or set kernel.yama.ptrace_scope to 0, where that exists",
                counted(self.unread_stacks as u64, "thread")
            ));
        }
        if let Some(mean_ns) = self.rare_looks_ns {
            warnings.push(format!(
                "waiting threads were looked at each {} ms only, since there are many or the CPUs are busy: the \
                 weights of shorter waits are imprecise, and margins of error too small; record fewer threads, or \
                 run as root or with CAP_BPF and CAP_PERFMON, on Linux 6.16 or later",
                mean_ns / 1_000_000
            ));
        }
        if self.unread_images > 0 {
            warnings.push(format!(
                "too many open files: {} of code could not be opened, so stacks are incomplete; raise the \
                 limit of this process, for example `ulimit -n 65536`",
                counted(self.unread_images as u64, "file")
            ));
        }
        warnings.extend(self.idle());
        warnings.extend(self.negative.iter().map(|(name, count)| {
            let events = counted(*count, "event");
            format!("{name}: {events} not counted: the field is negative, as of an error")
        }));
        let CompatSamples { samples, comm } = &self.compat;
        if *samples > 0 {
            let name = String::from_utf8_lossy(comm);
            warnings.push(format!(
                "32-bit programs are named, but not unwound: {} without callers, the first of {}; \
                 record programs with frame pointers with --unwind fp",
                counted(*samples, "sample"),
                name.escape_debug()
            ));
        }
        warnings
    }

    /// Returns remarks, which are not printed with -q.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let library = self.preloaded.iter().map(|plan| {
            format!("a library was loaded into the command for {}", plan.description())
        });
        library.collect()
    }

    /// Returns a sentence on a program that hardly ran: its samples do not show where its time went.
    fn idle(&self) -> Option<String> {
        // A recording of memory alone samples no time; one of waits in windows does, uncounted.
        let samples_time =
            (self.clock.is_some() || self.preloaded.is_none()) && !self.has_wait_windows;
        // A program that spends little time in one mode may have spent it in the other.
        let has_time = samples_time && self.times.is_none() && self.cpu_mode == CpuMode::Both;
        let waited = self.waited().filter(|_| has_time);
        let waited = waited.filter(|&waited| waited >= WAITED && self.samples > 0);
        waited.zip(self.subject).map(|(waited, subject)| {
            // Rounded up: 0 % would contradict the samples.
            let percent = ((1.0 - waited) * 100.0).ceil();
            format!(
                "{subject} ran at most {percent:.0} % of the time; waiting, also for a CPU, is not \
                 sampled: record it with -e wall"
            )
        })
    }

    /// Returns the reason why there are no samples. None if there are some, or a command was too
    /// short for one: reports state that.
    fn no_samples(&self) -> Option<String> {
        self.clock.filter(|_| self.samples == 0)?;
        let used_ns = self.task_ns?;
        let used = duration(used_ns);
        let time = self.time_name();
        if self.is_in_namespace && self.subject.is_none() {
            return Some(format!("no samples in {used} of {time} time: {NAMESPACE}"));
        }
        if self.misses(self.expected()) {
            return Some(format!(
                "no samples in {used} of {time} time: the event does not count here; select \
                 another, such as -e task-clock"
            ));
        }
        let subject = self.subject.filter(|_| self.elapsed_ns >= WAITED_MIN_NS)?;
        let elapsed = duration(self.elapsed_ns);
        // Waiting is not the cause of it.
        if self.waited().is_some_and(|waited| waited < WAITED) {
            let reason = if self.expected() < CHANCE_OF_NONE {
                self.too_rare()
            } else {
                "too little to find the reason; record a longer run".to_owned()
            };
            return Some(format!(
                "no samples: {subject} used {used} of {time} time in {elapsed}, {reason}"
            ));
        }
        let unsampled = match self.cpu_mode {
            CpuMode::Both => "waiting is not sampled",
            CpuMode::User => "the kernel and waiting are not sampled",
            CpuMode::Kernel => "user code and waiting are not sampled",
        };
        Some(format!("no samples: {subject} used {used} of {time} time in {elapsed}; {unsampled}"))
    }

    /// Returns the reason why a short CPU time has no sample, and the remedy.
    fn too_rare(&self) -> String {
        match self.period_ns {
            Some(ns) => {
                format!("too little for a period of {}; select a shorter one", duration(ns))
            }
            None => format!("too little for {} Hz; raise -F", self.frequency),
        }
    }

    /// Leaves out the CPU time if the samples show far more: it lacks that of processes that exited before it was
    /// read, and for which no recorded process has waited.
    pub(super) fn leave_out_low_time(&mut self) {
        let is_low = self.coverage().is_some_and(|coverage| coverage > HIGH_COVERAGE);
        let samples = self.clock.map_or(0, |sum| sum.samples) as f64;
        // The time of one mode is as coarse as the ticks of the clock.
        if is_low && self.cpu_mode == CpuMode::Both && is_fewer(self.expected(), samples) {
            self.task_ns = None;
        }
    }

    /// Returns a warning if less of the CPU time was sampled than chance explains. `lost` is the
    /// number of lost samples.
    fn low_coverage(&self, lost: u64) -> Option<String> {
        let coverage = self.coverage().filter(|_| self.samples > 0)?;
        let missing = (self.expected() - self.clock?.samples as f64).max(0.0);
        let is_inherited = self.open_mode == OpenMode::Task;
        let limit = if is_inherited { LOW_COVERAGE_INHERITED } else { LOW_COVERAGE };
        let is_low = coverage < limit && self.misses(missing);
        // The losses are reported already.
        if !is_low || lost as f64 >= missing / 2.0 {
            return None;
        }
        let reason = if self.is_in_namespace && self.subject.is_none() {
            NAMESPACE.to_owned()
        } else if is_inherited {
            let remedy = self.how_to_record_system();
            format!(
                "inherited events miss work of short-lived tasks, and of threads that run for microseconds at a time; \
                 {remedy}"
            )
        } else {
            "see the reasons in nprof-record(1), NOTES".to_owned()
        };
        // Rounded down, so that it is below the limit.
        let percent = (coverage * 100.0).floor();
        let time = self.time_name();
        Some(format!("only {percent:.0} % of the {time} time was sampled: {reason}"))
    }

    /// True if chance does not explain that this many of the expected samples are missing.
    fn misses(&self, missing: f64) -> bool {
        let expected = self.expected();
        if expected < MIN_EXPECTED {
            return false;
        }
        // The kernel counts the time of both modes together to the nanosecond, and divides it by the ticks
        // that interrupted each of them (cputime_adjust, kernel/sched/cputime.c). The number of ticks in one
        // mode is binomial: it varies little if nearly all are in that mode. Of few ticks, all may be by chance: three
        // in the other mode would be missed in one of twenty commands.
        let others = 1.0 - self.mode_share.unwrap_or(0.0).clamp(0.0, 1.0);
        let per_unit = match (self.cpu_mode, self.task_ns) {
            (CpuMode::User | CpuMode::Kernel, Some(used_ns)) if used_ns > 0 => {
                let ticks = used_ns as f64 / TICK_NS;
                let varying = others.max(3.0 / ticks).min(1.0);
                (expected / ticks * varying).max(1.0)
            }
            _ => 1.0,
        };
        is_fewer((expected - missing) / per_unit, expected / per_unit)
    }

    /// Returns the name of the measured time.
    fn time_name(&self) -> &'static str {
        match self.cpu_mode {
            CpuMode::Both => "CPU",
            CpuMode::User => "user CPU",
            CpuMode::Kernel => "kernel CPU",
        }
    }

    /// Returns the share of the time in which no recorded task ran. None if it is unknown.
    fn waited(&self) -> Option<f64> {
        let used_ns = self.task_ns.filter(|_| self.elapsed_ns >= WAITED_MIN_NS)?;
        Some(1.0 - used_ns as f64 / self.elapsed_ns as f64)
    }

    /// Returns the remedy for tasks that their own events miss.
    fn how_to_record_system(&self) -> &'static str {
        if self.may_open_system {
            "select --follow system"
        } else {
            "record as root with --follow system"
        }
    }

    /// Returns the processes that could not be recorded, and the remedy. None if there are none.
    fn missing_processes(&self) -> Option<String> {
        if self.ended_by_exec > 0 {
            let count = self.ended_by_exec;
            let tasks = if count == 1 { "a task".to_owned() } else { format!("{count} tasks") };
            return Some(format!(
                "the kernel ended the sampling of {tasks} that executed a set-user-ID or unreadable \
                 program, and of later children; {}",
                self.how_to_record_system()
            ));
        }
        if self.outside_ns > 0 {
            return Some(format!(
                "the command used {} of CPU time outside of its control group, where it is not \
                 sampled; record it with --follow system",
                duration(self.outside_ns)
            ));
        }
        if self.left_group > 0 {
            return Some(format!(
                "{} left the control group of the command, outside of which nothing is sampled; record \
                 the command with --follow system",
                counted(self.left_group as u64, "process")
            ));
        }
        let is_idle = self.samples == 0 && !self.misses(self.expected());
        let used_ns = self.task_ns.filter(|_| is_idle)?;
        let descendants = match self.existing_descendants? {
            0 => return None,
            1 => "; 1 existing descendant is not recorded, see --descendants".to_owned(),
            count => format!("; {count} existing descendants are not recorded, see --descendants"),
        };
        let used = duration(used_ns);
        let time = self.time_name();
        Some(format!("no samples: the processes used {used} of {time} time{descendants}"))
    }

    /// Returns the number of samples that the used CPU time should yield.
    fn expected(&self) -> f64 {
        let used_ns = self.task_ns.unwrap_or(0) as f64;
        // The period is that of the samples, if there are any: events may have one of their own.
        match self.clock.filter(|sum| sum.samples > 0 && sum.weight > 0) {
            Some(sum) => used_ns * sum.samples as f64 / sum.weight as f64,
            None => used_ns / self.period_ns.map_or(1e9 / self.frequency as f64, |ns| ns as f64),
        }
    }

    /// Returns the sampled share of the CPU time.
    fn coverage(&self) -> Option<f64> {
        let used = self.task_ns.filter(|&used| used > 0)?;
        Some(self.clock?.weight as f64 / used as f64)
    }

    /// Returns the recording on one line.
    pub(crate) fn line(&self) -> String {
        let mut lost = by_cause(&self.lost, "lost");
        if self.lost_others > 0 {
            lost = format!("about {lost}, without {} of other processes", self.lost_others);
        }
        let incomplete = by_cause(&self.incomplete, "incomplete");
        let mut line = format!("{}, {lost}, {incomplete}", counted(self.samples, "sample"));
        if self.stitched > 0 {
            line += &format!(", {} completed from earlier stacks", self.stitched);
        }
        if self.late > 0 {
            line += &format!(", {} out of order", counted(self.late, "sample"));
        }
        if let Some(used) = self.task_ns.filter(|&used| used > 0) {
            line += &format!("; {} {}", duration(used), self.time_name());
            if let (Some(clock), Some(coverage)) = (self.clock, self.coverage()) {
                let hertz = clock.samples as f64 * 1e9 / used as f64;
                line += &format!(" at {hertz:.0} Hz, coverage {:.1} %", coverage * 100.0);
            }
        }
        if let Some(TimeSums { wall_ns, cpu_ns, runnable_ns, blocked_ns }) = self.times {
            let [wall, cpu, runnable, blocked] =
                [wall_ns, cpu_ns, runnable_ns, blocked_ns].map(duration);
            line += &format!("; wall {wall} = cpu {cpu} + runnable {runnable} + blocked {blocked}");
            if self.waits_by_switches {
                line += " by context switches";
            }
        }
        if let Some(CallSummary { calls, functions, cost_ns, slow_cost_ns, .. }) = &self.calls {
            line += &format!("; {} of {functions} functions", counted(*calls, "call"));
            if let Some(cost_ns) = cost_ns {
                line += &format!(", counting takes {cost_ns} ns of CPU time for each");
            }
            if let Some((slow, cost_ns)) = slow_cost_ns {
                line +=
                    &format!(", {cost_ns} ns for those of {}", counted(*slow as u64, "function"));
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

/// The reason of missing samples of the whole system in a container.
const NAMESPACE: &str = "processes of other pid namespaces cannot be recorded from this one; run \
                         nprof-record in the initial namespace";

/// True if a Poisson variable with this mean has so low a value in less than 1 % of all cases. The
/// difference of the square roots is normal, with a standard deviation of one half (Anscombe).
fn is_fewer(count: f64, expected: f64) -> bool {
    2.0 * (expected.sqrt() - (count.max(0.0) + 0.375).sqrt()) > 2.33
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

/// Formats a number of things: `1 record`, `2 records`, `2 processes`.
fn counted(count: u64, noun: &str) -> String {
    let plural = match count {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {noun}{plural}")
}

fn duration(ns: u64) -> String {
    match ns {
        0..10_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

mod calls;
mod losses;
mod missed;
#[cfg(test)]
mod tests;
