//! Resolves event names to the arguments of perf_event_open(2).
//!
//! [`spec`] parses a name with its period and modifiers. [`catalog`] looks it up in the generic
//! events of the kernel ([`builtin`]) and in the files of the machine ([`pmu`], [`tracepoint`],
//! [`probe`]). [`preloaded`] and [`preload_plan`] have the
//! events of the preloaded library. [`field`] finds the values that weigh samples. [`mod@list`] opens all
//! events to find the available ones, and [`refusal`] explains why one cannot be opened.

mod builtin;
mod catalog;
mod cpu_frequency;
mod definition;
mod field;
mod list;
mod pmu;
mod preload_plan;
mod preloaded;
mod probe;
mod refusal;
mod spec;
#[cfg(test)]
mod test_machine;
mod tracepoint;

pub(crate) use builtin::{EventClass, cpu_clock};
pub(crate) use catalog::Catalog;
pub(crate) use definition::{
    CpuMode, DEFAULT_EVENT, Event, EventRate, Interrupt, PerfEventConfig, SamplingPeriod,
    StackMode, Waiting, calls,
};
pub(crate) use field::WeightField;
pub(crate) use list::{EventListing, list, print};
pub(crate) use preload_plan::{PreloadPeriod, PreloadPlan};
pub(crate) use preloaded::{PreloadedEvent, Subject};
pub(crate) use refusal::{OpenRefusal, access};
pub(crate) use spec::EventSpec;
