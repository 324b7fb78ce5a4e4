//! From arguments to a finished run: options, target, messages, exit status.

pub(crate) mod args;
pub(crate) mod run;
pub(crate) mod target;

pub use run::main;
