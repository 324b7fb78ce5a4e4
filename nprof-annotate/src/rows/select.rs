//! Selects and sorts the functions of a report.

use std::cmp::Reverse;
use std::sync::Arc;

use nprof_report::profile::{OmittedRows, ReportedEvent, Sum};
use nprof_report::report::RowLimits;
use nprof_report::summary::Summary;

use crate::rows::annotation::{Annotation, FunctionSums};

/// The functions of a report, and the sums of those that are omitted.
#[derive(Debug, Default)]
pub(crate) struct Selected {
    /// The events that have samples.
    pub(crate) all_events: Vec<ReportedEvent>,
    /// The events that have samples in printed functions.
    pub(crate) events: Vec<ReportedEvent>,
    /// The functions, those with the most samples of the first event first.
    pub(crate) functions: Vec<FunctionSums>,
    /// Functions that the filter does not match.
    pub(crate) uncounted: OmittedRows,
    /// Functions below the minimum share.
    pub(crate) dropped: OmittedRows,
    /// Functions beyond the maximum number.
    pub(crate) not_shown: OmittedRows,
    /// Functions without code.
    pub(crate) without_code: OmittedRows,
    /// The function without code that has the most samples.
    pub(crate) largest_without_code: Option<Arc<str>>,
    /// True if code that a process generated at run time is among them.
    pub(crate) lacks_generated_code: bool,
}

/// Returns the sum of an event.
pub(crate) fn sum_of(sums: &[Sum], event: usize) -> Sum {
    sums.get(event).copied().unwrap_or_default()
}

/// Returns the functions within the limits. If `rebase` is true, 100 % is the samples
/// that count.
pub(crate) fn select(
    annotation: &Annotation,
    summary: &Summary,
    limits: &RowLimits,
    rebase: bool,
) -> Selected {
    let mut selected = Selected::default();
    for (event, all) in summary.events.iter().enumerate().filter(|(_, all)| all.sum.samples > 0) {
        let counted = annotation.counted(event);
        let whole = if rebase { counted } else { all.sum };
        selected.all_events.push(ReportedEvent { event, whole, counted });
    }
    let mut functions: Vec<&FunctionSums> = annotation.functions().iter().collect();
    // Those without samples of their own only call others.
    functions.retain(|function| !function.total.is_empty());
    // By names, too, so that equal functions have one order in every run.
    functions.sort_by_key(|function| {
        let sums = selected.all_events.iter().map(|event| {
            let sum = sum_of(&function.total, event.event);
            Reverse((sum.weight, sum.samples))
        });
        let of = &function.function;
        (sums.collect::<Vec<_>>(), of.name.clone(), of.image.clone(), of.start)
    });
    for function in functions {
        let total = &function.total;
        let is_small =
            |event: &ReportedEvent| limits.is_small(sum_of(total, event.event), event.whole);
        // The first reason counts, so that the omitted functions add up.
        if !function.is_matched {
            selected.uncounted.add(total.iter().copied());
        } else if selected.all_events.iter().all(is_small) {
            selected.dropped.add(total.iter().copied());
        } else if limits.rows.is_some_and(|rows| selected.functions.len() >= rows) {
            selected.not_shown.add(total.iter().copied());
        } else {
            selected.functions.push(function.clone());
        }
    }
    let mut largest = Sum::default();
    selected.lacks_generated_code = annotation.lacks_generated_code();
    for (name, sums) in annotation.without_code() {
        selected.without_code.add(sums.iter().copied());
        let first = selected.all_events.first().map(|event| sum_of(sums, event.event));
        if let Some(sum) = first.filter(|sum| sum.weight > largest.weight) {
            largest = sum;
            selected.largest_without_code = Some(Arc::clone(name));
        }
    }
    // An event without a sample in the functions has no columns.
    selected.events = selected.all_events.clone();
    let functions = &selected.functions;
    selected.events.retain(|event| {
        functions.iter().any(|function| sum_of(&function.total, event.event).samples > 0)
    });
    selected
}
