//! `nprof run`: records a program, prints its profile and keeps the recording.

mod pipeline;
mod request;
mod signals;

pub(crate) use pipeline::{FAILURE, main};
pub(crate) use request::RunArgs;
