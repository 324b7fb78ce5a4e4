//! The runs of both sides and the criteria they are compared by. Pure.

use crate::compare::effect_size::EffectSize;
use crate::compare::observed::{Observed, SideTotals};
use crate::compare::quantity::{MetricKind, Quantity};
use crate::compare::ratio::{Divisor, Ratios};
use crate::compare::row::{Change, Metric};
use crate::input::event::AmountUnit;
use crate::input::key::KeyId;
use crate::input::run_counts::RunCounts;
use crate::stats::{self, Estimate};

/// The statistical method of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// By the variance between runs; needs two or more runs on both sides.
    Welch,
    /// By counts alone, with the runs of a side added up; assumes independent samples.
    Newcombe,
}

/// The criteria of a change, from the command line and the event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Criteria {
    /// Intervals have confidence 1 - alpha, and the probability of any false alarm is at most alpha.
    pub(crate) alpha: f64,
    /// The unit of the weights of samples, if they are compared as they are.
    pub(crate) amount: Option<AmountUnit>,
    /// True if the sides were recorded in turn on one machine, so that times are comparable.
    pub(crate) is_in_turn: bool,
    /// Smaller differences are not reported as changes.
    pub(crate) min_effect: Option<EffectSize>,
}

/// The runs of both sides, to be compared by one method.
pub(crate) struct Comparison<'a> {
    pub(crate) base: &'a [&'a RunCounts],
    pub(crate) new: &'a [&'a RunCounts],
    pub(crate) method: Method,
    pub(crate) criteria: Criteria,
    /// The event to divide by; `None` to compare parts of a run.
    pub(crate) divisor: Option<Divisor<'a>>,
}

impl Comparison<'_> {
    /// Returns a key's samples in the runs of the base, and in the runs of the new side.
    pub(crate) fn observed(&self, key: KeyId, kind: MetricKind) -> [Observed<'_>; 2] {
        [Observed::of(self.base, key, kind), Observed::of(self.new, key, kind)]
    }

    /// Estimates the differences of a key from its own runs; significance is decided later, over
    /// all keys.
    pub(crate) fn metric(&self, key: KeyId, kind: MetricKind) -> Metric {
        if let Some(divisor) = &self.divisor {
            return self.ratio_metric(divisor, key, kind);
        }
        let [base, new] = self.observed(key, kind);
        let share = self.change(&base, &new, Quantity::Share);
        Metric {
            base: base.sum(),
            new: new.sum(),
            share,
            // `significance` corrects it.
            corrected: share,
            amount: self.criteria.amount.map(|_| self.change(&base, &new, Quantity::Amount)),
            blocks: self.blocks(key, kind),
            whole_ratio: None,
            changed: false,
            displaced: false,
        }
    }

    /// Estimates the difference of a key's ratios; without samples if there is nothing to divide by.
    fn ratio_metric(&self, divisor: &Divisor<'_>, key: KeyId, kind: MetricKind) -> Metric {
        let Some(ratios) = self.ratios(divisor, key, kind) else { return Metric::default() };
        let [base, new] = self.observed(key, kind);
        let Ratios { spreads: [of_base, of_new], whole, .. } = ratios;
        let estimate = stats::welch(of_base, of_new, self.criteria.alpha, f64::INFINITY);
        let share = Change { estimate, p: estimate.p, q: 1.0, significant: false };
        Metric {
            base: base.sum(),
            new: new.sum(),
            share,
            corrected: share,
            amount: self.amount_of(share),
            blocks: self.blocks(key, kind),
            whole_ratio: Some(whole),
            changed: false,
            displaced: false,
        }
    }

    /// Returns the blocks of a key in a mean run of each side.
    fn blocks(&self, key: KeyId, kind: MetricKind) -> Option<[f64; 2]> {
        let of_run = |run: &&RunCounts| {
            run.keys.get(&key).map_or(0.0, |count| kind.blocks_of(*count).value())
        };
        let mean =
            |runs: &[&RunCounts]| runs.iter().map(of_run).sum::<f64>() / runs.len().max(1) as f64;
        let has_blocks = self.criteria.amount == Some(AmountUnit::Bytes);
        has_blocks.then(|| [self.base, self.new].map(mean))
    }

    /// Returns the ratios of a key. None if a run has nothing to divide by.
    pub(super) fn ratios(
        &self,
        divisor: &Divisor<'_>,
        key: KeyId,
        kind: MetricKind,
    ) -> Option<Ratios> {
        let is_repeated = self.method == Method::Welch;
        Ratios::of(&self.observed(key, kind), divisor, key, kind, is_repeated)
    }

    /// Returns a part of a run of the base as an amount. None unless the event measures one.
    pub(crate) fn amount_of(&self, share: Change) -> Option<Change> {
        let run = SideTotals::of(self.base).mean_weight();
        let Estimate { base, new, low, high, p } = share.estimate;
        let [base, new, low, high] = [base, new, low, high].map(|part| part * run);
        let estimate = Estimate { base, new, low, high, p };
        self.criteria.amount.map(|_| Change { estimate, ..share })
    }

    fn change(&self, base: &Observed<'_>, new: &Observed<'_>, quantity: Quantity) -> Change {
        let alpha = self.criteria.alpha;
        // A single run has no variance between runs: its counts are all there is.
        let estimate = match self.method {
            Method::Newcombe => {
                stats::newcombe(base.proportion(quantity), new.proportion(quantity), alpha)
            }
            Method::Welch => {
                let [base, new] = [base, new].map(|side| side.spread(&side.scales(quantity)));
                stats::welch(base, new, alpha, quantity.max())
            }
        };
        // `significance` replaces p by the moderated one, and sets q.
        Change { estimate, p: estimate.p, q: 1.0, significant: false }
    }
}
