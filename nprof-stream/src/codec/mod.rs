//! The binary and the text spelling of records, in both directions.

pub(crate) mod binary;
pub mod body;
pub(crate) mod text;
