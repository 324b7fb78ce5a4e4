//! nprof-annotate: prints how the samples of a function are spread over its instructions, source lines,
//! blocks and loops.
//!
//! ```sh
//! nprof-symbolize --code x.nprof | nprof-annotate
//! ```
//!
//! It needs no file besides the stream: `nprof-symbolize --code` adds the code of functions that have
//! samples.

mod args;
mod code;
mod print;
mod report;
mod rows;

pub use report::run;
