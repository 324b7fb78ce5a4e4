//! Facts about processor architectures for unwinding: registers, return addresses, signal frames,
//! procedure linkage tables, and the analysis of machine code. Nothing outside of this folder names a
//! register or an instruction.
//!
//! A second architecture is a folder next to `x86_64`; its root exports the same names.

pub mod code_bytes;
pub mod rule;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("nprof-unwind only supports x86-64 so far; add a folder to src/arch");
