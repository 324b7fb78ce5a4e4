//! nprof-blame: charges the waiting of threads to the functions of the threads that woke them.
//!
//! Reads one stream and writes the same stream with one more event, `blamed`:
//!
//! ```text
//! nprof-record -e wall -e wakes -o - -- ./prog | nprof-symbolize | nprof-blame | nprof-flat
//! ```

mod charge;
mod cli;
mod stream;

pub use cli::main;
