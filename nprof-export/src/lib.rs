//! nprof-export: writes nprof streams in the formats of other programs.
//!
//! ```text
//! nprof-record -o - -- ./prog | nprof-symbolize | nprof-export --to pprof -o prog.pb.gz
//! ```

mod cli;
#[cfg(feature = "parquet")]
mod fleet;
mod model;
mod read;
mod write;

pub use cli::main;
