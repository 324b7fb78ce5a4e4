//! The kinds of record: each with its body in binary and its fields in text.

pub(crate) mod encoded;
mod fields;
pub(crate) mod location;
pub(crate) mod nodes;
mod pairs;
pub(crate) mod sample;
