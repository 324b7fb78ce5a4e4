//! Facts about processor architectures that only the recorder needs: breakpoints, the processor's
//! model, saved registers of the kernel. Those for unwinding are in `nprof-unwind`.
//!
//! A second architecture is a folder next to `x86_64`; its root exports the same names.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("nprof-record only supports x86-64 so far; add a folder to src/arch");
