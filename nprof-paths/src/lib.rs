//! nprof-paths: prints by which calls the programs of a recording came to their samples, as call
//! paths, call trees, call graphs, folded stacks or a flame graph.
//!
//! ```text
//! nprof-record -o - -- ./prog | nprof-symbolize | nprof-paths --view tree
//! ```
//!
//! Another front end can use the rows of the views without printing them:
//! [`Aggregator`](tree::aggregate::Aggregator) builds the call tree from the samples of a profile,
//! [`apply_filters`](tree::path_filter::apply_filters) cuts it, and the functions in [`rows`] return
//! the rows of each view.

mod args;
mod print;
mod report;
pub mod rows;
mod select;
#[cfg(test)]
mod tests;
pub mod tree;

pub use report::run;
