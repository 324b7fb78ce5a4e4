//! nprof-top: shows functions, threads and waits of a stream on a terminal while it is recorded.
//!
//! ```sh
//! nprof-record -F 99 -a -o - | nprof-symbolize | nprof-top
//! ```
//!
//! - `args`: the command line;
//! - [`model`]: from records to the rows of a window of time;
//! - `screen`: from rows and keys to lines of text;
//! - `keyboard`: the keys of the terminal, and its hang-up;
//! - `run`: the threads, the terminal, the signals.

mod args;
mod keyboard;
pub mod model;
mod run;
mod screen;

pub use run::run;
