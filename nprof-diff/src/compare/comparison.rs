//! The two sides of a comparison, and what is asked of them. Pure.

use nprof_report::profile::Sum;

use crate::compare::effect_size::EffectSize;
use crate::compare::observed::{Observed, Quantity};
use crate::compare::row::{Change, Metric};
use crate::input::key::KeyId;
use crate::input::run_counts::{KeyCount, RunCounts};
use crate::stats;

/// How differences are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// By how the runs of each side differ: two or more on both sides.
    Welch,
    /// By counting alone, the runs of a side added up: samples are taken to be independent.
    Newcombe,
}

/// What is asked of a comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Criteria {
    /// Intervals are of level 1 - alpha, and the rate of false discoveries is at most alpha.
    pub(crate) alpha: f64,
    /// Whether weights are CPU time, ns.
    pub(crate) clock: bool,
    /// What is smaller is not called a change.
    pub(crate) min_effect: Option<EffectSize>,
}

/// The runs of both sides, and what is asked of them.
pub(crate) struct Comparison<'a> {
    pub(crate) base: &'a [&'a RunCounts],
    pub(crate) new: &'a [&'a RunCounts],
    pub(crate) method: Method,
    pub(crate) criteria: Criteria,
}

impl Comparison<'_> {
    /// A key in the runs of the base, and in those of the new side.
    pub(crate) fn observed(&self, key: KeyId, pick: impl Fn(KeyCount) -> Sum) -> [Observed<'_>; 2] {
        [Observed::of(self.base, key, &pick), Observed::of(self.new, key, &pick)]
    }

    /// What is known of a key before all keys have been seen.
    pub(crate) fn metric(&self, key: KeyId, pick: impl Fn(KeyCount) -> Sum) -> Metric {
        let [base, new] = self.observed(key, pick);
        let change = |quantity: Quantity| {
            let alpha = self.criteria.alpha;
            let estimate = match self.method {
                Method::Newcombe => {
                    stats::newcombe(base.proportion(quantity), new.proportion(quantity), alpha)
                }
                Method::Welch => stats::welch(
                    base.spread(quantity),
                    new.spread(quantity),
                    alpha,
                    quantity.most(),
                ),
            };
            Change { estimate, p: estimate.p, q: 1.0, significant: false }
        };
        Metric {
            base_samples: base.samples(),
            new_samples: new.samples(),
            share: change(Quantity::Share),
            time: self.criteria.clock.then(|| change(Quantity::Time)),
            changed: false,
            displaced: false,
        }
    }
}
