//! What differs between processors: which registers the kernel is asked for, how DWARF numbers
//! them, and how a signal handler's caller is found. The one module to add to for another one.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("nprof-record knows the registers of x86-64 only so far; see src/arch");
