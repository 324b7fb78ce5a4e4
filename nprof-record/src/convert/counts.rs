//! Sums over the samples, losses and incomplete stacks of a recording.

use std::collections::BTreeMap;

use nprof_stream::{Cause, Mark};

/// What an event brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) samples: u64,
    /// The sum of the samples' weights.
    pub(crate) weight: u64,
}

/// What was seen so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Samples with an incomplete stack, by why it is.
    pub(crate) incomplete: BTreeMap<Mark, u64>,
    /// Samples whose stack was completed by what was known of its thread.
    pub(crate) stitched: u64,
    /// Samples lost, as far as is known, by why; where it is not known how many, 0.
    pub(crate) lost: BTreeMap<Cause, u64>,
    /// Records of processes and mappings lost.
    pub(crate) sideband_lost: u64,
}
