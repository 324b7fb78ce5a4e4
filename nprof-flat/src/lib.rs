//! nprof-flat: where the time of a recording is, by function, line, address, image, thread, ...
//! Reads streams, writes a table.
//!
//! ```sh
//! nprof-record -o - -- ./prog | nprof-symbolize | nprof-flat
//! ```

mod args;
mod print;
mod report;
mod rows;

pub use report::run;
