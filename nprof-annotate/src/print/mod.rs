//! Prints functions in every format.

mod arrows;
mod colour;
pub(crate) mod context;
pub(crate) mod machine;
mod sampling;
pub(crate) mod table;
