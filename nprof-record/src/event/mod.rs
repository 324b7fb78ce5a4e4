//! Events: what is counted, what it is called, and how it is described to perf_event_open(2).
//!
//! A name that was asked for ([`spec`]) is looked up in what nprof knows ([`builtin`]) and what the
//! machine says of itself ([`catalog`], with a room for [`pmu`]s, [`tracepoint`]s and [`probe`]s).
//! Whether an event can be opened is found by trying, and [`mod@list`] does so for all of them.

mod builtin;
mod catalog;
mod cpu_frequency;
mod definition;
mod list;
mod pmu;
mod probe;
mod spec;
#[cfg(test)]
mod test_machine;
mod tracepoint;

pub(crate) use builtin::cpu_clock;
pub(crate) use catalog::Catalog;
pub(crate) use definition::{
    CpuMode, DEFAULT_EVENT, Event, EventRate, PerfEventConfig, SamplingPeriod, StackMode,
};
pub(crate) use list::{list, print};
pub(crate) use spec::{EventSpec, INTERVAL_MAX};
