//! nprof-format: looks into a stream. Checks it, counts what is in it, and converts between its
//! two spellings.
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
