//! nprof-paths: how the programs of a recording got where they were. Reads streams, writes call
//! paths, call trees, call graphs, folded stacks or a flame graph.
//!
//! ```sh
//! nprof-record -o - -- ./prog | nprof-symbolize | nprof-paths --view tree
//! ```

mod args;
mod print;
mod report;
mod select;
#[cfg(test)]
mod tests;
mod tree;

pub use report::run;
