//! perf_event_open(2): which events to open, how to open them, the rings they write to, the records
//! in the rings, their order and their losses; and a BPF program that copies stacks.

pub(crate) mod attr;
pub(crate) mod backlog;
pub(crate) mod bpf;
pub(crate) mod calls;
pub(crate) mod drain_interval;
mod event_binding;
pub(crate) mod event_counts;
pub(crate) mod features;
pub(crate) mod handler;
pub(crate) mod loaded_code;
pub(crate) mod lost;
pub(crate) mod open;
pub(crate) mod plan;
pub(crate) mod preloaded;
pub(crate) mod record;
mod ring_cursor;
pub(crate) mod ring_reader;
pub(crate) mod ring_set;
mod ring_size;
pub(crate) mod stack_chunks;
pub(crate) mod switches;
pub(crate) mod synthesize;
pub(crate) mod time_merge;
mod timer_phases;
pub(crate) mod waits;
