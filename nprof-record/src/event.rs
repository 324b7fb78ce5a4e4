//! The events there are, and the words for what of them is sampled and how. Pure.

use perf_event_open_sys::bindings as perf;

/// The default event: CPU cycles where there is a counter, else the CPU clock.
pub(crate) const DEFAULT_EVENT: &str = "nprof.clk_unhalted";

/// An event that can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    /// The unit of its weights.
    pub(crate) unit: &'static str,
    /// `perf_event_attr.type`.
    pub(crate) kind: u32,
    /// `perf_event_attr.config`.
    pub(crate) config: u32,
}

/// The events there are, by name.
const EVENTS: [Event; 3] = [
    Event {
        name: "cycles",
        unit: "cycles",
        kind: perf::PERF_TYPE_HARDWARE,
        config: perf::PERF_COUNT_HW_CPU_CYCLES,
    },
    Event {
        name: "cpu-clock",
        unit: "ns",
        kind: perf::PERF_TYPE_SOFTWARE,
        config: perf::PERF_COUNT_SW_CPU_CLOCK,
    },
    Event {
        name: "task-clock",
        unit: "ns",
        kind: perf::PERF_TYPE_SOFTWARE,
        config: perf::PERF_COUNT_SW_TASK_CLOCK,
    },
];

/// The names `-e` takes.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(DEFAULT_EVENT).chain(EVENTS.iter().map(|event| event.name))
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

/// What is sampled: user code, the kernel, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    User,
    Kernel,
    Both,
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

/// What may be opened for a name, the best first; nothing for an unknown name.
pub(crate) fn candidates(name: &str) -> Vec<Event> {
    let named =
        |name: &str| EVENTS.into_iter().filter(|event| event.name == name).collect::<Vec<_>>();
    match name {
        DEFAULT_EVENT => [named("cycles"), named("cpu-clock")].concat(),
        name => named(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_can_be_asked_for() {
        for name in names() {
            assert!(!candidates(name).is_empty(), "{name}");
        }
        assert!(candidates("no-such").is_empty());
    }
}
