//! A page for browsers: one file with a flame graph, a table of functions with their callers and callees,
//! and a timeline that filters both.

mod data;
mod encode;
mod write;

pub(crate) use write::write;
