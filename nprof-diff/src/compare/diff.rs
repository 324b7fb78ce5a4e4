//! What changed: the rows, their differences and their verdicts. Pure.
//!
//! Every key is compared twice, by its own share (self) and by the share of what it called as
//! well (total); where the event is a clock, also by CPU time. One family of comparisons is all
//! shares, another all CPU times: each is corrected for its size.

use crate::compare::comparison::{Comparison, Criteria, Method};
use crate::compare::observed::{Quantity, SideTotals};
use crate::compare::row::Row;
use crate::compare::significance;
use crate::input::key::KeyId;
use crate::input::run_counts::RunCounts;
use crate::stats::{self, Estimate, Spread};

/// A side with fewer samples decides nothing.
pub(crate) const MIN_SAMPLES_PER_SIDE: u64 = 100;

/// The comparison of two sides.
#[derive(Clone, Debug)]
pub(crate) struct Diff {
    /// How differences were judged.
    pub(crate) method: Method,
    /// What was asked.
    pub(crate) criteria: Criteria,
    /// The base.
    pub(crate) base: SideTotals,
    /// The new side.
    pub(crate) new: SideTotals,
    /// CPU time of a whole run, ns: an interval needs two or more runs on both sides.
    pub(crate) time: Option<Estimate>,
    /// How many shares were compared: the size of the family.
    pub(crate) comparisons: usize,
    /// What most functions' shares are, times those of the base: something else changed where
    /// it is not 1.
    pub(crate) median_ratio: f64,
    /// One per key that has samples, in the order of the keys.
    pub(crate) rows: Vec<Row>,
}

impl Diff {
    /// Whether both sides have samples enough to decide anything.
    pub(crate) fn is_decided(&self) -> bool {
        self.base.sum.samples.min(self.new.sum.samples) >= MIN_SAMPLES_PER_SIDE
    }
}

/// Compares two sides; `keys` are all keys of both. Runs without samples must have been left out.
pub(crate) fn compare(
    base: &[&RunCounts],
    new: &[&RunCounts],
    keys: impl Iterator<Item = KeyId>,
    criteria: Criteria,
) -> Diff {
    let several = base.len() >= 2 && new.len() >= 2;
    let method = if several { Method::Welch } else { Method::Newcombe };
    let sides = Comparison { base, new, method, criteria };
    let rows = keys.map(|key| Row {
        key,
        own: sides.metric(key, |count| count.own),
        total: sides.metric(key, |count| count.total),
    });
    let mut rows: Vec<Row> = rows.filter(|row| row.total.samples() > 0).collect();
    let judged = significance::test_rows(&mut rows, &sides);
    let time = (criteria.clock && several).then(|| {
        let spread = |runs: &[&RunCounts]| {
            let weights: Vec<f64> = runs.iter().map(|run| run.sum.weight as f64).collect();
            Spread::of(&weights)
        };
        stats::welch(spread(base), spread(new), criteria.alpha, Quantity::Time.most())
    });
    Diff {
        method,
        criteria,
        base: SideTotals::of(base),
        new: SideTotals::of(new),
        time,
        comparisons: judged.comparisons,
        median_ratio: judged.median_ratio,
        rows,
    }
}
