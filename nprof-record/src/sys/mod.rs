//! Syscalls. The only `unsafe` code of the project.
//!
//! All public items are safe to use in any order: owned descriptors, plain numbers, and types for
//! memory shared with the kernel that only read and advance it.
#![allow(unsafe_code)]

mod affinity;
mod bpf;
mod bpf_info;
mod bpf_link;
mod bpf_map;
mod breakpoint;
mod counted_function;
mod kernel_types;
mod mount;
mod perf_event;
mod pidfd;
mod prefetch;
mod priority;
mod process;
mod process_memory;
mod shared_words;
mod signals;
mod startup;
mod system;

pub(crate) use affinity::SavedAffinity;
pub(crate) use bpf::{
    BpfCode, ProgramKind, attach_program, bpf_program, bpf_run, bpf_types, verifier_refusal,
};
pub(crate) use bpf_info::{link_misses, program_misses};
pub(crate) use bpf_link::{attach_kprobes, attach_raw_tracepoint, attach_uprobes, iterate};
pub(crate) use bpf_map::{BpfMap, MapKind, MapLayout, bpf_map, bpf_map_set};
pub(crate) use breakpoint::{Breakpoint, Observed, breakpoints_work};
pub(crate) use counted_function::{OwnFunction, system_call};
pub(crate) use kernel_types::KernelTypes;
pub(crate) use mount::detached_tracefs;
pub(crate) use perf_event::{
    EventTarget, Ring, disable, enable, event_id, perf_event_open, restart_period, share_ring,
};
pub(crate) use pidfd::ProcessFd;
pub(crate) use prefetch::prefetch;
pub(crate) use priority::{Priority, raise_priority};
pub(crate) use process::{
    CommandStart, Exit, Usage, clock_tick_ns, cpu_time_ns, descriptor_limit, fork_at_gate,
    own_usage, raise_descriptor_limit, reap,
};
pub(crate) use process_memory::{PresentPages, read_absent_memory, read_memory};
pub(crate) use shared_words::SharedWords;
pub(crate) use signals::{Signal, Signals, exists, kill};
pub(crate) use startup::{FOR_COMMAND, was_closed};
pub(crate) use system::{
    boot_ns, duration_ns, file_system_of, monotonic_ns, monotonic_offset_ns_of, page_size, poll,
    random, standard_output, thread_cpu_ns,
};
