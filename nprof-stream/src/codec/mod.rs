//! The binary and the text encoding of records, in both directions.

pub(crate) mod binary;
pub mod body;
pub(crate) mod field;
pub(crate) mod kinds;
pub(crate) mod text;
