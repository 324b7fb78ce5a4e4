//! nprof-diff: the changes between two sets of recordings, and whether they are noise.
//!
//! Reads streams, prints a comparison, and reports with its exit status whether a bound was
//! exceeded:
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
