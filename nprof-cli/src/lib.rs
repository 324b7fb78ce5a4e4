//! The conventions of a command-line tool of nprof: input and output, messages, exit status, options.
//!
//! - [`stage`]: opens inputs and outputs, prints messages and errors, ends with an exit status;
//! - [`usage`]: parses the command line and words its errors as messages;
//! - [`shell`]: quotes command lines;
//! - [`time`]: parses times.

pub mod shell;
pub mod stage;
pub mod time;
pub mod usage;
