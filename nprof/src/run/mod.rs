//! `nprof run`: records a program, prints its profile and keeps the recording.

mod pipeline;
mod request;
mod signals;

pub(crate) use pipeline::{FAILURE, main, record_and_report};
pub(crate) use request::{Request, RunArgs, refuse_standard_output};
