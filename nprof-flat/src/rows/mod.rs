//! The rows of a report: their sums, which of them are printed, and in which order.

pub(crate) mod columns;
pub(crate) mod flat;
pub(crate) mod select;
