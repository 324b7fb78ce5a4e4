//! `nprof run`: records a program, prints its profile and keeps the recording.

mod kept_file;
mod pipeline;
mod request;
mod signals;

pub(crate) use kept_file::KeptFile;
pub(crate) use pipeline::{
    FAILURE, has_stream, main, print_next, record_and_report, recorder, start, status,
};
pub(crate) use request::{Request, RunArgs, refuse_standard_output};
