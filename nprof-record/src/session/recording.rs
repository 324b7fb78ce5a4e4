//! The main loop of a recording: polls the sources of records, drains them into the stream, and
//! stops when the workload has exited or a limit is reached.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::convert::converter::{CommandExit, Converter, ONGOING_MIN_NS};
use crate::event::CpuMode;
use crate::image::kept_images::KeptSummary;
use crate::os::cgroup;
use crate::perf::backlog::Backlog;
use crate::perf::calls::tracer::CallTracer;
use crate::perf::plan::Plan;
use crate::perf::waits::data::{StackBytes, WaitingThread};
use crate::session::cpu_time::{CpuTimeMeter, CpuTimeScope};
use crate::session::delays::{Delay, DelayHistory, Interval};
use crate::session::event_source::SourceSet;
use crate::session::existing_threads::{ExistingThreads, follow_all};
use crate::session::launch::Child;
use crate::session::output::Stream;
use crate::session::summary::Summary;
use crate::session::wait_meter::WaitMeter;
use crate::session::workload::Workload;
use crate::sys::{self, Exit, Signals, duration_ns};

/// Longest time between two drains. Each wake-up takes some 100 us of CPU time, as much as 300 samples
/// with stacks by frame pointers: the caches have to be filled again.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The same if samples need facts that soon change: names of generated code, descriptors of waits, the processes
/// that have entered a control group.
const DRAIN_TIMEOUT_CHANGING: Duration = Duration::from_millis(100);

/// The same while sideband records wait: the files they name may soon be deleted.
const DRAIN_TIMEOUT_SIDEBAND: Duration = Duration::from_millis(10);

/// The same while stacks are deeper than their copies: their callers are read from the live
/// process, which must happen while the frames still exist.
const DRAIN_TIMEOUT_DEEP: Duration = Duration::from_millis(2);

/// The first time between two drains where a BPF program copies stacks: it copies too much of those of
/// which the recorder has seen none. The interval then grows to the time sampled so far.
const DRAIN_TIMEOUT_FIRST: Duration = Duration::from_millis(4);

/// Shortest and longest interval at which the CPU time of attached processes is polled. The longest
/// needs no wake-ups of its own: the drains come as often.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(50), DRAIN_TIMEOUT);

/// The poll interval grows to this share of the time sampled so far. When a process exits, the recorder
/// is woken and reads its CPU time a last time; but if its parent is faster, the time since the last
/// poll is estimated. A share of 10 took 25 more wake-ups in 10 s, a tenth of the recorder's CPU time.
const POLL_SHARE: u64 = 3;

/// The time between two parts of a wait that goes on.
const ONGOING_INTERVAL_NS: u64 = 1_000_000_000;

/// The shortest time from one list of the threads of a control group to the next, unless unknown ones have had
/// records, and the least multiple of the time that it takes.
const MEMBERS_INTERVAL_NS: u64 = 1_000_000_000;
const MEMBERS_PAUSE: u64 = 200;

/// The time from which a delay between two drains may have been a stop of the recorder.
const LONG_DELAY_NS: u64 = 20_000_000;

/// Longest time between two flushes of the stream.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// The longest time for which the last switches of exited threads are awaited: on a busy machine they may have
/// to wait for a CPU.
const LAST_SWITCHES_MAX_NS: u64 = 50_000_000;

/// The time from one reading of the rings for them to the next.
const LAST_SWITCHES_PAUSE: Duration = Duration::from_millis(1);

/// The reason why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Exit,
    Interrupt,
    Duration,
    /// The reader of the output has closed it, or the disk is full.
    Closed,
}

/// The result of a recording.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The error that cut the stream short, if one did.
    pub(crate) error: Option<io::Error>,
    pub(crate) summary: Summary,
    /// The copied images. None if they are not kept.
    pub(crate) kept: Option<KeptSummary>,
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
    /// The time from which the sources may have had records, by all clocks.
    pub(crate) enabled: Clocks,
    /// The measurement of waiting; `None` if no event needs it.
    pub(crate) waits: Option<WaitMeter>,
    /// The counts of calls; `None` if they are not counted.
    pub(crate) calls: Option<Rc<CallTracer>>,
    pub(crate) existing_threads: ExistingThreads,
    pub(crate) converter: Converter<Stream>,
    pub(crate) workload: Rc<Workload>,
    pub(crate) signals: Rc<Signals>,
    pub(crate) times: Times,
    /// The time between two snapshots of live blocks; `None` if they are written on request only.
    pub(crate) snapshot: Option<Duration>,
    /// The CPU time that coverage is a share of; `None` if it cannot be measured.
    pub(crate) cpu_time_scope: Option<CpuTimeScope>,
    /// The number of existing descendants of attached processes that are not recorded; `None` for
    /// another target.
    pub(crate) existing_descendants: Option<usize>,
    /// True if the recorder runs before ordinary programs.
    pub(crate) has_priority: bool,
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
    /// The time at which the parts of waits that go on were written.
    waits_ns: u64,
    /// The time at which live blocks were written.
    snapshot_ns: u64,
    members: Members,
    /// True if the workload had exited at the last poll.
    has_exited: bool,
    delays: DelayHistory,
    /// The time since the last drain, with the values of its clocks then.
    interval: Interval,
    clocks: Clocks,
}

/// The threads of the control group when they were last listed.
#[derive(Debug, Default)]
struct Members {
    threads: FxHashSet<u32>,
    listed_ns: u64,
    took_ns: u64,
}

/// The clocks that [`Interval`] is a difference of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clocks {
    now_ns: u64,
    output_ns: u64,
    cpu_ns: u64,
}

impl Clocks {
    /// Reads the clocks, with the time that writes of the output have waited.
    pub(crate) fn read(output_ns: u64) -> Self {
        Self { now_ns: sys::monotonic_ns(), output_ns, cpu_ns: sys::thread_cpu_ns() }
    }
}

impl Progress {
    /// Returns the time from the last poll of the workload to the next.
    fn poll_interval_ns(&self) -> u64 {
        let sampled_ns = self.polled_ns.saturating_sub(self.begin_ns);
        let (shortest, longest) = POLL_INTERVALS;
        (sampled_ns / POLL_SHARE).clamp(duration_ns(shortest), duration_ns(longest))
    }
}

/// Quantities that were measured at the end of sampling, in ns.
#[derive(Clone, Copy, Debug)]
struct Measured {
    used_ns: Option<u64>,
    /// The CPU time that the command used outside of its control group.
    outside_ns: u64,
    /// The number of processes that left the control group of the command.
    left_group: usize,
    /// The share of the sampled CPU mode in the CPU time of the command.
    mode_share: Option<f64>,
    /// The length of sampling.
    sampled_ns: u64,
    delay: Option<Delay>,
}

impl Recording {
    /// Records until the workload has exited or another reason to stop, and ends the stream.
    ///
    /// # Errors
    ///
    /// Those of ppoll(2).
    pub(crate) fn run(mut self) -> io::Result<Outcome> {
        let mut progress = self.begin();
        let reason = self.record(&mut progress)?;
        // Before its exit record is handed over.
        let exited = self.workload.child().and_then(|child| Some((child.pid, child.ended()?.0)));
        self.converter.exit =
            exited.map(|(pid, exit)| CommandExit { pid: pid as u32, status: exit_text(exit) });
        self.await_last_switches(&[]);
        self.end_sampling();
        let disabled_ns = sys::monotonic_ns();
        // Before the programs are detached and the rings are drained, which take time themselves.
        self.end_cpu_time(progress.cpu_time.as_mut());
        let sampled_ns = sys::monotonic_ns().saturating_sub(progress.begin_ns);
        let traced = self.last_waits(disabled_ns);
        if let Some(calls) = &self.calls {
            calls.stop();
        }
        self.sources.disable();
        self.sources.drain(&mut self.converter, Some(u64::MAX));
        if let Some(WaitMeter::Switches(_)) = self.waits {
            let threads = self.switched_threads(disabled_ns, 0);
            self.converter.write_last_waits(&threads);
            self.converter.write_last_times(&threads);
        }
        self.converter.write_last_times(&traced);
        self.sources.report_remaining_lost(&mut self.converter);
        self.note_interval(&mut progress);
        self.converter.finish();
        let ended = self.converter.take_ended();
        let (used_ns, outside_ns, left_group, mode_share) = match &mut progress.cpu_time {
            Some(cpu_time) => {
                cpu_time.note_records(ended);
                let left = cpu_time.left();
                (cpu_time.used_ns(), cpu_time.outside_ns(), left, cpu_time.mode_share())
            }
            None => (None, 0, 0, None),
        };
        let delay = progress.delays.main_cause();
        let measured = Measured { used_ns, outside_ns, left_group, mode_share, sampled_ns, delay };
        Ok(self.end(reason, measured))
    }

    /// Waits until the threads that have exited by now have been switched out for the last time, when the BPF
    /// programs report their times: parents learn of an exit before that.
    ///
    /// Those of the `known` threads are not awaited.
    fn await_last_switches(&mut self, known: &[WaitingThread]) {
        let Some(WaitMeter::Bpf(_)) = &self.waits else { return };
        let known: FxHashSet<u32> = known.iter().map(|thread| thread.progress.tid).collect();
        let begin_ns = sys::monotonic_ns();
        while sys::monotonic_ns().saturating_sub(begin_ns) < LAST_SWITCHES_MAX_NS {
            // A recorder of real-time priority would keep them from their CPU.
            std::thread::sleep(LAST_SWITCHES_PAUSE);
            self.sources.drain(&mut self.converter, None);
            let has_all =
                self.sources.settled_ns().is_some_and(|settled_ns| settled_ns >= begin_ns);
            if has_all && !self.converter.awaits_times(&known) {
                break;
            }
        }
    }

    /// Ends sampling and the exact times of threads together: those with samples have times.
    fn end_sampling(&self) {
        let ends_at_once = matches!(self.waits, Some(WaitMeter::Bpf(_)));
        if ends_at_once {
            self.sources.stop_sampling();
        }
        if let Some(waits) = &self.waits {
            waits.end();
        }
        if !ends_at_once {
            self.sources.stop_sampling();
        }
    }

    /// Writes the waits that went on at the end of sampling, at `end_ns`, and detaches the BPF programs that
    /// measure waiting. Returns the state of each thread at the end; nothing if no programs measure it, or the
    /// threads cannot be read.
    fn last_waits(&mut self, end_ns: u64) -> Vec<WaitingThread> {
        let Some(WaitMeter::Bpf(waits)) = &self.waits else { return Vec::new() };
        let waits = waits.clone();
        let threads = waits.ended().unwrap_or_default();
        // Before later records end their threads and processes.
        self.sources.drain(&mut self.converter, Some(end_ns));
        self.converter.write_last_waits(&threads);
        // Threads that have ended since then.
        self.await_last_switches(&threads);
        waits.stop();
        threads
    }

    /// Returns the state at `now_ns` of the threads that are measured by their switches. Their stacks are
    /// known from peeks.
    fn switched_threads(&mut self, now_ns: u64, shortest_ns: u64) -> Vec<WaitingThread> {
        let has_not_run = |tid| match &self.waits {
            Some(WaitMeter::Switches(tracer)) => tracer.borrow().has_not_run(tid),
            _ => false,
        };
        let threads = self.converter.switched_threads(now_ns, shortest_ns, has_not_run).into_iter();
        threads.map(|progress| WaitingThread { progress, stack: StackBytes::default() }).collect()
    }

    /// Writes the parts of waits that go on, once a second. All records up to the last drain less the
    /// time that the kernel takes to write one are written already.
    fn write_ongoing(&mut self, progress: &mut Progress) {
        let now_ns = sys::monotonic_ns();
        let Some(waits) = &self.waits else { return };
        if now_ns.saturating_sub(progress.waits_ns) < ONGOING_INTERVAL_NS {
            return;
        }
        progress.waits_ns = now_ns;
        let Some(until_ns) = self.sources.settled_ns() else { return };
        let threads = match waits {
            // An error now is one at the end, too, where the books are then missing.
            WaitMeter::Bpf(tracer) => tracer.with_stacks(tracer.progress().unwrap_or_default()),
            // They are written at the end of each window.
            WaitMeter::Windows(_) => return,
            WaitMeter::Switches(_) => self.switched_threads(until_ns, ONGOING_MIN_NS),
        };
        self.converter.write_ongoing(&threads, until_ns);
    }

    /// True if processes may enter the control group of which waits are measured. Those of the group of a command
    /// are created there.
    fn follows_members(&self) -> bool {
        let is_group = matches!(self.existing_threads, ExistingThreads::Group(_));
        is_group && self.workload.child().is_none() && matches!(self.waits, Some(WaitMeter::Bpf(_)))
    }

    /// Measures the waits of the threads that have entered the control group: BPF programs add only those that
    /// threads of it create.
    fn follow_members(&mut self, progress: &mut Progress) {
        if !progress.has_begun || !self.follows_members() {
            return;
        }
        let (Some(WaitMeter::Bpf(tracer)), ExistingThreads::Group(directory)) =
            (&self.waits, &self.existing_threads)
        else {
            return;
        };
        let now_ns = sys::monotonic_ns();
        let Members { listed_ns, took_ns, .. } = progress.members;
        let pause_ns = MEMBERS_INTERVAL_NS.max(took_ns.saturating_mul(MEMBERS_PAUSE));
        let is_due = now_ns.saturating_sub(listed_ns) >= pause_ns;
        let has_newcomers = self.converter.take_newcomers();
        if !is_due && !has_newcomers {
            return;
        }
        self.converter.add_unknown_processes(&cgroup::processes(directory));
        let mut members = FxHashSet::default();
        let list = || {
            let mut threads = cgroup::threads(directory);
            members.extend(&threads);
            threads.retain(|tid| !progress.members.threads.contains(tid));
            threads
        };
        // An error now is one at the end, too, where the books are then missing.
        let _ = follow_all(list, |threads| tracer.follow(&threads));
        let took_ns = sys::monotonic_ns().saturating_sub(now_ns);
        progress.members = Members { threads: members, listed_ns: now_ns, took_ns };
    }

    /// Writes the live blocks of all processes, if it was requested or is time for it.
    fn write_snapshot(&mut self, progress: &mut Progress) {
        let now_ns = sys::monotonic_ns();
        let interval_ns = self.snapshot.map_or(u64::MAX, duration_ns);
        let is_due = now_ns.saturating_sub(progress.snapshot_ns) >= interval_ns;
        if !self.workload.take_snapshot_request() && !is_due {
            return;
        }
        progress.snapshot_ns = now_ns;
        if let Some(settled_ns) = self.sources.settled_ns() {
            self.converter.write_snapshot(settled_ns);
        }
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
            waits_ns: now_ns,
            snapshot_ns: now_ns,
            members: Members { listed_ns: now_ns, ..Members::default() },
            has_exited: false,
            delays: DelayHistory::default(),
            interval: Interval::default(),
            clocks: self.enabled,
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
            let asleep_ns = sys::monotonic_ns();
            let processes = self.workload.process_fds();
            let wake = self.sources.wait(&self.signals, &processes, until_ns)?;
            let awake_ns = sys::monotonic_ns().min(until_ns);
            progress.interval.asleep_ns += awake_ns.saturating_sub(asleep_ns);
            if wake.has_signals {
                self.workload.handle_signals(&self.signals);
            }
            let had_begun = progress.has_begun;
            self.poll(progress, wake.has_exit, !processes.is_empty())?;
            if let Some(reason) = self.reason_to_stop(progress) {
                return Ok(reason);
            }
            // Woken for the poll of the workload alone.
            let has_time = sys::monotonic_ns() < next_drain_ns;
            if has_time && !wake.is_due && had_begun == progress.has_begun {
                continue;
            }
            let backlog = self.sources.drain(&mut self.converter, None);
            let ended = self.converter.take_ended();
            if let Some(cpu_time) = &mut progress.cpu_time {
                cpu_time.note_records(ended);
            }
            let timeout = match backlog {
                Backlog::Sideband | Backlog::Samples if self.converter.has_deep_stacks() => {
                    DRAIN_TIMEOUT_DEEP
                }
                Backlog::Sideband => DRAIN_TIMEOUT_SIDEBAND,
                _ if self.converter.needs_changing_facts() || self.follows_members() => {
                    DRAIN_TIMEOUT_CHANGING
                }
                _ => DRAIN_TIMEOUT,
            };
            self.follow_members(progress);
            self.write_ongoing(progress);
            self.write_snapshot(progress);
            self.note_interval(progress);
            let now_ns = sys::monotonic_ns();
            let mut sleep = timeout.min(self.sources.max_sleep());
            if self.converter.has_copy_hints() && progress.has_begun {
                let sampled_ns = now_ns.saturating_sub(progress.begin_ns);
                sleep = sleep.min(Duration::from_nanos(sampled_ns).max(DRAIN_TIMEOUT_FIRST));
            }
            next_drain_ns = now_ns.saturating_add(duration_ns(sleep));
            if now_ns.saturating_sub(progress.flushed_ns) >= duration_ns(FLUSH_INTERVAL) {
                self.converter.sink.flush();
                progress.flushed_ns = now_ns;
            }
        }
    }

    /// Ends the interval since the last drain.
    fn note_interval(&self, progress: &mut Progress) {
        let now = Clocks::read(self.converter.sink.written_ns());
        let before = progress.clocks;
        progress.clocks = now;
        let total_ns = now.now_ns.saturating_sub(before.now_ns);
        // A stop during the drain has left its SIGCONT unread. Reading signals costs a system call.
        if total_ns.saturating_sub(progress.interval.asleep_ns) >= LONG_DELAY_NS {
            self.workload.handle_signals(&self.signals);
        }
        let interval = Interval {
            total_ns,
            output_ns: now.output_ns.saturating_sub(before.output_ns),
            cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
            was_stopped: self.workload.take_continued(),
            ..progress.interval
        };
        progress.interval = Interval::default();
        progress.delays.note(interval, self.sources.lost_records());
    }

    /// Returns the time at which the loop must run even if no drain is due.
    fn next_poll_ns(&self, progress: &Progress) -> u64 {
        let mut next_ns = progress.end_ns;
        if !progress.has_begun {
            next_ns = next_ns.min(progress.begin_ns);
        }
        // A longer interval needs no wake-ups of its own: the drains come as often.
        let interval_ns = progress.poll_interval_ns();
        if self.workload.needs_polling() && interval_ns < duration_ns(DRAIN_TIMEOUT) {
            next_ns = next_ns.min(progress.polled_ns + interval_ns);
        }
        next_ns
    }

    /// True if the CPU time follows from the exact times of all threads, also of those that exit.
    fn measures_cpu_time(&self) -> bool {
        let is_whole = self.waits.as_ref().is_some_and(WaitMeter::measures_all_threads);
        is_whole && self.plan.cpu_mode() == CpuMode::Both
    }

    fn cpu_time(&self, processes: impl Iterator<Item = u32>) -> Option<CpuTimeMeter> {
        let scope = self.plan.cpu_mode();
        Some(CpuTimeMeter::begin(self.cpu_time_scope.clone()?, scope, processes))
    }

    /// Starts sampling once the delay is over, and polls the workload once its interval is over, or if
    /// a process has exited. With `is_watched`, a wait ends with the exit of attached processes.
    fn poll(
        &mut self,
        progress: &mut Progress,
        has_exit: bool,
        is_watched: bool,
    ) -> io::Result<()> {
        let now_ns = sys::monotonic_ns();
        if !progress.has_begun && now_ns >= progress.begin_ns {
            self.sources.enable()?;
            // At once, as its samples count from now on: to list thousands of threads takes long.
            progress.cpu_time = self.cpu_time(self.converter.processes());
            self.measure_existing().map_err(io::Error::other)?;
            progress.has_begun = true;
        }
        // A drain that comes in the second half of the interval saves the wake-up at its end.
        let since_ns = now_ns.saturating_sub(progress.polled_ns);
        let is_due = since_ns >= progress.poll_interval_ns() / 2;
        // For a command this only reads a flag that SIGCHLD has set. An attached process whose
        // descriptor was polled lives unless that was ready.
        if has_exit || is_due && !is_watched || self.workload.child().is_some() {
            progress.has_exited = self.workload.has_exited();
        }
        let exited = self.workload.take_exited();
        // A command that was waited for is not in /proc any more.
        if progress.has_exited || !is_due && exited.is_empty() {
            return Ok(());
        }
        progress.polled_ns = now_ns;
        // To sum the times of 1000 threads takes 50 us.
        let is_measured = self.measures_cpu_time();
        if let Some(cpu_time) = progress.cpu_time.as_mut().filter(|_| !is_measured) {
            let living = self.converter.processes();
            match exited.is_empty() {
                true => cpu_time.poll(living),
                false => cpu_time.poll_exited(&exited, living),
            }
        }
        Ok(())
    }

    /// Starts to measure waiting and to count calls, with the threads that exist after the delay.
    fn measure_existing(&mut self) -> anyhow::Result<()> {
        let Self { sources, converter, existing_threads, .. } = self;
        // Records name orphans, too, but the last of them are not settled yet.
        let mut others = || {
            sources.drain(converter, None);
            converter.threads()
        };
        if let Some(waits) = &self.waits {
            waits.start(existing_threads, &mut others)?;
        }
        if let Some(calls) = &self.calls {
            calls.start()?;
            let list = || [others(), existing_threads.list()].concat();
            follow_all(list, |threads| calls.follow(threads))?;
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

    /// Reads the CPU time used since sampling began, of the modes that are sampled.
    fn end_cpu_time(&self, cpu_time: Option<&mut CpuTimeMeter>) {
        let Some(cpu_time) = cpu_time else { return };
        // The clock of an exited command is gone; wait4(2) has reported its usage instead.
        let child = self.workload.child().filter(|child| child.ended().is_some());
        let ended = child.map(|child| child.pid as u32);
        if let Some((_, usage)) = child.and_then(Child::ended) {
            cpu_time.ended(ended.unwrap_or_default(), usage);
        }
        let living = self.converter.processes().filter(|&pid| Some(pid) != ended);
        cpu_time.end(living);
    }
}

fn exit_text(exit: Exit) -> String {
    match exit {
        Exit::Status(status) => status.to_string(),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}

mod end;
