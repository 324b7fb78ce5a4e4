//! nprof-import: reads the recordings of other profilers as nprof streams.
//!
//! ```text
//! nprof-import perf.data | nprof-symbolize | nprof-flat
//! ```

mod any;
mod cli;
pub mod in_memory;
mod output;
mod perf;
mod profiles;
mod unwind;

pub use cli::main;
