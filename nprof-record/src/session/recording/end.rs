//! The end of a recording: its last record, and its summary.

use std::collections::BTreeMap;

use nprof_stream::{End, EventId, Record};

use crate::convert::counts::Sum;
use crate::convert::dictionary::Sink;
use crate::event::{PreloadPlan, PreloadedEvent};
use crate::image::kept_images::KeptImages;
use crate::os::procfs;
use crate::perf::plan::{OpenMode, Plan};
use crate::session::cpu_time::CpuTimeScope;
use crate::session::launch::Child;
use crate::session::recording::{Measured, Outcome, Reason, Recording};
use crate::session::summary::{CallSummary, Summary};
use crate::session::wait_meter::WaitMeter;
use crate::sys;

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

impl Recording {
    /// Ends the stream, and summarizes the recording.
    pub(super) fn end(self, reason: Reason, measured: Measured) -> Outcome {
        let Measured { used_ns, outside_ns, left_group, mode_share, sampled_ns, delay } = measured;
        let is_by_thread = match self.cpu_time_scope {
            // The group of a command has its threads only; another one may get threads that are not followed.
            Some(CpuTimeScope::Processes | CpuTimeScope::OwnCgroup(_)) => true,
            Some(CpuTimeScope::Cgroup(_) | CpuTimeScope::Cpus(_)) | None => false,
        };
        // The scheduler charges a thread from its wake-up on a CPU on which another one still runs.
        let is_exact = is_by_thread && self.measures_cpu_time();
        let Self {
            plan,
            mut converter,
            workload,
            existing_descendants,
            has_priority,
            waits,
            calls,
            ..
        } = self;
        let may_miss_processes = converter.may_miss_processes();
        let has_ended = matches!(reason, Reason::Exit) && workload.child().is_some();
        let remaining = if has_ended { converter.living_processes() } else { 0 };
        let is_by_task = plan.common.open_mode == OpenMode::Task;
        let kept = converter.kept_images();
        let times = converter.time_sums();
        // A stream that ends early lacks the processes that would have connected later.
        let missed = converter.missed().filter(|_| !matches!(reason, Reason::Closed));
        let preloaded = converter.preload_plan().cloned();
        let unseen = missed
            .as_ref()
            .map(|it| it.unseen.processes + it.bypassed.processes + it.unconnected.processes);
        let unmeasured = waits.as_ref().map_or(0, WaitMeter::missed);
        let exact_ns = times.filter(|_| is_exact).map(|times| times.cpu_ns);
        let task_ns = exact_ns.or(used_ns);
        let unread_images = converter.images_without_descriptors();
        let unread_stacks = waits.as_ref().map_or(0, WaitMeter::refused);
        let rare_looks_ns = waits.as_ref().and_then(WaitMeter::rare_looks_ns);
        let [missed_routines, unreadable] =
            calls.as_ref().map_or([0; 2], |tracer| tracer.missed_counts());
        let calls = calls.zip(converter.calls()).map(|(tracer, state)| CallSummary {
            calls: tracer.calls(),
            written: state.written,
            functions: tracer.list.points.len(),
            cost_ns: tracer.cost_ns(),
            slow_cost_ns: tracer.slow_cost_ns(),
            taken_off: state.taken_off.clone(),
            missed: state.missed,
            missed_threads: tracer.missed_threads(),
            missed_routines,
            unended: tracer.without_ends(),
            unreadable,
            failure: tracer.failure(),
        });
        let (counts, sums) = (converter.counts, converter.sums);
        let mut stream = converter.sink;
        let totals = stream.totals();
        let own = sys::own_usage();
        let clock = plan.clock().and_then(|(number, _)| sums.get(number).copied());
        let cpu_mode = plan.cpu_mode();
        // Losses of several events cannot be told apart by the CPU time.
        let has_one_event = plan.events.len() == 1 && preloaded.is_none();
        let mut summary = Summary {
            samples: totals.samples,
            incomplete: counts.incomplete,
            stitched: counts.stitched,
            lost: counts.lost,
            lost_others: counts.lost_others,
            lost_preloaded: counts.lost_preloaded,
            sideband_lost: counts.sideband_lost,
            may_miss_processes,
            // Events of CPUs and groups stay.
            ended_by_exec: if is_by_task { counts.ended_by_exec } else { 0 },
            compat: counts.compat,
            negative: named_counts(&plan, &counts.negative),
            unreadable: counts.unreadable,
            outside_ns,
            left_group,
            mode_share,
            existing_descendants,
            remaining,
            late: stream.late(),
            task_ns,
            cpu_mode,
            clock,
            recorder_ns: own.user_ns + own.kernel_ns,
            // getrusage(2) reports at least the peak of the process that we were forked from.
            recorder_bytes: procfs::own_peak_bytes().unwrap_or(own.peak_bytes),
            frequency: plan.frequency,
            period_ns: plan.requested_clock_period(),
            elapsed_ns: sampled_ns,
            times,
            unmeasured,
            calls,
            has_no_calls: has_no_calls(preloaded.as_ref(), &sums),
            preloaded,
            missed: missed.unwrap_or_default(),
            unread_stacks,
            rare_looks_ns,
            unread_images,
            waits_by_switches: plan.waits_by_switches,
            has_wait_windows: plan.wait_windows.is_some(),
            is_weighed: !plan.events.is_empty()
                && plan.events.iter().all(|planned| planned.event.is_weighed()),
            delay,
            has_reader: stream.has_reader,
            open_mode: plan.common.open_mode,
            may_open_system: plan.may_open_system,
            has_priority,
            subject: workload.subject(),
            is_in_namespace: procfs::is_in_pid_namespace(),
        };
        if has_one_event {
            summary.bound_losses();
        }
        if is_by_thread {
            summary.leave_out_low_time();
        }
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
            unseen,
            late: Some(summary.late),
            incomplete: Some(summary.incomplete.values().sum()),
            task_ns: summary.task_ns,
            sampled_ns: clock.map(|sum| sum.weight),
            wall_ns: times.map(|times| times.wall_ns),
            runnable_ns: times.map(|times| times.runnable_ns),
            blocked_ns: times.map(|times| times.blocked_ns),
            recorder_ns: Some(summary.recorder_ns),
            recorder_bytes: Some(summary.recorder_bytes),
            stitched: Some(summary.stitched),
            ..End::default()
        })));
        // The stream ends first: its reader need not wait for copies.
        let error = stream.finish().err();
        Outcome { error, summary, kept: kept.map(KeptImages::finish) }
    }
}

/// True if the library should have recorded calls, and has recorded none.
fn has_no_calls(plan: Option<&PreloadPlan>, sums: &[Sum]) -> bool {
    let event = plan.and_then(|plan| plan.id(PreloadedEvent::Calls));
    let sum = event.and_then(|event| sums.get((event.0 as usize).wrapping_sub(1)));
    sum.is_some_and(|sum| sum.samples == 0)
}

/// Returns counts with the names of their events.
fn named_counts(plan: &Plan, counts: &BTreeMap<EventId, u64>) -> Vec<(String, u64)> {
    let name = |event: &EventId| plan.events.get((event.0 as usize).wrapping_sub(1));
    let named = counts.iter().filter_map(|(event, count)| Some((name(event)?, *count)));
    named.map(|(planned, count)| (planned.event.name.clone(), count)).collect()
}
