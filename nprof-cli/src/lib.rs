//! The conventions of a command-line tool of nprof: input and output, messages, exit status, options.
//!
//! - [`stage`]: opens inputs and outputs, prints messages and errors, ends with an exit status;
//! - [`usage`]: parses the command line and words its errors as messages;
//! - [`args`]: arguments that several tools have;
//! - [`shell`]: quotes command lines;
//! - [`step`]: the record of a tool in a stream;
//! - [`date`]: prints dates;
//! - [`time`]: parses and prints times;
//! - `progress`: shows the progress of long work on a terminal (feature `progress`).

pub mod args;
pub mod date;
#[cfg(feature = "progress")]
pub mod progress;
pub mod shell;
pub mod stage;
pub mod step;
pub mod time;
pub mod usage;
