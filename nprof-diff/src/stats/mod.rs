//! Differences and their certainty: intervals, p-values, and the correction for many comparisons.
//! Pure: numbers in, numbers out.

mod distributions;
mod estimate;
mod family;
mod moderation;
mod newcombe;
mod permutation;
#[cfg(test)]
mod reference;
mod welch;

pub(crate) use distributions::student_quantile;
pub(crate) use estimate::Estimate;
pub(crate) use family::{WeightedP, holm};
pub(crate) use moderation::Prior;
pub(crate) use newcombe::{Proportion, newcombe};
pub(crate) use permutation::{permutation_p, smallest_p};
pub(crate) use welch::{Spread, sampling_variance, welch};
