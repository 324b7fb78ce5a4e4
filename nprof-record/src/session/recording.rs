//! The main loop of a recording: polls the sources of records, drains them into the stream, and
//! stops when the workload has exited or a limit is reached.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use nprof_stream::{End, Record};

use crate::convert::converter::{CommandExit, Converter};
use crate::convert::dictionary::Sink;
use crate::os::procfs;
use crate::perf::backlog::Backlog;
use crate::perf::plan::{OpenMode, Plan};
use crate::session::cpu_time::{CpuTimeMeter, CpuTimeScope};
use crate::session::event_source::SourceSet;
use crate::session::launch::Child;
use crate::session::output::Stream;
use crate::session::summary::Summary;
use crate::session::workload::Workload;
use crate::sys::{self, Exit, Signals, duration_ns};

/// Longest time between two drains.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// The same while sideband records wait: the files they name may soon be deleted.
const DRAIN_TIMEOUT_SIDEBAND: Duration = Duration::from_millis(10);

/// The same while stacks are deeper than their copies: their callers are read from the live
/// process, which must happen while the frames still exist.
const DRAIN_TIMEOUT_DEEP: Duration = Duration::from_millis(2);

/// Shortest and longest interval at which attached processes and their CPU time are polled.
const POLL_INTERVALS: (Duration, Duration) =
    (Duration::from_millis(25), Duration::from_millis(250));

/// The poll interval grows to this share of the time sampled so far: the CPU time that a process
/// uses between the last poll and its exit is missed.
const POLL_SHARE: u64 = 50;

/// Longest time between two flushes of the stream.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// The reason why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Exit,
    Interrupt,
    Duration,
    /// The reader of the output has closed it, or the disk is full.
    Closed,
}

impl Reason {
    /// Returns its word in the stream.
    fn word(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Interrupt => "interrupt",
            Self::Duration => "duration",
            Self::Closed => "closed",
        }
    }
}

/// The result of a recording.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The error that cut the stream short, if one did.
    pub(crate) error: Option<io::Error>,
    pub(crate) summary: Summary,
}

/// The times at which sampling begins and ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// The delay before sampling begins.
    pub(crate) delay: Option<Duration>,
    /// The length of sampling.
    pub(crate) duration: Option<Duration>,
}

/// A recording that is ready to run.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) plan: Plan,
    pub(crate) sources: SourceSet,
    pub(crate) converter: Converter<Stream>,
    pub(crate) workload: Rc<Workload>,
    pub(crate) signals: Rc<Signals>,
    pub(crate) times: Times,
    /// The CPU time that coverage is a share of; `None` if it cannot be measured.
    pub(crate) cpu_time_scope: Option<CpuTimeScope>,
    /// The number of existing descendants of attached processes that are not recorded; `None` for
    /// another target.
    pub(crate) existing_descendants: Option<usize>,
}

/// The state of the main loop. Times are those of the monotonic clock.
#[derive(Debug)]
struct Progress {
    /// Measures CPU time since sampling began.
    cpu_time: Option<CpuTimeMeter>,
    /// True if sampling has begun.
    has_begun: bool,
    begin_ns: u64,
    end_ns: u64,
    flushed_ns: u64,
    polled_ns: u64,
    /// True if the workload had exited at the last poll.
    has_exited: bool,
}

impl Progress {
    /// Returns the time from the last poll of the workload to the next.
    fn poll_interval_ns(&self) -> u64 {
        let sampled_ns = self.polled_ns.saturating_sub(self.begin_ns);
        let (shortest, longest) = POLL_INTERVALS;
        (sampled_ns / POLL_SHARE).clamp(duration_ns(shortest), duration_ns(longest))
    }
}

impl Recording {
    /// Records until the workload has exited or another reason to stop, and ends the stream.
    ///
    /// # Errors
    ///
    /// Those of poll(2).
    pub(crate) fn run(mut self) -> io::Result<Outcome> {
        let mut progress = self.begin();
        let reason = self.record(&mut progress)?;
        self.sources.disable();
        // Measured before the last drain, which takes time itself.
        let (used_ns, outside_ns) = self.used_ns(progress.cpu_time);
        let exited = self.workload.child().and_then(|child| Some((child.pid, child.ended()?.0)));
        self.converter.exit =
            exited.map(|(pid, exit)| CommandExit { pid: pid as u32, status: exit_text(exit) });
        self.sources.drain(&mut self.converter, true);
        self.sources.report_remaining_lost(&mut self.converter);
        self.converter.finish();
        Ok(self.end(reason, used_ns, outside_ns))
    }

    fn begin(&self) -> Progress {
        let now_ns = sys::monotonic_ns();
        let begin_ns = now_ns.saturating_add(duration_ns(self.times.delay.unwrap_or_default()));
        let duration_ns = self.times.duration.map_or(u64::MAX, duration_ns);
        let mut progress = Progress {
            cpu_time: None,
            has_begun: false,
            begin_ns,
            end_ns: begin_ns.saturating_add(duration_ns),
            flushed_ns: now_ns,
            polled_ns: now_ns,
            has_exited: false,
        };
        if self.times.delay.is_none() {
            // A command has used no CPU time before. Attached processes have, which is subtracted.
            let attached = self.converter.processes().filter(|_| self.workload.child().is_none());
            progress.cpu_time = self.cpu_time(attached);
            progress.has_begun = true;
        }
        progress
    }

    /// Runs the main loop. Returns the reason why it ended.
    fn record(&mut self, progress: &mut Progress) -> io::Result<Reason> {
        let mut next_drain_ns = sys::monotonic_ns();
        loop {
            let until_ns = next_drain_ns.min(self.next_poll_ns(progress));
            let is_due = self.sources.wait(&self.signals, until_ns)?;
            self.workload.handle_signals(&self.signals);
            self.poll(progress)?;
            if let Some(reason) = self.reason_to_stop(progress) {
                return Ok(reason);
            }
            if !is_due && sys::monotonic_ns() < next_drain_ns {
                continue;
            }
            let timeout = match self.sources.drain(&mut self.converter, false) {
                Backlog::Nothing => DRAIN_TIMEOUT,
                _ if self.converter.has_deep_stacks() => DRAIN_TIMEOUT_DEEP,
                Backlog::Sideband => DRAIN_TIMEOUT_SIDEBAND,
                Backlog::Samples => DRAIN_TIMEOUT,
            };
            let now_ns = sys::monotonic_ns();
            let sleep = timeout.min(self.sources.max_sleep());
            next_drain_ns = now_ns.saturating_add(duration_ns(sleep));
            if now_ns.saturating_sub(progress.flushed_ns) >= duration_ns(FLUSH_INTERVAL) {
                self.converter.sink.flush();
                progress.flushed_ns = now_ns;
            }
        }
    }

    /// Returns the time at which the loop must run even if no drain is due.
    fn next_poll_ns(&self, progress: &Progress) -> u64 {
        let mut next_ns = progress.end_ns;
        if !progress.has_begun {
            next_ns = next_ns.min(progress.begin_ns);
        }
        if self.workload.needs_polling() {
            next_ns = next_ns.min(progress.polled_ns + progress.poll_interval_ns());
        }
        next_ns
    }

    fn cpu_time(&self, processes: impl Iterator<Item = u32>) -> Option<CpuTimeMeter> {
        let scope = self.plan.clock().map_or(self.plan.common.scope, |(_, planned)| planned.scope);
        Some(CpuTimeMeter::begin(self.cpu_time_scope.clone()?, scope, processes))
    }

    /// Starts sampling once the delay is over, and polls the workload once its interval is over.
    fn poll(&mut self, progress: &mut Progress) -> io::Result<()> {
        let now_ns = sys::monotonic_ns();
        if !progress.has_begun && now_ns >= progress.begin_ns {
            self.sources.enable()?;
            progress.cpu_time = self.cpu_time(self.converter.processes());
            progress.has_begun = true;
        }
        let is_due = now_ns.saturating_sub(progress.polled_ns) >= progress.poll_interval_ns();
        // For a command this only reads a flag that SIGCHLD has set.
        if is_due || self.workload.child().is_some() {
            progress.has_exited = self.workload.has_exited();
        }
        if is_due {
            progress.polled_ns = now_ns;
            if let Some(cpu_time) = &mut progress.cpu_time {
                cpu_time.poll();
            }
        }
        Ok(())
    }

    fn reason_to_stop(&self, progress: &Progress) -> Option<Reason> {
        if progress.has_exited {
            return Some(Reason::Exit);
        }
        if self.workload.stop_requested() {
            return Some(Reason::Interrupt);
        }
        if self.converter.sink.has_failed() {
            return Some(Reason::Closed);
        }
        (sys::monotonic_ns() >= progress.end_ns).then_some(Reason::Duration)
    }

    /// Returns the CPU time used since sampling began, of the modes that are sampled, and its part
    /// outside of the command's control group.
    fn used_ns(&self, cpu_time: Option<CpuTimeMeter>) -> (Option<u64>, u64) {
        let Some(mut cpu_time) = cpu_time else { return (None, 0) };
        // The clock of an exited command is gone; wait4(2) has reported its usage instead.
        let child = self.workload.child().filter(|child| child.ended().is_some());
        let ended = child.map(|child| child.pid as u32);
        if let Some((_, usage)) = child.and_then(Child::ended) {
            cpu_time.ended(ended.unwrap_or_default(), usage);
        }
        let living = self.converter.processes().filter(|&pid| Some(pid) != ended);
        (cpu_time.read(living), cpu_time.outside_ns())
    }

    fn end(self, reason: Reason, task_ns: Option<u64>, outside_ns: u64) -> Outcome {
        let Self { plan, sources, converter, workload, existing_descendants, .. } = self;
        let may_miss_processes = converter.may_miss_processes();
        let is_by_task = plan.common.open_mode == OpenMode::Task;
        let (counts, sums) = (converter.counts, converter.sums);
        let mut stream = converter.sink;
        let totals = stream.totals();
        let own = sys::own_usage();
        let clock = plan.clock().and_then(|(number, _)| sums.get(number).copied());
        let summary = Summary {
            samples: totals.samples,
            incomplete: counts.incomplete,
            stitched: counts.stitched,
            lost: counts.lost,
            lost_others: counts.lost_others,
            sideband_lost: counts.sideband_lost,
            may_miss_processes,
            // Events of CPUs and groups stay.
            ended_by_exec: if is_by_task { counts.ended_by_exec } else { 0 },
            outside_ns,
            existing_descendants,
            late: sources.late(),
            task_ns,
            clock,
            recorder_ns: own.user_ns + own.kernel_ns,
            // getrusage(2) reports at least the peak of the process that we were forked from.
            recorder_bytes: procfs::own_peak_bytes().unwrap_or(own.peak_bytes),
            frequency: plan.frequency,
        };
        let ended = workload.child().and_then(Child::ended);
        stream.take(&Record::End(Box::new(End {
            reason: reason.word().into(),
            status: ended.map(|(exit, _)| u64::from(exit.code())),
            time: Some(sys::monotonic_ns()),
            samples: totals.samples,
            records: totals.records,
            lost: summary.lost.values().sum(),
            lost_others: Some(summary.lost_others),
            lost_records: Some(summary.sideband_lost),
            late: Some(summary.late),
            incomplete: Some(summary.incomplete.values().sum()),
            task_ns,
            sampled_ns: clock.map(|sum| sum.weight),
            recorder_ns: Some(summary.recorder_ns),
            recorder_bytes: Some(summary.recorder_bytes),
            stitched: Some(summary.stitched),
            ..End::default()
        })));
        Outcome { error: stream.finish().err(), summary }
    }
}

fn exit_text(exit: Exit) -> String {
    match exit {
        Exit::Status(status) => status.to_string(),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}
