//! The rows of flat tables as data: the columns that name them, and their sums.

pub mod columns;
pub mod flat;
