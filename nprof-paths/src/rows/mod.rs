//! The rows of each view as data: which are reported, in which order, and which are omitted.
//!
//! Rows refer to the nodes of a [`Tree`](crate::tree::call_tree::Tree); printing them is up to the
//! caller.

pub mod graph;
pub mod paths;
pub mod ratios;
pub(crate) mod shown_calls;
pub mod stacks;
pub mod tree;
