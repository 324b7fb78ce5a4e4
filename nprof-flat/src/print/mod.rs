//! Prints the rows of a report in every output format.

pub(crate) mod context;
pub(crate) mod delimited;
pub(crate) mod json;
mod number_columns;
pub(crate) mod ratio_columns;
pub(crate) mod table;
mod table_cells;
