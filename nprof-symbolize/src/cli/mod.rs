//! The command line: options, and one run from input to exit status.

mod args;
mod main;
mod run;

pub use main::main;
