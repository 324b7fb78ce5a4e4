//! The comparison of two sides: rows, their differences and changes. Pure.
//!
//! Every key is compared by self and by total: by share, by time, bytes or counts if the event measures these, and by
//! its corrected part of a run, which decides on changes. Each of the three is a family of
//! comparisons and corrected for its size.

use crate::compare::comparison::{Comparison, Criteria, Method};
use crate::compare::observed::{MIN_COUNT_VARIANCE, SideTotals};
use crate::compare::quantity::{MetricKind, Quantity};
use crate::compare::ratio::Divisor;
use crate::compare::row::Row;
use crate::compare::significance;
use crate::input::key::KeyId;
use crate::input::run_counts::RunCounts;
use crate::stats::{self, Estimate, Spread};

/// The smallest number of samples of a side that decides anything.
pub(crate) const MIN_SAMPLES_PER_SIDE: u64 = 100;

/// The result of comparing two sides.
#[derive(Clone, Debug)]
pub(crate) struct Diff {
    /// The statistical method.
    pub(crate) method: Method,
    /// The criteria of a change.
    pub(crate) criteria: Criteria,
    /// The totals of the base.
    pub(crate) base: SideTotals,
    /// The totals of the new side.
    pub(crate) new: SideTotals,
    /// The weight of a whole run. None with a single run on either side.
    pub(crate) run_amount: Option<Estimate>,
    /// The number of comparisons: the size of the family.
    pub(crate) comparisons: usize,
    /// The part of the variation of whole runs that is removed from the rows: 1 compares shares, 0
    /// compares times.
    pub(crate) common_part: f64,
    /// The number of keys with samples that were not compared, because there is nothing to divide by.
    pub(crate) undivided: usize,
    /// One row per key with samples, in the order of the keys.
    pub(crate) rows: Vec<Row>,
}

impl Diff {
    /// True if both sides have enough samples to decide anything.
    pub(crate) fn has_enough_samples(&self) -> bool {
        self.base.sum.samples.min(self.new.sum.samples) >= MIN_SAMPLES_PER_SIDE
    }
}

/// Compares two sides. `keys` are all keys of both; runs without samples must have been left out. With
/// a divisor, ratios are compared.
pub(crate) fn compare(
    base: &[&RunCounts],
    new: &[&RunCounts],
    divisor: Option<Divisor<'_>>,
    keys: impl Iterator<Item = KeyId>,
    criteria: Criteria,
) -> Diff {
    // A variance between runs needs two of them, on each side.
    let has_repetitions = base.len() >= 2 && new.len() >= 2;
    let method = if has_repetitions { Method::Welch } else { Method::Newcombe };
    let comparison = Comparison { base, new, method, criteria, divisor };
    // The streams may contain other events, with keys that this one has no samples of.
    let has_samples = |key: &KeyId| {
        let runs = base.iter().chain(new);
        runs.filter_map(|run| run.keys.get(key)).any(|count| count.total.samples > 0)
    };
    let mut rows: Vec<Row> = keys
        .filter(has_samples)
        .map(|key| Row {
            key,
            self_: comparison.metric(key, MetricKind::Self_),
            total: comparison.metric(key, MetricKind::Total),
        })
        .collect();
    let all = rows.len();
    rows.retain(|row| row.total.samples() > 0);
    let undivided = all - rows.len();
    let family = significance::test_rows(&mut rows, &comparison);
    // The weight of a single run is known exactly, but not how much it varies.
    let run_amount = criteria.amount.filter(|_| has_repetitions).map(|_| {
        stats::welch(
            run_amount_spread(base),
            run_amount_spread(new),
            criteria.alpha,
            Quantity::Amount.max(),
        )
    });
    Diff {
        method,
        criteria,
        base: SideTotals::of(base),
        new: SideTotals::of(new),
        run_amount,
        comparisons: family.comparisons,
        common_part: family.common_part,
        undivided,
        rows,
    }
}

/// Returns the spread of the weight of whole runs.
fn run_amount_spread(runs: &[&RunCounts]) -> Spread {
    let weights: Vec<f64> = runs.iter().map(|run| run.sum.weight as f64).collect();
    // Equal programs that are sampled by a period often have equal numbers of samples, and so totals, but these are
    // off by up to a sample from the truth. As for rows, the variance is at least that of a count of one.
    let variance_of_count = |run: &&RunCounts| {
        let samples = run.sum.samples_of_equal_weight().max(1.0);
        MIN_COUNT_VARIANCE * (run.sum.weight as f64 / samples).powi(2)
    };
    let min_variance = runs.iter().map(variance_of_count).sum::<f64>() / runs.len().max(1) as f64;
    Spread { min_variance, ..Spread::of(&weights) }
}
