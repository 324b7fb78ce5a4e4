//! Rows that a report omits.

use std::collections::BTreeMap;

use nprof_stream::escape::escaped;

use crate::profile::group::Sum;
use crate::profile::summary::Summary;

/// The number of rows omitted for one reason, and their sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OmittedRows {
    /// The number of rows.
    pub rows: usize,
    /// Their sums by event; an event that is absent has none. The rows of one event of thousands take the
    /// memory of one.
    pub sums: BTreeMap<usize, Sum>,
}

impl OmittedRows {
    /// Adds a row with its sums by event.
    pub fn add(&mut self, sums: impl IntoIterator<Item = Sum>) {
        self.rows += 1;
        for (event, sum) in sums.into_iter().enumerate() {
            self.add_sum(event, sum);
        }
    }

    /// Adds a row of one event.
    pub fn add_row(&mut self, event: usize, sum: Sum) {
        self.rows += 1;
        self.add_sum(event, sum);
    }

    fn add_sum(&mut self, event: usize, sum: Sum) {
        if sum != Sum::default() {
            self.sums.entry(event).or_default().add(sum);
        }
    }

    /// Returns the sum of an event.
    pub fn sum(&self, event: usize) -> Sum {
        self.sums.get(&event).copied().unwrap_or_default()
    }
}

/// The samples that a report folded to bound its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldedSums {
    /// All samples in the row or in the calls `(other)`.
    pub other: Sum,
    /// The most samples, and the most weight, that any one other row lacks.
    pub bound: Sum,
}

/// Raises the bound of an event to the samples and the weight of a row that is folded.
pub fn raise_bound(bounds: &mut Vec<Sum>, event: usize, sum: Sum) {
    bounds.resize(bounds.len().max(event + 1), Sum::default());
    let bound = &mut bounds[event];
    bound.samples = bound.samples.max(sum.samples);
    bound.weight = bound.weight.max(sum.weight);
}

/// Adds the bounds of one folding, by event: every folding can take a row once.
pub fn add_bounds(bounds: &mut Vec<Sum>, more: &[Sum]) {
    bounds.resize(bounds.len().max(more.len()), Sum::default());
    for (bound, more) in bounds.iter_mut().zip(more) {
        bound.add(*more);
    }
}

/// An event that is reported on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedEvent {
    /// The index into [`Summary::events`](crate::summary::Summary::events).
    pub event: usize,
    /// The sum that is 100 %.
    pub whole: Sum,
    /// The sum of the samples that count.
    pub counted: Sum,
}

impl ReportedEvent {
    /// Returns the number of a stack in folded stacks and flame graphs: samples if all samples weigh the
    /// same, else their weight. Readers of such files take widths from this number, so it must be
    /// proportional to the share.
    pub fn stack_number(&self, sum: Sum) -> u64 {
        if self.whole.has_stacks_of_samples() { sum.samples } else { sum.weight }
    }

    /// Returns the unit of [`Self::stack_number`], escaped.
    pub fn stack_unit(&self, summary: &Summary) -> String {
        match summary.events.get(self.event).filter(|_| !self.whole.has_stacks_of_samples()) {
            Some(event) => escaped(&event.event.unit),
            None => "samples".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_rows_are_summed_by_event() {
        let sum = |samples| Sum::of(samples, samples);
        let mut omitted = OmittedRows::default();
        omitted.add([sum(1)]);
        omitted.add([sum(2), sum(5)]);
        assert_eq!((omitted.rows, omitted.sum(0), omitted.sum(1)), (2, sum(3), sum(5)));
        assert_eq!(omitted.sum(2), Sum::default());
        omitted.add_row(usize::MAX, sum(1));
        assert_eq!(omitted.sums.len(), 3, "of events with a sum only");
    }
}
