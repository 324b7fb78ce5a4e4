//! nprof-diff: what changed between two sets of recordings, and whether it is noise.
//!
//! Reads streams, prints a comparison, and says with its exit status whether a bound was broken:
//!
//! ```text
//! nprof-diff --fail-on 'self>+2%' --base a1.nprof a2.nprof --new b1.nprof b2.nprof
//! ```

mod args;
mod compare;
mod input;
mod print;
mod run;
mod stats;

pub use run::main;
