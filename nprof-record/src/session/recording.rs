//! One recording: opens the events, lets time pass, and carries what the rings bring to the
//! stream until it is over.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use nprof_stream::{End, Record};

use crate::convert::converter::Converter;
use crate::convert::dictionary::Sink;
use crate::os::procfs;
use crate::perf::plan::Plan;
use crate::perf::ring_set::{Backlog, RingSet};
use crate::session::cpu_time::{CpuTimeMeter, CpuTimeScope};
use crate::session::launch::Child;
use crate::session::output::Stream;
use crate::session::summary::Summary;
use crate::session::workload::Workload;
use crate::sys::{self, Exit, Signals};

/// How long the rings may fill unseen when nothing wakes us, ns.
const DRAIN_TIMEOUT: u64 = 100_000_000;

/// The same while records of processes and mappings wait, ns.
const DRAIN_TIMEOUT_SIDEBAND: u64 = 10_000_000;

/// The same while stacks are deeper than their copies, which are completed by what is read in
/// time, ns.
const DRAIN_TIMEOUT_DEEP: u64 = 2_000_000;

/// How often it is looked whether anybody to record is left, and what they have used, ns: at
/// first, and when it has become seldom.
const POLL_INTERVALS: (u64, u64) = (25_000_000, 250_000_000);

/// It becomes seldom with the time that was sampled, of which so much may be missed: what a
/// process uses between the last look and its end.
const POLL_SHARE: u64 = 50;

/// How often the stream is flushed at least, ns.
const FLUSH_INTERVAL: u64 = 500_000_000;

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Exit,
    Interrupt,
    Duration,
    /// The output takes no more.
    Closed,
}

impl Reason {
    fn word(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Interrupt => "interrupt",
            Self::Duration => "duration",
            Self::Closed => "closed",
        }
    }
}

/// What came of a recording.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Why the stream is incomplete, if it could not be written.
    pub(crate) error: Option<io::Error>,
    pub(crate) summary: Summary,
}

/// When sampling is to begin and end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// After how long.
    pub(crate) delay: Option<Duration>,
    /// For how long.
    pub(crate) duration: Option<Duration>,
}

/// Everything a recording needs while it runs.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) plan: Plan,
    pub(crate) rings: RingSet,
    pub(crate) converter: Converter<Stream>,
    pub(crate) workload: Rc<Workload>,
    pub(crate) signals: Rc<Signals>,
    pub(crate) times: Times,
    /// What coverage is a share of, where that can be measured.
    pub(crate) cpu_time_scope: Option<CpuTimeScope>,
}

/// What changes while a recording runs.
#[derive(Debug)]
struct Progress {
    /// Measures since sampling began.
    cpu_time: Option<CpuTimeMeter>,
    /// Whether sampling has begun.
    begun: bool,
    /// When sampling begins, ns, and when it ends.
    begin: u64,
    end: u64,
    flushed: u64,
    polled: u64,
    /// Whether there was anybody left to record when it was last looked.
    has_exited: bool,
}

impl Progress {
    /// How long after the last look it is time for the next, ns.
    fn max_sleep(&self, now: u64) -> u64 {
        (now.saturating_sub(self.begin) / POLL_SHARE).clamp(POLL_INTERVALS.0, POLL_INTERVALS.1)
    }
}

fn after(time: u64, duration: Duration) -> u64 {
    time.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl Recording {
    /// Records until nobody is left or there is a reason to stop before, and ends the stream.
    ///
    /// # Errors
    ///
    /// What poll(2) says.
    pub(crate) fn run(mut self) -> io::Result<Outcome> {
        let now = sys::monotonic_ns();
        let begin = after(now, self.times.delay.unwrap_or_default());
        let end = self.times.duration.map_or(u64::MAX, |duration| after(begin, duration));
        let mut progress = Progress {
            cpu_time: None,
            begun: false,
            begin,
            end,
            flushed: now,
            polled: now,
            has_exited: false,
        };
        if self.times.delay.is_none() {
            // A command has used nothing before; others are asked what they had.
            let before = self.converter.processes().filter(|_| self.workload.child().is_none());
            progress.cpu_time = self.cpu_time(before);
            progress.begun = true;
        }
        let mut next_drain = now;
        let reason = loop {
            let until = next_drain.min(self.next_poll(&progress));
            let is_due = self.rings.wait(&self.signals, until)?;
            self.workload.handle_signals(&self.signals);
            self.poll(&mut progress)?;
            if let Some(reason) = self.reason_to_stop(&progress) {
                break reason;
            }
            if !is_due && sys::monotonic_ns() < next_drain {
                continue;
            }
            let timeout = match self.rings.drain(&mut self.converter, false) {
                Backlog::Nothing => DRAIN_TIMEOUT,
                _ if self.converter.has_deep_stacks() => DRAIN_TIMEOUT_DEEP,
                Backlog::Sideband => DRAIN_TIMEOUT_SIDEBAND,
                Backlog::Samples => DRAIN_TIMEOUT,
            };
            let now = sys::monotonic_ns();
            next_drain = now.saturating_add(timeout.min(self.rings.max_sleep()));
            if now.saturating_sub(progress.flushed) >= FLUSH_INTERVAL {
                self.converter.sink.flush();
                progress.flushed = now;
            }
        };
        self.rings.disable();
        let used = self.used(progress.cpu_time);
        let ended = self.workload.child().and_then(|child| Some((child.pid, child.ended()?.0)));
        self.converter.exit = ended.map(|(pid, exit)| (pid as u32, exit_text(exit)));
        self.rings.drain(&mut self.converter, true);
        self.rings.report_remaining_lost(&mut self.converter);
        Ok(self.end(reason, used))
    }

    /// When there is something to be done but to read the rings, ns.
    fn next_poll(&self, progress: &Progress) -> u64 {
        let begin = if progress.begun { u64::MAX } else { progress.begin };
        let poll = match self.workload.needs_polling() {
            true => progress.polled + progress.max_sleep(progress.polled),
            false => u64::MAX,
        };
        begin.min(poll).min(progress.end)
    }

    fn cpu_time(&self, processes: impl Iterator<Item = u32>) -> Option<CpuTimeMeter> {
        let scope = self.plan.clock().map_or(self.plan.common.scope, |(_, chosen)| chosen.scope);
        Some(CpuTimeMeter::begin(self.cpu_time_scope.clone()?, scope, processes))
    }

    /// Looks after what the clock brings: the begin of sampling, and who is left.
    fn poll(&mut self, progress: &mut Progress) -> io::Result<()> {
        let now = sys::monotonic_ns();
        if !progress.begun && now >= progress.begin {
            self.rings.enable(true)?;
            progress.cpu_time = self.cpu_time(self.converter.processes());
            progress.begun = true;
        }
        let is_time = now.saturating_sub(progress.polled) >= progress.max_sleep(progress.polled);
        if is_time || self.workload.child().is_some() {
            progress.has_exited = self.workload.has_exited();
        }
        if is_time {
            progress.polled = now;
            progress.cpu_time.iter_mut().for_each(CpuTimeMeter::handle_signals);
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
        (sys::monotonic_ns() >= progress.end).then_some(Reason::Duration)
    }

    /// The CPU time used while there was sampling, as far as what was used can be sampled.
    fn used(&self, cpu_time: Option<CpuTimeMeter>) -> Option<u64> {
        let mut cpu_time = cpu_time?;
        let child = self.workload.child().filter(|child| child.ended().is_some());
        let ended = child.map(|child| child.pid as u32);
        if let Some((_, usage)) = child.and_then(Child::ended) {
            cpu_time.ended(ended.unwrap_or_default(), usage);
        }
        cpu_time.read(self.converter.processes().filter(|&pid| Some(pid) != ended))
    }

    fn end(self, reason: Reason, task_ns: Option<u64>) -> Outcome {
        let Self { plan, rings, converter, workload, .. } = self;
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
            sideband_lost: counts.sideband_lost,
            late: rings.late(),
            task_ns,
            clock,
            recorder_ns: own.user_ns + own.kernel_ns,
            recorder_bytes: procfs::own_peak().unwrap_or(own.memory),
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
