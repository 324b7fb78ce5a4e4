//! The rows of a report as data: their sums, which of them are reported, and in which order.

pub mod columns;
pub mod flat;
pub mod select;
