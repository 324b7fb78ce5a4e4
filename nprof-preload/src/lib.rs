//! The library that is loaded into programs to record allocations, descriptors and calls of instrumented functions, and
//! the recorder's end of it.
//!
//! `build.rs` compiles this crate a second time, as the shared library [`LIBRARY`]: without std, without any other
//! library, with `cfg(preloaded)`. The ordinary build has the same code without exported names, so that clippy,
//! rustdoc and the tests of its pure parts see it.

#![cfg_attr(preloaded, no_std)]

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux"))]
#[cfg_attr(not(preloaded), allow(dead_code))]
mod library;
pub mod protocol;
#[cfg(not(preloaded))]
mod recorder;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux"))]
#[cfg_attr(not(preloaded), allow(dead_code))]
mod sampling;

#[cfg(not(preloaded))]
pub use recorder::{Connection, Listener, Losses, Memos, Ring, TooLarge, WalkedStack};

/// The shared library, an ELF file; empty if nprof does not support the architecture of this build.
#[cfg(not(preloaded))]
pub static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnprof.so"));
