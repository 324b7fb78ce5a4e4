//! The run of a report: options, input, output, and `--every`.

mod atomic_file;
pub mod report;
mod ticking_reader;
