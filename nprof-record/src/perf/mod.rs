//! perf_event_open(2): which events, opening them, rings, records, their order, losses.

pub(crate) mod attr;
pub(crate) mod bpf;
pub(crate) mod drain_interval;
pub(crate) mod handler;
pub(crate) mod lost;
pub(crate) mod open;
pub(crate) mod plan;
pub(crate) mod record;
pub(crate) mod ring_reader;
pub(crate) mod ring_set;
pub(crate) mod stack_chunks;
pub(crate) mod synthesize;
pub(crate) mod time_merge;
