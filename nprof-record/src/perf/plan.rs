//! The plan of a recording: which events to open, and how. Tries the request from the best form to
//! the one that this kernel and these rights allow. Pure except for a [`TryOpen`], so that tests can
//! refuse every form.
//!
//! The common attributes are found with the CPU clock, which every machine has:
//! 1. *open mode*: on all CPUs, filtered by process; else on the tasks by inheritance, with the
//!    kernel; else without it. Inherited events miss most of short-lived tasks, since every task
//!    waits a full period for its first sample.
//! 2. *features* of newer kernels, dropped newest first while the kernel returns EINVAL or E2BIG.
//! 3. *stacks*: copied and unwound by tables; else by frame pointers, unless the user has chosen.
//!
//! Then each event is tried: a named event has no fallback; the default is the cycle counter, else
//! the CPU clock.

use std::time::Duration;

use nprof_stream::{EventId, Measure};
use nprof_unwind::arch;
use perf_event_open_sys::bindings::perf_event_attr;

use crate::event::{
    self, CpuMode, Event, EventRate, Interrupt, OpenRefusal, PerfEventConfig, SamplingPeriod,
    StackMode, Waiting,
};
use crate::os::open_error;
use crate::perf::record::{RawData, SampleLayout};
use crate::perf::timer_phases::TimerPhases;
use crate::perf::waits::tracer::WaitConfig;
use crate::perf::waits::windows::Windows;

/// A requested event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedEvent {
    /// Its name as requested.
    pub(crate) name: String,
    /// The events that the name may mean, the best first. Never empty.
    pub(crate) candidates: Vec<Event>,
    /// The period, if it was given.
    pub(crate) period: Option<u64>,
    /// The CPU mode, if it was given for this event.
    pub(crate) scope: Option<CpuMode>,
}

impl RequestedEvent {
    /// Returns the samples per second that its period yields on a busy CPU; 0 if unknown. None
    /// without a period.
    pub(crate) fn rate(&self) -> Option<u64> {
        let period = self.period?;
        Some(self.events_per_second()? / period.max(1))
    }

    /// Returns the shortest period with at most this number of samples per second on a busy CPU.
    pub(crate) fn shortest_period(&self, highest: u64) -> u64 {
        self.events_per_second().unwrap_or(0).div_ceil(highest.max(1)).max(1)
    }

    /// Returns the events per second on a busy CPU; 0 if unknown.
    fn events_per_second(&self) -> Option<u64> {
        match self.candidates.first()?.rate {
            EventRate::PerCpuSecond(rate) | EventRate::Typical(rate) => Some(rate),
            EventRate::Unknown | EventRate::EveryEvent => Some(0),
        }
    }
}

/// The events and settings of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Empty if only processes and mappings are followed.
    pub(crate) events: Vec<RequestedEvent>,
    /// Samples per second of events without a period.
    pub(crate) frequency: u64,
    /// `None` for the best that works.
    pub(crate) unwind: Option<StackMode>,
    /// Bytes to copy of each stack, a multiple of 8.
    pub(crate) stack_size: u32,
    /// The CPU mode of events without one of their own.
    pub(crate) scope: CpuMode,
    /// The modes to try, the best first. Never empty.
    pub(crate) open_modes: Vec<OpenMode>,
    /// True if sampling begins later than the command.
    pub(crate) delayed: bool,
}

/// The tasks for which events are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// All tasks, on every CPU.
    #[default]
    System,
    /// The tasks of a control group, on every CPU.
    Group,
    /// Some tasks, and the tasks that they create.
    Task,
}

/// Features of newer kernels; each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KernelFeatures {
    /// Linux 4.4: mmap2, comm_exec, clockid.
    Base,
    /// 5.1: ksymbol.
    Ksymbol,
    /// 6.0: the number of lost records can be read (PERF_FORMAT_LOST).
    Lost,
    /// 6.13: PERF_SAMPLE_READ with inherited events. Its side effect is needed: events stay with
    /// their tasks when the kernel switches between two related ones. Only for [`OpenMode::Task`].
    InheritRead,
}

impl KernelFeatures {
    const DESCENDING: [Self; 4] = [Self::InheritRead, Self::Lost, Self::Ksymbol, Self::Base];
}

/// The attributes that all events of a recording have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommonAttr {
    pub(crate) open_mode: OpenMode,
    /// The widest CPU mode that is allowed.
    pub(crate) scope: CpuMode,
    pub(crate) unwind: StackMode,
    /// Bytes to copy of each stack.
    pub(crate) stack_size: u32,
    pub(crate) features: KernelFeatures,
    /// True if sampling begins later than the command.
    pub(crate) delayed: bool,
}

/// An event that will be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedEvent {
    /// The requested name.
    pub(crate) requested_name: String,
    pub(crate) event: Event,
    /// The reason why it is not the first candidate; empty if it is.
    pub(crate) fallback: String,
    pub(crate) period: SamplingPeriod,
    /// The requested samples per second, if the period follows from them.
    pub(crate) frequency: Option<u64>,
    pub(crate) scope: CpuMode,
}

/// The events of a recording, and how they will be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) events: Vec<PlannedEvent>,
    pub(crate) common: CommonAttr,
    /// True if the kernel reports processes and mappings. If it opens no event at all, they are read
    /// from /proc.
    pub(crate) has_records: bool,
    /// True if events could be opened for all tasks.
    pub(crate) may_open_system: bool,
    /// The requested samples per second.
    pub(crate) frequency: u64,
    /// True if waiting is measured by records of context switches, false if by BPF programs.
    pub(crate) waits_by_switches: bool,
    /// The windows in which waits are recorded; `None` if they are all the time.
    pub(crate) wait_windows: Option<Windows>,
    /// True if only some CPUs are recorded.
    pub(crate) omits_cpus: bool,
}

/// Tries to open events.
pub(crate) trait TryOpen {
    /// Tries to open an event on a CPU, for the tasks of an open mode.
    ///
    /// # Errors
    ///
    /// The errno of perf_event_open(2).
    fn try_open(
        &self,
        attr: &perf_event_attr,
        encoding: &PerfEventConfig,
        open_mode: OpenMode,
        cpu: u32,
    ) -> Result<(), i32>;
}

/// Finds the best plan for some CPUs that can be opened, by trying on one of them.
///
/// # Errors
///
/// See [`OpenRefusal`].
pub(crate) fn plan(
    perf: &impl TryOpen,
    request: &Request,
    cpus: &[u32],
) -> Result<Plan, OpenRefusal> {
    let cpu = cpus.first().copied().unwrap_or(0);
    let first =
        request.events.first().map_or("processes and mappings", |event| event.name.as_str());
    let common = common(perf, request, cpu).map_err(|errno| request.refusal(first, errno))?;
    let planned = |requested| choose(perf, request, &common, requested, cpus);
    let events = request.events.iter().map(planned).collect::<Result<_, _>>()?;
    let may_open_system = match common.open_mode {
        // Events of a group are events of CPUs, too, and need the same rights.
        OpenMode::System | OpenMode::Group => true,
        // It was tried first.
        OpenMode::Task if request.open_modes.contains(&OpenMode::System) => false,
        OpenMode::Task => {
            let system = Request { open_modes: vec![OpenMode::System], ..request.clone() };
            self::common(perf, &system, cpu).is_ok()
        }
    };
    let frequency = request.frequency;
    let waits_by_switches = false;
    let wait_windows = None;
    let has_records = true;
    Ok(Plan {
        events,
        common,
        has_records,
        may_open_system,
        frequency,
        waits_by_switches,
        wait_windows,
        omits_cpus: false,
    })
}

/// Tries whether an event can be opened in any way.
///
/// # Errors
///
/// The errno of perf_event_open(2).
pub(crate) fn try_open(
    perf: &impl TryOpen,
    encoding: &PerfEventConfig,
    cpu: u32,
) -> Result<(), i32> {
    let configs = vec![encoding.clone()];
    let event = Event {
        name: String::new(),
        measure: Measure::Count,
        rate: EventRate::EveryEvent,
        configs,
        value_period: None,
    };
    let name = String::new();
    let requested =
        RequestedEvent { name, candidates: vec![event], period: Some(1 << 20), scope: None };
    let request = Request {
        events: vec![requested],
        frequency: 1,
        unwind: Some(StackMode::None),
        stack_size: 0,
        scope: CpuMode::Both,
        open_modes: vec![OpenMode::System, OpenMode::Task],
        delayed: false,
    };
    plan(perf, &request, &[cpu]).map(drop).map_err(|refusal| refusal.errno)
}

/// Finds the attributes with which the CPU clock can be opened; the last errno if there are none.
fn common(perf: &impl TryOpen, request: &Request, cpu: u32) -> Result<CommonAttr, i32> {
    let clock = event::cpu_clock();
    let mut refused = libc::EACCES;
    for (open_mode, scope) in open_modes(request) {
        for unwind in unwinds(request.unwind) {
            for features in KernelFeatures::DESCENDING {
                if features == KernelFeatures::InheritRead && open_mode != OpenMode::Task {
                    continue;
                }
                let Request { stack_size, delayed, .. } = *request;
                let common = CommonAttr { open_mode, scope, unwind, stack_size, features, delayed };
                let attrs = [
                    common.sideband_attr(0),
                    common.sample_attr(&clock, SamplingPeriod::Fixed(TRIAL), scope, 0),
                ];
                let mut attempts =
                    attrs.iter().map(|attr| perf.try_open(attr, &clock, open_mode, cpu));
                match attempts.find_map(Result::err) {
                    None => return Ok(common),
                    // An older kernel: try with fewer features.
                    Some(errno @ (libc::EINVAL | libc::E2BIG)) => refused = errno,
                    Some(errno) => {
                        refused = errno;
                        break;
                    }
                }
            }
            // Another way to capture stacks needs the same rights.
            if open_error::is_denied(refused) {
                break;
            }
        }
        // Other tasks or modes only help against missing rights.
        if !open_error::is_denied(refused) {
            break;
        }
    }
    Err(refused)
}

/// Finds the first candidate of an event that can be opened.
fn choose(
    perf: &impl TryOpen,
    request: &Request,
    common: &CommonAttr,
    requested: &RequestedEvent,
    cpus: &[u32],
) -> Result<PlannedEvent, OpenRefusal> {
    let requested_name = requested.scope.unwrap_or(request.scope);
    let refused = |errno| request.refusal(&requested.name, errno);
    // Unprivileged users may not sample the kernel.
    let is_less = common.scope != request.widest();
    let scope = match (requested_name, common.scope) {
        (requested_name, _) if !is_less => requested_name,
        (CpuMode::Kernel, CpuMode::User) => return Err(refused(libc::EACCES)),
        (CpuMode::Both, CpuMode::User) => CpuMode::User,
        (requested_name, _) => requested_name,
    };
    let mut fallback = String::new();
    let mut refusal = refused(libc::ENOENT);
    for event in &requested.candidates {
        let period = event.sampling_period(requested.period, request.frequency);
        let has_rate = matches!(event.rate, EventRate::PerCpuSecond(_) | EventRate::Unknown);
        let by_frequency = requested.period.is_none() && has_rate;
        let frequency = by_frequency.then_some(request.frequency);
        // Without a second choice, the event is recorded where it can be.
        let is_on_enough = match requested.candidates.last() == Some(event) {
            true => cpus.iter().any(|&cpu| event.is_on_all(&[cpu])),
            false => event.is_on_all(cpus),
        };
        if !is_on_enough {
            refusal.errno = libc::ENODEV;
            fallback = format!("{}: not all CPUs have such a counter", event.name);
            continue;
        }
        let try_open = |encoding: &PerfEventConfig| {
            let cpu = cpus.iter().copied().find(|&cpu| encoding.is_on(cpu))?;
            let attr = common.sample_attr(encoding, period, scope, 0);
            perf.try_open(&attr, encoding, common.open_mode, cpu).err()
        };
        match event.configs.iter().find_map(try_open) {
            None => {
                let (requested_name, event) = (requested.name.clone(), event.clone());
                return Ok(PlannedEvent {
                    requested_name,
                    event,
                    fallback,
                    period,
                    frequency,
                    scope,
                });
            }
            Some(errno) => refusal.errno = errno,
        }
        // A held counter or missing rights are no reason to measure something else.
        if !open_error::is_missing(refusal.errno) {
            break;
        }
        fallback = format!("{}: {}", event.name, open_error::describe(refusal.errno));
    }
    Err(refusal)
}

/// The period of the CPU clock, in ns, while it is only tried.
const TRIAL: u64 = 1_000_000;

impl Request {
    fn refusal(&self, event: &str, errno: i32) -> OpenRefusal {
        let access = event::access(event, !self.open_modes.contains(&OpenMode::Task));
        OpenRefusal { event: event.to_owned(), errno, access }
    }

    /// Returns the union of the CPU modes of all events.
    fn widest(&self) -> CpuMode {
        let mut scopes = self.events.iter().map(|requested| requested.scope.unwrap_or(self.scope));
        let first = scopes.next().unwrap_or(self.scope);
        if scopes.all(|scope| scope == first) { first } else { CpuMode::Both }
    }
}

fn open_modes(request: &Request) -> Vec<(OpenMode, CpuMode)> {
    let scope = request.widest();
    let mut open_modes: Vec<_> =
        request.open_modes.iter().map(|&open_mode| (open_mode, scope)).collect();
    if scope == CpuMode::Both && request.open_modes.contains(&OpenMode::Task) {
        open_modes.push((OpenMode::Task, CpuMode::User));
    }
    open_modes
}

fn unwinds(requested_name: Option<StackMode>) -> Vec<StackMode> {
    match requested_name {
        Some(unwind) => vec![unwind],
        None => vec![StackMode::Dwarf, StackMode::FramePointer],
    }
}

impl CommonAttr {
    /// Returns the fields of the samples of an event, without those of `read_format`.
    pub(crate) fn layout(&self, period: SamplingPeriod) -> SampleLayout {
        SampleLayout {
            weight: period.weight(),
            read: 0,
            callchain: self.has_callchain(),
            registers: if self.unwind == StackMode::Dwarf { arch::COUNT } else { 0 },
            raw: RawData::None,
            field: None,
        }
    }

    /// Returns the fields of the samples of calls.
    pub(crate) fn call_layout(&self) -> SampleLayout {
        SampleLayout { raw: RawData::Call, ..self.layout(SamplingPeriod::Fixed(2)) }
    }

    /// Returns the fields of the samples of waits.
    pub(crate) fn wait_layout(&self) -> SampleLayout {
        let layout = self.layout(SamplingPeriod::Fixed(2));
        let callchain = layout.callchain || self.needs_chain_for_leaf();
        SampleLayout { raw: RawData::Wait, callchain, ..layout }
    }

    /// True if samples of waits have a call chain although stacks are not captured: their instruction
    /// pointer is in the program that measures them, and the cause is among its callers.
    pub(crate) fn needs_chain_for_leaf(&self) -> bool {
        self.unwind == StackMode::None && self.scope != CpuMode::User
    }

    /// True if an event counts its lost records.
    pub(crate) fn counts_lost(&self) -> bool {
        self.features >= KernelFeatures::Lost
    }

    /// Returns the attributes for events with stacks that a BPF program copies beyond the kernel's copy.
    /// Few stacks are longer than this, and a sample takes the requested space in the ring even if
    /// the stack is shorter.
    pub(crate) fn with_bpf_copier(&self) -> Self {
        Self { stack_size: self.stack_size.min(KERNEL_COPY_BYTES), ..*self }
    }

    /// Returns the bytes of the largest record.
    pub(crate) fn largest_record(&self) -> usize {
        (self.stack_size as usize + 4096).min(1 << 16)
    }

    /// True if samples have a call chain walked by the kernel.
    pub(crate) fn has_callchain(&self) -> bool {
        match self.unwind {
            StackMode::Dwarf => self.scope != CpuMode::User,
            StackMode::FramePointer => true,
            StackMode::None => false,
        }
    }
}

impl Plan {
    /// Returns the plan of a recording without events of the kernel.
    pub(crate) fn without_kernel(request: &Request) -> Self {
        let Request { stack_size, delayed, frequency, .. } = *request;
        let common = CommonAttr {
            open_mode: OpenMode::Task,
            scope: CpuMode::User,
            unwind: StackMode::Dwarf,
            stack_size,
            features: KernelFeatures::Base,
            delayed,
        };
        let (events, has_records, may_open_system) = (Vec::new(), false, false);
        let (waits_by_switches, wait_windows) = (false, None);
        Self {
            events,
            common,
            has_records,
            may_open_system,
            frequency,
            waits_by_switches,
            wait_windows,
            omits_cpus: false,
        }
    }

    /// Returns the period in ns of an event, if a timer takes its samples.
    pub(crate) fn timer_period(&self, event: EventId) -> Option<u64> {
        let planned = self.events.get((event.0 as usize).checked_sub(1)?)?;
        let mut configs = planned.event.configs.iter();
        let is_timer = configs.any(|it| it.interrupt() == Some(Interrupt::Timer));
        match planned.period {
            SamplingPeriod::Fixed(ns) => is_timer.then_some(ns),
            SamplingPeriod::Adaptive(_) => None,
        }
    }

    /// Returns the phases of the timers that take samples of CPUs.
    pub(crate) fn timer_phases(&self, cpus: usize) -> TimerPhases {
        if self.common.open_mode != OpenMode::System {
            // The timers start when their tasks are switched in.
            return TimerPhases::default();
        }
        let periods = (1..=self.events.len() as u32).map(EventId);
        let periods =
            periods.filter_map(|event| Some(Duration::from_nanos(self.timer_period(event)?)));
        TimerPhases::new(periods.max().unwrap_or_default(), cpus)
    }

    /// Returns the first event that measures CPU time, and its number. None if there is none.
    pub(crate) fn clock(&self) -> Option<(usize, &PlannedEvent)> {
        self.events
            .iter()
            .enumerate()
            .find(|(_, planned)| planned.event.measure == Measure::CpuTime)
    }

    /// Returns the interval in ns of the timers that sample CPU time, if a period was requested.
    pub(crate) fn requested_clock_period(&self) -> Option<u64> {
        let (number, planned) = self.clock()?;
        let is_requested = planned.frequency.is_none();
        self.timer_period(EventId(number as u32 + 1)).filter(|_| is_requested)
    }

    /// Returns the CPU mode in which CPU time is measured.
    pub(crate) fn cpu_mode(&self) -> CpuMode {
        self.clock().map_or(self.common.scope, |(_, planned)| planned.scope)
    }

    /// Returns the number of the event of a kind of waiting, and its interval in ns. None if it is not
    /// recorded.
    pub(crate) fn waiting(&self, waiting: Waiting) -> Option<(EventId, u64)> {
        let number = self.events.iter().position(|it| it.event.waiting() == Some(waiting))?;
        let SamplingPeriod::Fixed(period) = self.events[number].period else { return None };
        Some((EventId(number as u32 + 1), period))
    }

    /// Returns the number of the event that counts calls. None if it is not recorded.
    pub(crate) fn calls(&self) -> Option<EventId> {
        let number = self.events.iter().position(|planned| planned.event.is_calls())?;
        Some(EventId(number as u32 + 1))
    }

    /// Returns the number of the event with timers that sample the CPU time which the programs for waiting measure,
    /// and its interval in ns. None if there is none: without the kernel's part, or that on other CPUs, the
    /// time of samples is another one.
    pub(crate) fn measured_timer(&self) -> Option<(EventId, u64)> {
        let (number, planned) = self.clock()?;
        let event = EventId(number as u32 + 1);
        let is_whole = planned.scope == CpuMode::Both && !self.omits_cpus;
        let is_measured = is_whole && self.wait_windows.is_none();
        Some((event, self.timer_period(event).filter(|_| is_measured)?))
    }

    /// Returns the settings of the programs that measure waiting. None if no event needs them.
    pub(crate) fn wait_config(&self) -> Option<WaitConfig> {
        let periods = [Waiting::Blocked, Waiting::Runnable].map(|kind| self.waiting(kind));
        let [blocked_period, runnable_period] =
            periods.map(|it| it.map_or(0, |(_, period)| period));
        let is_needed = periods.iter().any(Option::is_some);
        let has_wakes = self.waiting(Waiting::Wakes).is_some();
        let copied_bytes = match self.common.unwind {
            StackMode::Dwarf => self.common.with_bpf_copier().stack_size,
            _ => 0,
        };
        let has_windows = self.wait_windows.is_some();
        is_needed.then_some(WaitConfig {
            blocked_period,
            runnable_period,
            timer_period: self.measured_timer().map_or(0, |(_, period)| period),
            has_wakes,
            has_windows,
            copied_bytes,
        })
    }

    /// Measures waiting by records of context switches, for a reason. Events whose period follows from
    /// the frequency have at most `frequency_max` samples per second.
    pub(crate) fn measure_waits_by_switches(&mut self, reason: &str, frequency_max: u64) {
        self.waits_by_switches = true;
        for planned in self.events.iter_mut().filter(|it| it.event.waiting().is_some()) {
            reason.clone_into(&mut planned.fallback);
            if let Some(hertz) = planned.frequency.filter(|&hertz| hertz > frequency_max) {
                planned.frequency = Some(frequency_max);
                if let SamplingPeriod::Fixed(period) = &mut planned.period {
                    *period = period.saturating_mul(hertz) / frequency_max.max(1);
                }
            }
        }
    }

    /// Returns the first event of waiting, and its interval in ns. None if there is none.
    pub(crate) fn first_wait(&self) -> Option<(EventId, u64)> {
        self.waiting(Waiting::Blocked).or_else(|| self.waiting(Waiting::Runnable))
    }

    /// Returns the indices of the events that may run the BPF stack copier: the first that can
    /// run it, and those that never interrupt that one. If an event interrupts another that runs a
    /// program, the kernel does not run it a second time and drops the sample
    /// (`bpf_overflow_handler`, kernel/events/core.c).
    pub(crate) fn with_bpf_copier(&self) -> Vec<usize> {
        let can_be = |planned: &&PlannedEvent| {
            let is_traced = planned.event.configs.iter().any(PerfEventConfig::is_traced);
            !is_traced && !planned.event.is_written_by_bpf()
        };
        let dwarf = self.common.unwind == StackMode::Dwarf;
        let Some(first) = self.events.iter().filter(|_| dwarf).find(can_be) else {
            return Vec::new();
        };
        let kind = first.event.configs.first().and_then(PerfEventConfig::interrupt);
        let is_like = |planned: &PlannedEvent| {
            let mut kinds = planned.event.configs.iter().map(PerfEventConfig::interrupt);
            kind.is_some() && kinds.all(|it| it == kind)
        };
        let is_extended = |planned: &PlannedEvent| std::ptr::eq(planned, first) || is_like(planned);
        let numbered = self.events.iter().enumerate();
        numbered.filter(|(_, planned)| is_extended(planned)).map(|(number, _)| number).collect()
    }
}

/// Bytes of a stack that the kernel copies if a BPF program copies the rest.
const KERNEL_COPY_BYTES: u32 = 8 << 10;

#[cfg(test)]
mod tests;
