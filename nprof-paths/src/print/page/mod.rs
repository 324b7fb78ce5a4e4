//! A page for browsers: one file with a flame graph, a table of functions with their callers, callees and
//! code, and a timeline that filters all of them.

mod code;
mod data;
mod moment;
mod words;
mod write;

pub(crate) use write::write;
