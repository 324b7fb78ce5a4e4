//! Options; from input to exit status.

mod args;
mod run;

pub use run::main;
