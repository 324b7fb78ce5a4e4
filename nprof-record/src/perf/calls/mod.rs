//! Exact counts of calls: the list of functions, and the BPF programs of `bpf/calls.bpf.c`.

pub(crate) mod data;
mod kernel;
mod loader;
pub(crate) mod points;
pub(crate) mod tracer;
