//! What changed: the rows, their differences and their verdicts. Pure.
//!
//! Every key is compared twice, by its own share (self) and by the share of what it called as
//! well (total); where the event is a clock, also by CPU time. One family of comparisons is all
//! shares, another all CPU times: each is corrected for its size.

use crate::compare::comparison::{Method, Question, Sides};
use crate::compare::observed::{Measure, Whole};
use crate::compare::row::Row;
use crate::compare::significance;
use crate::input::key::KeyId;
use crate::input::run_counts::Counts;
use crate::stats::{self, Estimate, Spread};

/// A side with fewer samples decides nothing.
pub(crate) const ENOUGH: u64 = 100;

/// The comparison of two sides.
#[derive(Clone, Debug)]
pub(crate) struct Diff {
    /// How differences were judged.
    pub(crate) method: Method,
    /// What was asked.
    pub(crate) question: Question,
    /// The base.
    pub(crate) base: Whole,
    /// The new side.
    pub(crate) new: Whole,
    /// CPU time of a whole run, ns: an interval needs two or more runs on both sides.
    pub(crate) time: Option<Estimate>,
    /// How many shares were compared: the size of the family.
    pub(crate) comparisons: usize,
    /// What most functions' shares are, times those of the base: something else changed where
    /// it is not 1.
    pub(crate) rest: f64,
    /// One per key that has samples, in the order of the keys.
    pub(crate) rows: Vec<Row>,
}

impl Diff {
    /// Whether both sides have samples enough to decide anything.
    pub(crate) fn is_decided(&self) -> bool {
        self.base.sum.samples.min(self.new.sum.samples) >= ENOUGH
    }
}

/// Compares two sides; `keys` are all keys of both. Runs without samples must have been left out.
pub(crate) fn compare(
    base: &[&Counts],
    new: &[&Counts],
    keys: impl Iterator<Item = KeyId>,
    question: Question,
) -> Diff {
    let several = base.len() >= 2 && new.len() >= 2;
    let method = if several { Method::Welch } else { Method::Newcombe };
    let sides = Sides { base, new, method, question };
    let rows = keys.map(|key| Row {
        key,
        own: sides.metric(key, |count| count.own),
        total: sides.metric(key, |count| count.total),
    });
    let mut rows: Vec<Row> = rows.filter(|row| row.total.samples() > 0).collect();
    let judged = significance::judge(&mut rows, &sides);
    let time = (question.clock && several).then(|| {
        let spread = |runs: &[&Counts]| {
            let weights: Vec<f64> = runs.iter().map(|run| run.sum.weight as f64).collect();
            Spread::of(&weights)
        };
        stats::welch(spread(base), spread(new), question.alpha, Measure::Time.most())
    });
    Diff {
        method,
        question,
        base: Whole::of(base),
        new: Whole::of(new),
        time,
        comparisons: judged.comparisons,
        rest: judged.rest,
        rows,
    }
}
