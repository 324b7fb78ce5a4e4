//! The tree of the processes and threads that are followed, kept from the kernel's records.

mod exits;
mod membership;
mod task;
mod tree;

pub(crate) use exits::DoubtfulExit;
pub(crate) use membership::Membership;
pub(crate) use task::{PendingExec, Process, ProcessEnd};
pub(crate) use tree::{CommChange, ProcessTree};
