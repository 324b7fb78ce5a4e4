//! Prints rows in every format.

pub(crate) mod delimited;
pub(crate) mod numbers;
pub(crate) mod table;
