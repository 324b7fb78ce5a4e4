//! Which events to open, and how: what was asked for, tried from the best to what this kernel
//! and these rights allow. Pure but for a [`TryOpen`], so that every refusal can be played.
//!
//! What all events have in common is found with the CPU clock, which every machine has:
//! 1. *reach*: all CPUs, filtered by process; else the tasks themselves by inheritance, with
//!    the kernel's part; else without it. Inherited events lose most of what short-lived tasks
//!    do: every task waits a full period for its first sample.
//! 2. *features* of newer kernels, dropped newest first while the kernel says EINVAL or E2BIG.
//! 3. *stacks*: copied and unwound by tables; else, when the choice is ours, by frame pointers.
//!
//! Then each event is tried: what was named, and nothing else; for the default the cycle
//! counter, else the CPU clock.

use nprof_stream::Measure;
use perf_event_open_sys::bindings::perf_event_attr;

use crate::arch;
use crate::event::{self, CpuMode, Event, EventRate, PerfEventConfig, SamplingPeriod, StackMode};
use crate::os::open_error::{self, OpenRefusal};
use crate::perf::record::SampleLayout;

/// One event that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedEvent {
    /// As it was named.
    pub(crate) name: String,
    /// What it may be, the best first. Never empty.
    pub(crate) candidates: Vec<Event>,
    /// Events between two samples, if it was given.
    pub(crate) interval: Option<u64>,
    /// What is sampled, if it was given for this event.
    pub(crate) scope: Option<CpuMode>,
}

impl RequestedEvent {
    /// The samples per second its interval makes on a busy CPU, where that is known.
    pub(crate) fn rate(&self) -> Option<u64> {
        let interval = self.interval?;
        match self.candidates.first()?.rate {
            EventRate::PerCpuSecond(rate) | EventRate::Typical(rate) => {
                Some(rate / interval.max(1))
            }
            EventRate::Unknown | EventRate::EveryEvent => Some(0),
        }
    }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Never empty.
    pub(crate) events: Vec<RequestedEvent>,
    /// Samples per second, where no interval is given.
    pub(crate) frequency: u64,
    /// None: what works best.
    pub(crate) unwind: Option<StackMode>,
    /// Bytes copied of each stack, a multiple of 8.
    pub(crate) stack_size: u32,
    /// What is sampled, where it is not given for an event.
    pub(crate) scope: CpuMode,
    /// What may be tried, the best first. Never empty.
    pub(crate) open_modes: Vec<OpenMode>,
    /// Whether sampling begins later than the command.
    pub(crate) delayed: bool,
}

/// Whose samples the kernel is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Everyone's, on every CPU.
    System,
    /// Those of a control group's tasks, on every CPU.
    Group,
    /// Those of some tasks and the tasks they will make.
    Task,
}

/// Features of newer kernels, each level with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KernelFeatures {
    /// Linux 4.4: mmap2, comm_exec, clockid.
    Base,
    /// 5.1: ksymbol.
    Ksymbol,
    /// 6.0: the number of lost records can be read.
    Lost,
    /// 6.13: values in inherited samples, which has the side effect that events stay with their
    /// tasks when two related ones are switched. Only for [`OpenMode::Task`].
    InheritRead,
}

impl KernelFeatures {
    const DESCENDING: [Self; 4] = [Self::InheritRead, Self::Lost, Self::Ksymbol, Self::Base];
}

/// What all events of a recording have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommonAttr {
    pub(crate) open_mode: OpenMode,
    /// What may be sampled at most.
    pub(crate) scope: CpuMode,
    pub(crate) unwind: StackMode,
    /// Bytes copied of each stack.
    pub(crate) stack_size: u32,
    pub(crate) features: KernelFeatures,
    /// Whether sampling begins later than the command.
    pub(crate) delayed: bool,
}

/// An event that will be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedEvent {
    /// The name that was asked for.
    pub(crate) requested_name: String,
    pub(crate) event: Event,
    /// Why it is not the first choice; empty when it is.
    pub(crate) fallback: String,
    pub(crate) interval: SamplingPeriod,
    /// Samples per second asked for, where the interval follows from it.
    pub(crate) frequency: Option<u64>,
    pub(crate) scope: CpuMode,
}

/// What will be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) events: Vec<PlannedEvent>,
    pub(crate) common: CommonAttr,
    /// Samples per second asked for.
    pub(crate) frequency: u64,
}

/// Opens events, and says the errno if it cannot.
pub(crate) trait TryOpen {
    /// Tries to open an event, on CPU `cpu`, of whom `reach` says.
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

/// Finds the best that can be opened, by trying on one CPU.
///
/// # Errors
///
/// See [`OpenRefusal`].
pub(crate) fn plan(perf: &impl TryOpen, request: &Request, cpu: u32) -> Result<Plan, OpenRefusal> {
    let first = &request.events[0];
    let common = common(perf, request, cpu)
        .map_err(|errno| OpenRefusal { event: first.name.clone(), errno })?;
    let planned = |requested| choose(perf, request, &common, requested, cpu);
    let events = request.events.iter().map(planned).collect::<Result<_, _>>()?;
    Ok(Plan { events, common, frequency: request.frequency })
}

/// Whether an event can be opened in any way: the errno if it cannot.
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
    };
    let name = String::new();
    let requested =
        RequestedEvent { name, candidates: vec![event], interval: Some(1 << 20), scope: None };
    let request = Request {
        events: vec![requested],
        frequency: 1,
        unwind: Some(StackMode::None),
        stack_size: 0,
        scope: CpuMode::Both,
        open_modes: vec![OpenMode::System, OpenMode::Task],
        delayed: false,
    };
    plan(perf, &request, cpu).map(drop).map_err(|refusal| refusal.errno)
}

/// Finds what the CPU clock can be opened with; the last errno if it cannot.
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
                    Some(errno @ (libc::EINVAL | libc::E2BIG)) => refused = errno,
                    Some(errno) => {
                        refused = errno;
                        break;
                    }
                }
            }
            if open_error::is_denied(refused) {
                break;
            }
        }
        if !open_error::is_denied(refused) {
            break;
        }
    }
    Err(refused)
}

/// Finds what of an event's candidates can be opened.
fn choose(
    perf: &impl TryOpen,
    request: &Request,
    common: &CommonAttr,
    requested: &RequestedEvent,
    cpu: u32,
) -> Result<PlannedEvent, OpenRefusal> {
    let requested_name = requested.scope.unwrap_or(request.scope);
    let refused = |errno| OpenRefusal { event: requested.name.clone(), errno };
    // Less may be open to us than was asked for.
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
        let interval = event.sampling_period(requested.interval, request.frequency);
        let has_rate = matches!(event.rate, EventRate::PerCpuSecond(_) | EventRate::Unknown);
        let by_frequency = requested.interval.is_none() && has_rate;
        let frequency = by_frequency.then_some(request.frequency);
        let try_open = |encoding: &PerfEventConfig| {
            let cpu = encoding.cpus.as_ref().and_then(|cpus| cpus.first()).copied().unwrap_or(cpu);
            let attr = common.sample_attr(encoding, interval, scope, 0);
            perf.try_open(&attr, encoding, common.open_mode, cpu)
        };
        match event.configs.iter().find_map(|encoding| try_open(encoding).err()) {
            None => {
                let (requested_name, event) = (requested.name.clone(), event.clone());
                return Ok(PlannedEvent {
                    requested_name,
                    event,
                    fallback,
                    interval,
                    frequency,
                    scope,
                });
            }
            Some(errno) => refusal.errno = errno,
        }
        if !open_error::is_missing(refusal.errno) {
            break;
        }
        fallback = format!("{}: {}", event.name, open_error::describe(refusal.errno));
    }
    Err(refusal)
}

/// How often the CPU clock ticks while it is only tried, ns.
const TRIAL: u64 = 1_000_000;

impl Request {
    /// What is to be sampled of any event.
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
    /// The fields of the samples of an event.
    pub(crate) fn layout(&self, interval: SamplingPeriod) -> SampleLayout {
        let lost = usize::from(self.features >= KernelFeatures::Lost);
        SampleLayout {
            weight: interval.weight(),
            read: if self.features == KernelFeatures::InheritRead { 1 + lost } else { 0 },
            callchain: self.has_callchain(),
            registers: if self.unwind == StackMode::Dwarf { arch::COUNT } else { 0 },
        }
    }

    /// Whether an event, read, tells how many of its records were lost.
    pub(crate) fn counts_lost(&self) -> bool {
        self.features >= KernelFeatures::Lost
    }

    /// The same where a program copies what the kernel leaves of a stack: few are longer than
    /// this, and a sample takes as much room as is asked for, whether there is so much or not.
    pub(crate) fn with_bpf_copier(&self) -> Self {
        Self { stack_size: self.stack_size.min(KERNEL_COPY_BYTES), ..*self }
    }

    /// The largest record, bytes.
    pub(crate) fn largest_record(&self) -> usize {
        (self.stack_size as usize + 4096).min(1 << 16)
    }

    /// Whether samples carry a call chain of the kernel's.
    pub(crate) fn has_callchain(&self) -> bool {
        match self.unwind {
            StackMode::Dwarf => self.scope != CpuMode::User,
            StackMode::FramePointer => true,
            StackMode::None => false,
        }
    }
}

impl Plan {
    /// Returns the first event that measures CPU time, and its number. None if there is none.
    pub(crate) fn clock(&self) -> Option<(usize, &PlannedEvent)> {
        self.events
            .iter()
            .enumerate()
            .find(|(_, planned)| planned.event.measure == Measure::CpuTime)
    }

    /// The numbers of the events whose stacks a program copies, where there can be one: the first
    /// that can run it, and those that never interrupt it. Where an event interrupts another that
    /// runs a program, the kernel does not run one again, and drops the sample
    /// (`bpf_overflow_handler`, kernel/events/core.c).
    pub(crate) fn with_bpf_copier(&self) -> Vec<usize> {
        let can_be =
            |planned: &&PlannedEvent| !planned.event.configs.iter().any(PerfEventConfig::is_traced);
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

    /// How many bytes of records a busy CPU makes per second, at most, if events with an
    /// interval of their own keep to the rate of the others, and those of which each counts to
    /// [`EACH`]. A program copies the stacks of the events of the numbers `extended`.
    pub(crate) fn bytes_per_second(&self, with_bpf_copier: &[usize]) -> u64 {
        let bytes = |(number, planned): (usize, &PlannedEvent)| {
            let stack = match self.common.unwind {
                StackMode::Dwarf if with_bpf_copier.contains(&number) => {
                    self.common.with_bpf_copier().stack_size
                }
                StackMode::Dwarf => self.common.stack_size,
                _ => 0,
            };
            let rate = match planned.interval {
                SamplingPeriod::Fixed(1) => EACH,
                _ => self.frequency,
            };
            rate.saturating_mul(u64::from(stack) + 1024)
        };
        self.events.iter().enumerate().map(bytes).fold(0, u64::saturating_add)
    }
}

/// How many samples a second room is made for where every single event is one.
const EACH: u64 = 10_000;

/// The bytes of a ring for samples, at most. The kernel clears them all before the command may
/// start, which takes a millisecond or two for each MiB.
const RING_MAX: u64 = 32 << 20;

/// The bytes of all rings for samples together, at most.
const RINGS_MAX: u64 = 256 << 20;

/// The bytes of a stack that the kernel copies where a program copies the rest.
const KERNEL_COPY_BYTES: u32 = 8 << 10;

/// How large the rings for samples are at first, bytes: a quarter of a second's worth per CPU, and
/// `room` for what programs write.
pub(crate) fn ring_size(bytes_per_second: u64, room: u64, cpus: usize, page: usize) -> usize {
    let share = RINGS_MAX / cpus.max(1) as u64;
    let requested = (bytes_per_second / 4).saturating_add(room);
    let requested = requested.min(share).min(RING_MAX).max(page as u64);
    let size = usize::try_from(requested).unwrap_or(usize::MAX);
    // A power of two, and not below a page, which is one. Upwards: what is below a quarter of a
    // second's worth is too little when the recorder has to wait for a CPU.
    match size.checked_next_power_of_two() {
        Some(up) if up as u64 <= share => up,
        _ => 1 << size.ilog2(),
    }
}

#[cfg(test)]
mod tests;
