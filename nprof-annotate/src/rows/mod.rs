//! The rows of a report: their sums, and their selection.

pub(crate) mod annotation;
pub(crate) mod parts;
pub(crate) mod select;
