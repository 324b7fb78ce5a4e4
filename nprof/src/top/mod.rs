//! `nprof top`: shows where the time of programs goes while they run.

mod messages;
mod pipe;
mod request;
mod tee;

pub(crate) use pipe::main;
pub(crate) use request::TopArgs;
