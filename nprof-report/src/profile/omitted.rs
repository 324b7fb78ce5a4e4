//! Rows that a report omits.

use crate::profile::group::Sum;

/// The number of rows omitted for one reason, and their sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OmittedRows {
    /// The number of rows.
    pub rows: usize,
    /// Their sums by event; an event that is absent has none.
    pub sums: Vec<Sum>,
}

impl OmittedRows {
    /// Adds a row with its sums by event.
    pub fn add(&mut self, sums: impl IntoIterator<Item = Sum>) {
        self.rows += 1;
        for (event, sum) in sums.into_iter().enumerate() {
            if self.sums.len() <= event {
                self.sums.resize(event + 1, Sum::default());
            }
            self.sums[event].add(sum);
        }
    }

    /// Adds a row of one event.
    pub fn add_row(&mut self, event: usize, sum: Sum) {
        self.rows += 1;
        if self.sums.len() <= event {
            self.sums.resize(event + 1, Sum::default());
        }
        self.sums[event].add(sum);
    }

    /// Returns the sum of an event.
    pub fn sum(&self, event: usize) -> Sum {
        self.sums.get(event).copied().unwrap_or_default()
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
    }
}
