//! The library that programs load for heap, fd and calls events: its file, the environment that loads it, and the
//! records of the processes that have loaded it.

pub(crate) mod environment;
pub(crate) mod library;
pub(crate) mod process;
mod rate;
pub(crate) mod source;
