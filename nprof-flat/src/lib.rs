//! nprof-flat: prints how the samples of a recording are spread over functions, lines, addresses,
//! images, threads and more.
//!
//! ```sh
//! nprof-record -o - -- ./prog | nprof-symbolize | nprof-flat
//! ```
//!
//! Another front end can use the rows without printing them: [`Flat`](nprof_report::rows::flat::Flat)
//! adds up the samples of a profile, [`select`](select::select) returns the rows of a report.

mod args;
mod print;
mod report;
pub mod select;

pub use report::run;
