//! Exact counts of calls, and of an event by routine: the list of functions, and the BPF programs of
//! `bpf/calls.bpf.c`.

pub(crate) mod cost;
pub(crate) mod data;
mod kernel;
mod loader;
pub(crate) mod points;
pub(crate) mod routines;
mod slices;
pub(crate) mod tracer;
