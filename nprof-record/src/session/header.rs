//! The start of the stream: the run, the recorder and the events as they were opened.

use anyhow::Context;
use nprof_cli::shell;
use nprof_stream::{Event, EventId, Head, RunId, Step};

use crate::event::{CpuMode, PreloadPeriod, PreloadPlan, SamplingPeriod, StackMode, Subject};
use crate::os::machine;
use crate::perf::calls::data::SLICE_NS;
use crate::perf::calls::routines::CountedEvent;
use crate::perf::plan::{Plan, PlannedEvent};
use crate::sys;

/// Returns the head of a recording of `command`: a command line, `pid N` or `system`. `service` is its service,
/// as `NAME` or `NAME@VERSION`.
///
/// # Errors
///
/// If there are no random bits for the id of the run.
pub(crate) fn head(command: Vec<u8>, service: &str) -> anyhow::Result<Head> {
    // Names of services have no @; versions may.
    let (service, service_version) = service.split_once('@').unwrap_or((service, ""));
    let utc = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Ok(Head {
        run: RunId(sys::random().context("cannot get random bits")?),
        clock: b"monotonic".to_vec(),
        time: Some(sys::monotonic_ns()),
        utc: utc.ok().and_then(|utc| u64::try_from(utc.as_nanos()).ok()),
        host: machine::sysctl("kernel/hostname").into(),
        os: machine::system().into(),
        arch: std::env::consts::ARCH.into(),
        cpu: machine::cpu_model().into(),
        cpus: Some(machine::online_cpus().len() as u64),
        page: Some(sys::page_size() as u64),
        command,
        service: service.into(),
        service_version: service_version.into(),
        more: Vec::new(),
    })
}

/// Returns the step of this program, with its command line.
pub(crate) fn step() -> Step {
    Step {
        tool: b"nprof-record".to_vec(),
        version: env!("CARGO_PKG_VERSION").into(),
        command: shell::quoted(std::env::args_os()),
        ..Step::default()
    }
}

/// Returns the definitions of the events as they were opened; their ids count from 1.
/// `call_cost_ns` is the CPU time that counting adds to a call.
pub(crate) fn events(
    plan: &Plan,
    preload: Option<&PreloadPlan>,
    call_cost_ns: Option<u64>,
) -> Vec<Event> {
    let numbered = (1..).zip(&plan.events);
    let opened = numbered.map(|(id, planned)| {
        let overhead_ns = call_cost_ns.filter(|_| planned.event.is_calls());
        Event { overhead_ns, ..event(EventId(id), planned, plan) }
    });
    opened.chain(preload.into_iter().flat_map(preloaded)).collect()
}

/// Returns the definition of the event that is counted by routine. Its name is not that of the same event if
/// it is also sampled: reports would add both.
pub(crate) fn counted(id: EventId, counted: &CountedEvent) -> Event {
    let CountedEvent { event, scope, .. } = counted;
    Event {
        id,
        name: format!("{}.exact", event.name).into(),
        unit: event.unit().into(),
        measure: event.measure.clone(),
        period: Some(1),
        scope: scope.word().into(),
        capture: b"bpf".to_vec(),
        exact_ns: Some(SLICE_NS),
        ..Event::default()
    }
}

/// Returns the definitions of the events of the preloaded library.
fn preloaded(plan: &PreloadPlan) -> impl Iterator<Item = Event> {
    plan.events().map(|(event, id)| {
        let period = match event.subject() {
            Subject::Heap => plan.heap_period,
            Subject::Calls => plan.call_period,
            Subject::Descriptors => PreloadPeriod::Fixed(1),
        };
        let (period, frequency) = match period {
            PreloadPeriod::Fixed(distance) => (Some(distance), None),
            PreloadPeriod::Adaptive(samples_per_second) => (None, Some(samples_per_second)),
        };
        // Sums of all calls are exact, however short the slice of time.
        let exact_ns = (event.subject() == Subject::Calls && period == Some(1)).then_some(1);
        Event {
            id,
            name: event.name().into(),
            unit: event.measure().unit().into(),
            measure: event.measure(),
            period,
            frequency,
            scope: CpuMode::User.word().into(),
            unwind: StackMode::Dwarf.word().into(),
            capture: b"preload".to_vec(),
            exact_ns,
            ..Event::default()
        }
    })
}

fn event(id: EventId, planned: &PlannedEvent, plan: &Plan) -> Event {
    let period = match planned.period {
        // Samples of calls have any weight.
        SamplingPeriod::Fixed(_) if planned.event.is_calls() => None,
        SamplingPeriod::Fixed(events) => Some(events),
        SamplingPeriod::Adaptive(_) => None,
    };
    let period = if planned.event.is_weighed() { planned.event.value_period } else { period };
    let name = &planned.event.name;
    let is_wait = planned.event.waiting().is_some();
    let windows = plan.wait_windows.filter(|_| is_wait);
    // A sample in a window stands for the time around it, too.
    let period = period.map(|period| period.saturating_mul(windows.map_or(1, |it| it.of)));
    let duty = windows.map(|it| format!("{}/{}", it.length_ns, it.interval_ns()));
    let capture = if is_wait && plan.waits_by_switches {
        "switches"
    } else if planned.event.is_written_by_bpf() {
        "bpf"
    } else {
        ""
    };
    let is_calls = planned.event.is_calls();
    let stack_mode = match plan.common.unwind {
        // The kernel walks no stack of a thread that another one reads.
        StackMode::FramePointer if is_wait && plan.waits_by_switches => StackMode::Dwarf,
        stack_mode => stack_mode,
    };
    // Stated only if it differs from the name of the event.
    let requested = if planned.requested_name == *name { "" } else { &planned.requested_name };
    Event {
        id,
        name: name.clone().into(),
        requested: requested.into(),
        unit: planned.event.unit().into(),
        measure: planned.event.measure.clone(),
        period,
        frequency: planned.frequency.filter(|_| windows.is_none()),
        scope: planned.scope.word().into(),
        unwind: stack_mode.word().into(),
        fallback: planned.fallback.clone().into(),
        capture: capture.into(),
        duty: duty.unwrap_or_default().into(),
        exact_ns: is_calls.then_some(SLICE_NS),
        ..Event::default()
    }
}
