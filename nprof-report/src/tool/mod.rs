//! The run of a report: options, input, output, and `--every`.

mod live;
pub mod report;
pub mod snapshot;
