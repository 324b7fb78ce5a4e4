//! The command line: options, and one run from the input to the exit status.

mod args;
mod entries;
mod main;
mod run;

pub use main::main;
