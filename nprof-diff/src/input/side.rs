//! One side of the comparison: its streams, and the facts recorded about its runs. Pure.

use std::collections::BTreeSet;

use nprof_report::summary::{EventSummary, Run, Summary};
use nprof_stream::escape::escaped;
use nprof_stream::number::total;
use nprof_stream::{Head, RunId};

use crate::input::run_counts::StreamCounts;

/// The streams of one side.
#[derive(Debug)]
pub(crate) struct Side {
    /// Its name in messages: base or new.
    pub(crate) name: &'static str,
    /// One per operand, in their order.
    pub(crate) streams: Vec<StreamCounts>,
}

impl Side {
    /// Returns every run, in the order of reading.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.summaries().flat_map(|summary| &summary.runs)
    }

    /// Returns the summary of every stream.
    pub(crate) fn summaries(&self) -> impl Iterator<Item = &Summary> {
        self.streams.iter().map(|stream| &stream.summary)
    }

    /// Returns the number of lost samples, of all events.
    pub(crate) fn lost_samples(&self) -> u64 {
        let events = self.summaries().flat_map(|summary| &summary.events);
        total(events.map(EventSummary::lost_samples))
    }

    /// Returns the number of lost samples of processes that were not recorded.
    pub(crate) fn lost_others(&self) -> u64 {
        total(self.summaries().flat_map(|summary| &summary.events).map(|event| event.lost_others))
    }

    /// Returns the number of lost records of processes and mappings.
    pub(crate) fn lost_records(&self) -> u64 {
        total(self.summaries().map(|summary| summary.lost_records))
    }

    /// Returns the distinct values of a fact over the runs, without unknown ones, escaped.
    pub(crate) fn facts(&self, fact: fn(&Head) -> &[u8]) -> BTreeSet<String> {
        let values = self.runs().filter_map(|run| run.head.as_ref()).map(fact);
        values.filter(|value| !value.is_empty()).map(escaped).collect()
    }

    /// Returns the times at which the first and the last run began, in nanoseconds since 1970 UTC.
    /// None if no run has one.
    pub(crate) fn recording_times_ns(&self) -> Option<(u64, u64)> {
        let mut times: Vec<u64> = self.runs().filter_map(|run| run.head.as_ref()?.utc).collect();
        times.sort_unstable();
        Some((*times.first()?, *times.last()?))
    }

    fn run_ids(&self) -> BTreeSet<RunId> {
        self.runs().filter_map(run_id).collect()
    }
}

/// Returns the id of a run. None if it is unknown.
pub(crate) fn run_id(run: &Run) -> Option<RunId> {
    // The id 0 means that the recorder knew none.
    run.head.as_ref().map(|head| head.run).filter(|run| run.0 != 0)
}

/// Returns a run that is on both sides.
pub(crate) fn shared_run(base: &Side, new: &Side) -> Option<RunId> {
    base.run_ids().intersection(&new.run_ids()).next().copied()
}

/// True if the sides were recorded in turn, false if one was recorded before the other. None if the
/// times are unknown.
pub(crate) fn recorded_in_turn(base: &Side, new: &Side) -> Option<bool> {
    let ((base_first, base_last), (new_first, new_last)) =
        (base.recording_times_ns()?, new.recording_times_ns()?);
    Some(base_last >= new_first && new_last >= base_first)
}

/// Returns a sentence on a fact that differs between the sides. None if it is equal, or unknown on
/// a side.
pub(crate) fn difference_between(
    text: &str,
    base: &BTreeSet<String>,
    new: &BTreeSet<String>,
) -> Option<String> {
    let is_known = !base.is_empty() && !new.is_empty();
    let differs = base.union(new).count() > 1;
    (is_known && differs).then(|| format!("{text}: base {}; new {}", list(base), list(new)))
}

fn list(values: &BTreeSet<String>) -> String {
    values.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}
