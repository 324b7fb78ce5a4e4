//! The lost samples of the run that is read. Pure.

use std::collections::BTreeMap;

use nprof_stream::{Cause, Lost};

use crate::profile::summary::Summary;

/// The losses of a run so far.
#[derive(Debug, Default)]
pub(crate) struct RunLosses {
    all: u64,
    /// Those that are estimates, by the index of their event.
    estimated: BTreeMap<(usize, Cause), u64>,
}

impl RunLosses {
    /// Adds a loss of an event.
    pub(crate) fn note(&mut self, event: usize, lost: &Lost<'_>) {
        self.all = self.all.saturating_add(lost.count);
        if lost.others() > 0 {
            let estimated = self.estimated.entry((event, lost.cause)).or_default();
            *estimated = estimated.saturating_add(lost.count);
        }
    }

    /// Ends the run, of which the recorder has counted `lost` samples at the end: estimates of more, for which the
    /// CPU time has no room, become losses of other processes in the summary.
    pub(crate) fn end(self, lost: u64, summary: &mut Summary) {
        let mut excess = self.all.saturating_sub(lost);
        for ((event, cause), estimated) in self.estimated {
            let Some(event) = summary.events.get_mut(event) else { continue };
            let moved = estimated.min(excess);
            excess -= moved;
            let count = event.lost.entry(cause).or_default();
            *count = count.saturating_sub(moved);
            event.lost_others = event.lost_others.saturating_add(moved);
        }
    }
}
