//! An event that can be opened, its sampling period, and its fields in `struct perf_event_attr`.

use std::ffi::CString;

use nprof_stream::Measure;
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_BPF_OUTPUT, PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK,
    PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, perf_event_attr,
};

use crate::event::field::WeightField;

/// The default event: CPU cycles if the machine counts them, otherwise the CPU clock.
pub(crate) const DEFAULT_EVENT: &str = "nprof.clk_unhalted";

/// An event that can be opened on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The name in the stream.
    pub(crate) name: String,
    /// The quantity that its weights measure.
    pub(crate) measure: Measure,
    pub(crate) rate: EventRate,
    /// The descriptions to open. On hybrid machines there is one for each kind of core, which
    /// together are one event. Never empty.
    pub(crate) configs: Vec<PerfEventConfig>,
    /// The distance between two samples in the unit of the field that weighs them. `None` if each
    /// event is sampled, and for events that no field weighs.
    pub(crate) value_period: Option<u64>,
}

/// A kind of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// For anything but a CPU.
    Blocked,
    /// For a CPU.
    Runnable,
    /// The waiting that others have ended.
    Wakes,
}

/// The frequency of an event, from which its sampling period is derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventRate {
    /// Events per second on a busy CPU.
    PerCpuSecond(u64),
    /// Approximate events per second in programs that cause many; other programs cause none.
    Typical(u64),
    /// From none to millions of events per second.
    Unknown,
    /// Any rate: each event is sampled.
    EveryEvent,
}

/// The number of events from one sample to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SamplingPeriod {
    /// This number of events.
    Fixed(u64),
    /// The kernel adapts the period to this number of samples per second.
    Adaptive(u64),
}

/// The fields of `struct perf_event_attr` that select an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PerfEventConfig {
    /// `type`.
    pub(crate) kind: u32,
    pub(crate) config: u64,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
    pub(crate) config3: u64,
    /// For probes, the target of the pointer in `config1`: a file's path or a function's name.
    pub(crate) text: Option<CString>,
    /// The CPUs on which it can be opened. None for all CPUs.
    pub(crate) cpus: Option<Vec<u32>>,
    /// True if the event occurs only in the kernel: `exclude_kernel` would exclude all of them
    /// (`perf_tp_event_match` and `perf_exclude_event`, kernel/events/core.c).
    pub(crate) only_kernel: bool,
    /// The field that samples take their weight from; `None` if that is the period.
    pub(crate) field: Option<WeightField>,
}

impl PerfEventConfig {
    /// True if the event is a tracepoint or a probe.
    pub(crate) fn is_traced(&self) -> bool {
        self.kind == PERF_TYPE_TRACEPOINT || self.text.is_some()
    }
}

/// The interrupt that takes a sample. Samples of the same kind never interrupt each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// A high-resolution timer, for the kernel's clocks.
    Timer,
    /// The overflow of a processor counter.
    Counter,
}

/// The way stacks are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackMode {
    /// Stack copies, unwound by the unwind tables of the images.
    Dwarf,
    /// The kernel follows frame pointers.
    FramePointer,
    /// No stacks.
    None,
}

/// The CPU modes that are sampled: user code, the kernel, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CpuMode {
    User,
    Kernel,
    #[default]
    Both,
}

/// The shortest period of the kernel's clocks (`perf_swevent_hrtimer`, kernel/events/core.c).
const CLOCK_PERIOD_MIN_NS: u64 = 10_000;

impl Event {
    /// Returns the kind of waiting that the event measures. None for other events.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        match (&self.measure, self.name.as_str()) {
            (Measure::WaitTime, "blocked") => Some(Waiting::Blocked),
            (Measure::WaitTime, "runnable") => Some(Waiting::Runnable),
            (Measure::WaitTime, "wakes") => Some(Waiting::Wakes),
            _ => None,
        }
    }

    /// True if each of these CPUs has the event.
    pub(crate) fn is_on_all(&self, cpus: &[u32]) -> bool {
        cpus.iter().all(|cpu| self.configs.iter().any(|config| config.is_on(*cpu)))
    }

    /// True if its samples are calls of the functions of a list.
    pub(crate) fn is_calls(&self) -> bool {
        self.measure == calls_measure()
    }

    /// True if a BPF program writes its samples.
    pub(crate) fn is_written_by_bpf(&self) -> bool {
        self.waiting().is_some() || self.is_calls()
    }

    /// True if samples take their weight from a field.
    pub(crate) fn is_weighed(&self) -> bool {
        self.configs.iter().any(|config| config.field.is_some())
    }

    /// Returns the unit of the weights.
    pub(crate) fn unit(&self) -> &'static str {
        match self.measure {
            // The value of a field is no number of events.
            Measure::Count if self.is_weighed() => "value",
            _ => self.measure.unit(),
        }
    }

    /// Returns the period: `requested`, in the unit of the event, otherwise the one that gives
    /// `frequency` samples per second.
    pub(crate) fn sampling_period(&self, requested: Option<u64>, frequency: u64) -> SamplingPeriod {
        let frequency = frequency.max(1);
        let shortest = if self.measure == Measure::CpuTime { CLOCK_PERIOD_MIN_NS } else { 1 };
        match (requested, self.rate) {
            (Some(period), _) => SamplingPeriod::Fixed(period.max(shortest)),
            (None, EventRate::PerCpuSecond(rate) | EventRate::Typical(rate)) => {
                SamplingPeriod::Fixed(rate.div_ceil(frequency).max(shortest))
            }
            (None, EventRate::Unknown) => SamplingPeriod::Adaptive(frequency),
            (None, EventRate::EveryEvent) => SamplingPeriod::Fixed(1),
        }
    }
}

/// Returns the measure of calls, which reports know by its word.
pub(super) fn calls_measure() -> Measure {
    Measure::from_word(b"calls")
}

/// Returns the event of the calls of the functions of a list.
pub(crate) fn calls() -> Event {
    Event {
        name: "calls".to_owned(),
        measure: calls_measure(),
        rate: EventRate::EveryEvent,
        configs: vec![PerfEventConfig::new(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_BPF_OUTPUT)],
        value_period: None,
    }
}

impl SamplingPeriod {
    /// Returns the weight of all samples. None if each sample carries its weight.
    ///
    /// `PERF_SAMPLE_PERIOD` may be requested only then. With it, the kernel takes a sample of each
    /// software event, tracepoint or probe, regardless of the period (`perf_swevent_event`,
    /// kernel/events/core.c).
    pub(crate) fn weight(self) -> Option<u64> {
        match self {
            Self::Fixed(period) if period > 1 => Some(period),
            // With a period of 1 each event is sampled anyway, and some tracepoints weigh more than
            // 1 (`__perf_count`, include/trace/perf.h).
            Self::Fixed(_) | Self::Adaptive(_) => None,
        }
    }
}

impl PerfEventConfig {
    /// Returns an event of a type and a number, for all CPUs.
    pub(crate) fn new(kind: u32, config: impl Into<u64>) -> Self {
        Self { kind, config: config.into(), ..Self::default() }
    }

    /// True if a CPU has it.
    pub(crate) fn is_on(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// Returns the interrupt that takes samples. None if the kernel takes them where the event
    /// occurs.
    pub(crate) fn interrupt(&self) -> Option<Interrupt> {
        const CLOCKS: [u64; 2] = [PERF_COUNT_SW_CPU_CLOCK as u64, PERF_COUNT_SW_TASK_CLOCK as u64];
        match self.kind {
            PERF_TYPE_SOFTWARE => CLOCKS.contains(&self.config).then_some(Interrupt::Timer),
            _ => (!self.is_traced()).then_some(Interrupt::Counter),
        }
    }

    /// Writes the fields to `attr`. The kernel reads the text of a probe through a pointer when the
    /// event is opened, so `self` must live until then.
    pub(crate) fn describe(&self, attr: &mut perf_event_attr) {
        let text = self.text.as_ref().map(|text| text.as_ptr().expose_provenance() as u64);
        attr.type_ = self.kind;
        attr.config = self.config;
        // Unions: config1 with the pointer to the text, config2 with the offset of a probe.
        attr.__bindgen_anon_3.config1 = text.unwrap_or(self.config1);
        attr.__bindgen_anon_4.config2 = self.config2;
        attr.config3 = self.config3;
    }
}

impl StackMode {
    /// Returns the word in the stream.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Dwarf => "dwarf",
            Self::FramePointer => "fp",
            Self::None => "none",
        }
    }
}

impl CpuMode {
    /// Returns the word in the stream.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Kernel => "kernel",
            Self::Both => "user+kernel",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(rate: EventRate) -> Event {
        Event {
            name: "x".to_owned(),
            measure: Measure::Count,
            rate,
            configs: vec![PerfEventConfig::default()],
            value_period: None,
        }
    }

    #[test]
    fn period_follows_from_known_rate() {
        let cycles = event(EventRate::PerCpuSecond(2_600_000_000));
        assert_eq!(cycles.sampling_period(None, 1000), SamplingPeriod::Fixed(2_600_000));
        assert_eq!(cycles.sampling_period(None, u64::MAX), SamplingPeriod::Fixed(1));
        assert_eq!(cycles.sampling_period(None, 0), SamplingPeriod::Fixed(2_600_000_000));
        assert_eq!(
            event(EventRate::Unknown).sampling_period(None, 997),
            SamplingPeriod::Adaptive(997)
        );
        assert_eq!(
            event(EventRate::EveryEvent).sampling_period(None, 997),
            SamplingPeriod::Fixed(1)
        );
    }

    #[test]
    fn requested_period_is_kept_above_kernel_minimum() {
        assert_eq!(
            event(EventRate::Unknown).sampling_period(Some(7), 997),
            SamplingPeriod::Fixed(7)
        );
        let clock =
            Event { measure: Measure::CpuTime, ..event(EventRate::PerCpuSecond(1_000_000_000)) };
        assert_eq!(clock.sampling_period(Some(20_000), 997), SamplingPeriod::Fixed(20_000));
        assert_eq!(clock.sampling_period(Some(5), 997), SamplingPeriod::Fixed(CLOCK_PERIOD_MIN_NS));
        assert_eq!(
            clock.sampling_period(None, 1_000_000),
            SamplingPeriod::Fixed(CLOCK_PERIOD_MIN_NS)
        );
    }

    #[test]
    fn weight_is_fixed_with_fixed_period_above_one() {
        assert_eq!(SamplingPeriod::Fixed(100).weight(), Some(100));
        assert_eq!(SamplingPeriod::Fixed(1).weight(), None);
        assert_eq!(SamplingPeriod::Adaptive(997).weight(), None);
    }

    #[test]
    fn probe_description_points_to_its_text() {
        let text = CString::new("/bin/true").expect("no NUL");
        let probe = PerfEventConfig {
            kind: 8,
            config2: 0x10,
            text: Some(text),
            ..PerfEventConfig::default()
        };
        let mut attr = perf_event_attr::default();
        probe.describe(&mut attr);
        let expected = probe.text.as_ref().map(|text| text.as_ptr().addr() as u64);
        // Reading `config1`, a field of a union, would need `unsafe`.
        assert_eq!((attr.type_, attr.config), (8, 0));
        assert!(expected.is_some_and(|pointer| pointer != 0));
    }
}
