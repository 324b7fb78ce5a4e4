//! Sums over the samples, losses and incomplete stacks of a recording.

use std::collections::BTreeMap;

use nprof_stream::{Cause, EventId, Mark};

/// The samples of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) samples: u64,
    /// The sum of their weights.
    pub(crate) weight: u64,
}

/// The samples of 32-bit programs, which are not unwound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CompatSamples {
    pub(crate) samples: u64,
    /// The name of the task of the first.
    pub(crate) comm: Vec<u8>,
}

/// Counts over all events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Samples with an incomplete stack, by the reason.
    pub(crate) incomplete: BTreeMap<Mark, u64>,
    /// Samples with a stack that was completed by callers read earlier from the process.
    pub(crate) stitched: u64,
    /// Lost samples of the recorded processes, by cause; 0 if their number is unknown.
    pub(crate) lost: BTreeMap<Cause, u64>,
    /// Lost samples of other processes. If there are any, `lost` is an estimate.
    pub(crate) lost_others: u64,
    /// The part of [`Self::lost`] that the preloaded library could not write.
    pub(crate) lost_preloaded: u64,
    /// Lost sideband records (mmap, comm, fork, exit).
    pub(crate) sideband_lost: u64,
    /// Tasks whose own events the kernel ended when they executed a set-user-ID program.
    pub(crate) ended_by_exec: u64,
    pub(crate) compat: CompatSamples,
    /// Events that are not counted because the field that weighs them is negative, by event.
    pub(crate) negative: BTreeMap<EventId, u64>,
    /// Samples without callers in processes of which the mappings may not be read.
    pub(crate) unreadable: u64,
}
