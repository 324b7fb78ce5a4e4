//! A row of a comparison: a key with its differences and its change, as data. Pure.

use nprof_report::profile::Sum;

use crate::compare::effect_size::EffectSize;
use crate::compare::quantity::MetricKind;
use crate::input::key::KeyId;
use crate::stats::Estimate;

/// The smallest number of samples, of both sides together, of a row that is compared. A rarer row
/// could hardly be significant and would only raise the bar for the others. The sum is independent
/// of the difference, so filtering by it keeps the false discovery rate (R. Bourgon, R. Gentleman
/// and W. Huber, PNAS 107:9546-9551, 2010).
pub(crate) const MIN_SAMPLES_TO_COMPARE: u64 = 10;

/// A value of both sides and the significance of its difference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Change {
    /// The values and the interval of their difference, from the key's own runs.
    pub(crate) estimate: Estimate,
    /// The probability of such a difference by chance, with the variance moderated over all keys.
    pub(crate) p: f64,
    /// The smallest probability of any false alarm among all keys at which it is significant; 1 if
    /// it was not compared.
    pub(crate) q: f64,
    /// True if it is significant both by its own runs and among all keys.
    pub(crate) significant: bool,
}

/// Self or total of a key on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Metric {
    /// Samples of all runs of the base.
    pub(crate) base: Sum,
    /// Samples of all runs of the new side.
    pub(crate) new: Sum,
    /// Shares of the samples, as fractions. With `--per`, those that the row would have with the divisor of
    /// the base, and so are the other values.
    pub(crate) share: Change,
    /// Time in nanoseconds, bytes, or counts, per run. None unless the event measures one of them.
    pub(crate) amount: Option<Change>,
    /// The blocks of memory in a mean run of the base, and of the new side, whatever they are divided by. None unless
    /// the event measures bytes.
    pub(crate) blocks: Option<[f64; 2]>,
    /// Its part of a run, corrected for the speed of the machine and for the rows that changed:
    /// this decides.
    pub(crate) corrected: Change,
    /// The ratio that is a share of 1, with `--per`.
    pub(crate) whole_ratio: Option<f64>,
    /// True if the corrected part changed significantly, and by at least the minimum effect.
    pub(crate) changed: bool,
    /// True if the share changed significantly, but only because other rows take more or less.
    pub(crate) displaced: bool,
}

impl Metric {
    /// Returns the samples of all runs of both sides.
    pub(crate) fn samples(&self) -> u64 {
        self.base.samples.saturating_add(self.new.samples)
    }

    /// True if it belongs to the family of comparisons.
    pub(crate) fn is_compared(&self) -> bool {
        self.samples() >= MIN_SAMPLES_TO_COMPARE
    }

    /// True if the difference has at least this size, or no size is given.
    pub(crate) fn is_at_least(&self, size: Option<EffectSize>) -> bool {
        match size {
            None => true,
            Some(EffectSize::Share(min)) => self.share.estimate.difference().abs() >= min,
            Some(EffectSize::Amount(_, min)) => {
                self.amount.is_some_and(|amount| amount.estimate.difference().abs() >= min)
            }
        }
    }
}

/// The change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowChange {
    /// It has samples on the new side only.
    Added,
    /// It has samples on the base only.
    Removed,
    /// It takes more.
    Grown,
    /// It takes less.
    Shrunk,
    /// Its share changed only because other rows take more or less.
    Displaced,
    /// It has no significant change.
    Same,
}

impl RowChange {
    /// The values that are reported as changes, in the order of printing.
    pub(crate) const CHANGES: [Self; 4] = [Self::Added, Self::Removed, Self::Grown, Self::Shrunk];

    /// True if it is reported as a change.
    pub(crate) fn is_change(self) -> bool {
        Self::CHANGES.contains(&self)
    }

    /// Returns the word that reports use.
    pub(crate) fn word(self) -> &'static str {
        match self {
            RowChange::Added => "added",
            RowChange::Removed => "removed",
            RowChange::Grown => "grown",
            RowChange::Shrunk => "shrunk",
            RowChange::Displaced => "displaced",
            RowChange::Same => "same",
        }
    }
}

/// A key with both of its metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    /// The key.
    pub(crate) key: KeyId,
    /// Self.
    pub(crate) self_: Metric,
    /// Self and everything called from it.
    pub(crate) total: Metric,
}

impl Row {
    /// Returns one of the metrics.
    pub(crate) fn metric(&self, kind: MetricKind) -> &Metric {
        match kind {
            MetricKind::Self_ => &self.self_,
            MetricKind::Total => &self.total,
        }
    }

    /// Returns one of the metrics, to be changed.
    pub(crate) fn metric_mut(&mut self, kind: MetricKind) -> &mut Metric {
        match kind {
            MetricKind::Self_ => &mut self.self_,
            MetricKind::Total => &mut self.total,
        }
    }

    /// Returns the change: by self if that changed, else by total.
    pub(crate) fn change(&self) -> RowChange {
        let metric = if self.self_.changed {
            &self.self_
        } else if self.total.changed {
            &self.total
        } else if self.self_.displaced || self.total.displaced {
            return RowChange::Displaced;
        } else {
            return RowChange::Same;
        };
        // Total decides on presence: a function without self on one side can still be there as a
        // caller.
        if self.total.base.samples == 0 {
            RowChange::Added
        } else if self.total.new.samples == 0 {
            RowChange::Removed
        } else if metric.corrected.estimate.difference() > 0.0 {
            RowChange::Grown
        } else {
            RowChange::Shrunk
        }
    }
}
