//! The engine on the debug information of real programs.

#![allow(clippy::unwrap_used)] // a fixture that cannot be created is a failed test

mod damaged;
mod matches_addr2line;
mod memory_bound;
pub(crate) mod program;
