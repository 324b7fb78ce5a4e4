//! From arguments to a finished run: options, target, messages, exit status.

pub(crate) mod args;
mod counting;
mod ending;
mod invocation;
mod list;
mod message;
mod plan;
mod preload;
pub(crate) mod run;
mod running;
pub(crate) mod target;
mod waiting;

pub use run::main;
