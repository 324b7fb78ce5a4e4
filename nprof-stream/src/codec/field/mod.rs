//! The fields of records: numbers, ids, times, strings, and their two encodings.

pub(crate) mod binary;
pub(crate) mod formats;
mod rows;
pub(crate) mod text;
