//! Every system call that needs `unsafe`: perf events and their rings, mounts, processes,
//! signals.
//!
//! What leaves this module is safe to use in any order: owned descriptors, plain numbers, and a
//! ring that can only be read or advanced.
#![allow(unsafe_code)]

mod bpf;
mod breakpoint;
mod mount;
mod perf_event;
mod process;
mod signals;
mod startup;
mod system;

pub(crate) use bpf::{MapKind, SharedWords, bpf_map, bpf_map_event, bpf_program, run_program};
pub(crate) use breakpoint::{Watch, can_watch, read_memory};
pub(crate) use mount::detached_tracefs;
pub(crate) use perf_event::{Ring, Whose, disable, enable, event_id, perf_event_open, share_ring};
pub(crate) use process::{
    Exit, Start, Usage, clock_tick_ns, cpu_time_of, descriptor_limit, fork_waiting, own_usage,
    raise_descriptor_limit, reap,
};
pub(crate) use signals::{Signals, kill};
pub(crate) use startup::was_closed;
pub(crate) use system::{
    boot_ns, duration_ns, monotonic_ns, page_size, poll, random, standard_output,
};
