//! Compares the counts of both sides: differences, their significance, and bounds on them. Pure.

pub(crate) mod comparison;
mod correction;
pub(crate) mod diff;
pub(crate) mod effect_size;
pub(crate) mod fail_on;
pub(crate) mod noise;
pub(crate) mod observed;
pub(crate) mod quantity;
pub(crate) mod ratio;
pub(crate) mod rename_candidates;
pub(crate) mod row;
pub(crate) mod runs_needed;
pub(crate) mod significance;
pub(crate) mod warnings;

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod simulated_memory;
#[cfg(test)]
mod tests;
