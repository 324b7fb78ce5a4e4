//! The run of a report: options, input, output, and `--every`.

mod atomic_file;
mod ordered_inputs;
pub mod report;
mod ticking_reader;
