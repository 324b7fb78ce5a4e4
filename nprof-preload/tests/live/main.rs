//! Records real programs with the library, without nprof-record.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

mod allocation_functions;
mod calls;
mod cost;
mod descriptors;
mod exact;
mod hostile;
mod library;
mod processes;
mod recorder;
mod sampled;
