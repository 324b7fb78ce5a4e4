//! nprof-format: checks, converts, counts and merges nprof streams.
//!
//! ```sh
//! nprof-record -o - -- ./prog | nprof-format text | grep '^S'
//! ```
//!
//! - [`merge`]: several streams into one;
//! - `command`: the sub-commands of the tool.

mod command;
pub mod merge;

pub use command::main;
