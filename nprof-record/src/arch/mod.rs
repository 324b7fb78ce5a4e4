//! Facts about processor architectures that only the recorder needs: breakpoints, the processor's
//! model, saved registers of the kernel. Those for unwinding are in `nprof-unwind`.
//!
//! Each architecture is a folder; their roots export the same names.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("nprof-record supports x86-64 and aarch64; add a folder to src/arch");
