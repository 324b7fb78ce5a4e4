//! One side of the comparison: its streams, and the facts known of its runs. Pure.

use std::collections::BTreeSet;

use nprof_report::summary::{Run, Summary};
use nprof_stream::escape::escaped;
use nprof_stream::{Head, RunId};

use crate::input::run_counts::{RunCounts, StreamCounts};

/// The operands of one side.
#[derive(Debug)]
pub(crate) struct Side {
    /// What messages call it.
    pub(crate) name: &'static str,
    /// One per operand, in their order.
    pub(crate) recordings: Vec<StreamCounts>,
}

impl Side {
    /// Every run, in the order it was read.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.summaries().flat_map(|summary| &summary.runs)
    }

    /// What is known of every operand.
    pub(crate) fn summaries(&self) -> impl Iterator<Item = &Summary> {
        self.recordings.iter().map(|recording| &recording.summary)
    }
}

/// A run that is on both sides.
pub(crate) fn shared_run(base: &Side, new: &Side) -> Option<RunId> {
    let ids = |side: &Side| side.runs().filter_map(run_id).collect::<BTreeSet<_>>();
    ids(base).intersection(&ids(new)).next().copied()
}

pub(crate) fn run_id(run: &Run) -> Option<RunId> {
    run.head.as_ref().map(|head| head.run).filter(|run| run.0 != 0)
}

pub(crate) fn input_name(recording: &StreamCounts) -> &str {
    recording.summary.runs.first().map_or("", |run| &run.input)
}

pub(crate) fn is_unsymbolized(recording: &StreamCounts) -> bool {
    let any = |test: fn(&RunCounts) -> bool| recording.counts.values().any(test);
    any(|counts| counts.unsymbolized > 0) && !any(|counts| counts.symbolized > 0)
}

/// How many observations the streams of a side lost, of whatever event.
pub(crate) fn lost_samples(side: &Side) -> u64 {
    let events = side.summaries().flat_map(|summary| &summary.events);
    saturating_sum(events.flat_map(|event| event.lost.values()))
}

/// A sum of what a stream claims, which may be anything.
pub(crate) fn saturating_sum<'a>(counts: impl Iterator<Item = &'a u64>) -> u64 {
    counts.fold(0, |saturating_sum: u64, count| saturating_sum.saturating_add(*count))
}

/// The distinct values of a fact over the runs of a side, unknown ones left out, escaped.
pub(crate) fn facts(side: &Side, fact: fn(&Head) -> &[u8]) -> BTreeSet<String> {
    let values = side.runs().filter_map(|run| run.head.as_ref()).map(fact);
    values.filter(|value| !value.is_empty()).map(escaped).collect()
}

pub(crate) fn difference_between(
    what: &str,
    base: &BTreeSet<String>,
    new: &BTreeSet<String>,
) -> Option<String> {
    let list = |values: &BTreeSet<String>| {
        values.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    let known = !base.is_empty() && !new.is_empty();
    let several = base.union(new).count() > 1;
    (known && several).then(|| format!("{what}: base {}; new {}", list(base), list(new)))
}
