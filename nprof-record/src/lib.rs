//! Samples programs, or the whole system, with perf_event_open(2), and writes an nprof stream:
//!
//! ```text
//! nprof-record -o - -- ./prog | nprof-symbolize | nprof-flat
//! ```
//!
//! The command's exit status is passed on.

mod arch;
mod cli;
pub mod convert;
mod event;
pub mod image;
mod os;
mod perf;
mod session;
mod sys;

pub use cli::main;
