//! An event as it can be opened, and how it is described to perf_event_open(2).

use std::ffi::CString;

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT,
    perf_event_attr,
};

/// The default event: CPU cycles where there is a counter, else the CPU clock.
pub(crate) const DEFAULT_EVENT: &str = "nprof.clk_unhalted";

/// An event, as it can be opened on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its name in the stream.
    pub(crate) name: String,
    /// The unit of its weights: `ns`, `cycles` or `count`.
    pub(crate) unit: &'static str,
    pub(crate) pace: Pace,
    /// What to open. More than one where the machine has several kinds of CPUs, each for its own
    /// CPUs; together they are one event. Never empty.
    pub(crate) encodings: Vec<Encoding>,
}

/// How often an event happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// So many times a second on a busy CPU.
    Rate(u64),
    /// About so many times a second in a program that makes many of them, and never in others.
    Usual(u64),
    /// From never to millions of times a second.
    Varies,
    /// As rarely or often as its user expects: each one is of interest.
    Each,
}

/// What is between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    /// So many events.
    Period(u64),
    /// What makes so many samples a second; the kernel adapts the period.
    Frequency(u64),
}

/// An event as `struct perf_event_attr` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encoding {
    /// `type`.
    pub(crate) kind: u32,
    pub(crate) config: u64,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
    pub(crate) config3: u64,
    /// What `config1` has to point to, for probes: the path of a file, or a function's name.
    pub(crate) text: Option<CString>,
    /// The only CPUs it can be opened on; `None` for all.
    pub(crate) cpus: Option<Vec<u32>>,
    /// It only happens in the kernel: with `exclude_kernel` there is none of it
    /// (`perf_tp_event_match` and `perf_exclude_event`, kernel/events/core.c).
    pub(crate) only_kernel: bool,
}

impl Encoding {
    /// Whether it happens where code is traced: at a tracepoint, or a probe.
    pub(crate) fn is_traced(&self) -> bool {
        self.kind == PERF_TYPE_TRACEPOINT || self.text.is_some()
    }
}

/// What interrupts the processor when an event overflows. None of a kind interrupts another of
/// the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// A timer of the kernel's, for its clocks.
    Timer,
    /// The processor's counters.
    Counter,
}

/// How stacks are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwind {
    /// Copied, and unwound by the images' tables.
    Dwarf,
    /// Walked by the kernel along frame pointers.
    FramePointer,
    /// Not at all.
    None,
}

/// What is sampled: user code, the kernel, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    User,
    Kernel,
    Both,
}

/// The kernel's clocks tick no more often, ns (`perf_swevent_hrtimer`, kernel/events/core.c).
const TICK: u64 = 10_000;

impl Event {
    /// What is between two samples, given what was asked for, in the event's unit; and where
    /// nothing was, the frequency, in samples a second.
    pub(crate) fn interval(&self, asked: Option<u64>, frequency: u64) -> Interval {
        let frequency = frequency.max(1);
        let least = if self.unit == "ns" { TICK } else { 1 };
        match (asked, self.pace) {
            (Some(period), _) => Interval::Period(period.max(least)),
            (None, Pace::Rate(rate) | Pace::Usual(rate)) => {
                Interval::Period(rate.div_ceil(frequency).max(least))
            }
            (None, Pace::Varies) => Interval::Frequency(frequency),
            (None, Pace::Each) => Interval::Period(1),
        }
    }
}

impl Interval {
    /// What each sample weighs, where that is fixed; else samples have to tell. They must be
    /// asked (`PERF_SAMPLE_PERIOD`) only then: of software events, tracepoints and probes that
    /// are asked, the kernel makes a sample of each one, whatever the period
    /// (`perf_swevent_event`, kernel/events/core.c). With a period of 1 that is what is wanted,
    /// and some tracepoints weigh more than 1 (`__perf_count`, include/trace/perf.h).
    pub(crate) fn weight(self) -> Option<u64> {
        match self {
            Self::Period(period) if period > 1 => Some(period),
            Self::Period(_) | Self::Frequency(_) => None,
        }
    }
}

impl Encoding {
    /// An encoding of two numbers, for all CPUs.
    pub(crate) fn new(kind: u32, config: impl Into<u64>) -> Self {
        Self { kind, config: config.into(), ..Self::default() }
    }

    /// What interrupts the processor when it overflows; `None` where the kernel is at work anyway.
    pub(crate) fn interrupt(&self) -> Option<Interrupt> {
        const CLOCKS: [u64; 2] = [PERF_COUNT_SW_CPU_CLOCK as u64, PERF_COUNT_SW_TASK_CLOCK as u64];
        match self.kind {
            PERF_TYPE_SOFTWARE => CLOCKS.contains(&self.config).then_some(Interrupt::Timer),
            _ => (!self.is_traced()).then_some(Interrupt::Counter),
        }
    }

    /// Writes it into what is given to the kernel. The kernel follows the pointer to a probe's
    /// text when the event is opened, so `self` has to live until then.
    pub(crate) fn describe(&self, attr: &mut perf_event_attr) {
        let text = self.text.as_ref().map(|text| text.as_ptr().expose_provenance() as u64);
        attr.type_ = self.kind;
        attr.config = self.config;
        attr.__bindgen_anon_3.config1 = text.unwrap_or(self.config1);
        attr.__bindgen_anon_4.config2 = self.config2;
        attr.config3 = self.config3;
    }
}

impl Unwind {
    /// Its word in the stream.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Dwarf => "dwarf",
            Self::FramePointer => "fp",
            Self::None => "none",
        }
    }
}

impl Scope {
    /// Its word in the stream.
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

    fn event(pace: Pace) -> Event {
        Event { name: "x".to_owned(), unit: "count", pace, encodings: vec![Encoding::default()] }
    }

    #[test]
    fn the_interval_comes_from_the_rate_where_it_is_known() {
        let cycles = event(Pace::Rate(2_600_000_000));
        assert_eq!(cycles.interval(None, 1000), Interval::Period(2_600_000));
        assert_eq!(cycles.interval(None, u64::MAX), Interval::Period(1));
        assert_eq!(cycles.interval(None, 0), Interval::Period(2_600_000_000));
        assert_eq!(event(Pace::Varies).interval(None, 997), Interval::Frequency(997));
        assert_eq!(event(Pace::Each).interval(None, 997), Interval::Period(1));
    }

    #[test]
    fn an_interval_that_was_asked_for_is_kept_to_where_the_kernel_does() {
        assert_eq!(event(Pace::Varies).interval(Some(7), 997), Interval::Period(7));
        let clock = Event { unit: "ns", ..event(Pace::Rate(1_000_000_000)) };
        assert_eq!(clock.interval(Some(20_000), 997), Interval::Period(20_000));
        assert_eq!(clock.interval(Some(5), 997), Interval::Period(TICK));
        assert_eq!(clock.interval(None, 1_000_000), Interval::Period(TICK));
    }

    #[test]
    fn samples_tell_their_weight_only_where_it_is_not_fixed() {
        assert_eq!(Interval::Period(100).weight(), Some(100));
        assert_eq!(Interval::Period(1).weight(), None);
        assert_eq!(Interval::Frequency(997).weight(), None);
    }

    #[test]
    fn a_probes_text_is_pointed_to() {
        let text = CString::new("/bin/true").expect("no NUL");
        let probe = Encoding { kind: 8, config2: 0x10, text: Some(text), ..Encoding::default() };
        let mut attr = perf_event_attr::default();
        probe.describe(&mut attr);
        let expected = probe.text.as_ref().map(|text| text.as_ptr().addr() as u64);
        // Debug is how a union's field is read without `unsafe`.
        assert_eq!((attr.type_, attr.config), (8, 0));
        assert!(expected.is_some_and(|pointer| pointer != 0));
    }
}
