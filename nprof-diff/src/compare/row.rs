//! A row of a comparison: a key, what is found of it, and what is said of it. Pure.

use crate::compare::effect_size::EffectSize;
use crate::compare::observed::Quantity;
use crate::input::key::KeyId;
use crate::stats::Estimate;

/// What has fewer samples on both sides together is not compared: it could hardly be significant,
/// and would only raise the bar for the rest. The sum says nothing on the difference, so that
/// choosing by it is fair (R. Bourgon, R. Gentleman and W. Huber, PNAS 107:9546-9551, 2010).
pub(crate) const MIN_SAMPLES_TO_COMPARE: u64 = 10;

/// A value of both sides, with its difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// The values and the interval of their difference, from the key's own runs.
    pub(crate) estimate: Estimate,
    /// The probability of such a difference by chance, by what is known from all keys.
    pub(crate) p: f64,
    /// The rate of false discoveries at which it is a discovery; 1 where nothing was compared.
    pub(crate) q: f64,
    /// Whether it is significant, by its own runs and among all keys.
    pub(crate) significant: bool,
}

/// A key, by self or by total.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Metric {
    /// Samples of all runs of the base.
    pub(crate) base_samples: u64,
    /// Samples of all runs of the new side.
    pub(crate) new_samples: u64,
    /// Shares of the samples, as fractions.
    pub(crate) share: Change,
    /// CPU time per run, ns; none unless the event is a clock.
    pub(crate) time: Option<Change>,
    /// Whether the share changed, significantly and by enough.
    pub(crate) changed: bool,
    /// Whether the share is another only because that of most other functions is: something
    /// else changed.
    pub(crate) displaced: bool,
}

impl Metric {
    /// Samples of all runs of both sides.
    pub(crate) fn samples(&self) -> u64 {
        self.base_samples.saturating_add(self.new_samples)
    }

    /// Whether it belongs to the family of comparisons.
    pub(crate) fn is_compared(&self) -> bool {
        self.samples() >= MIN_SAMPLES_TO_COMPARE
    }

    /// What was found by a measure.
    pub(crate) fn change_mut(&mut self, quantity: Quantity) -> Option<&mut Change> {
        match quantity {
            Quantity::Share => Some(&mut self.share),
            Quantity::Time => self.time.as_mut(),
        }
    }

    /// Whether the difference is at least this large; any is without a size.
    pub(crate) fn is_at_least(&self, size: Option<EffectSize>) -> bool {
        match size {
            None => true,
            Some(EffectSize::Share(least)) => self.share.estimate.difference().abs() >= least,
            Some(EffectSize::Time(least)) => {
                self.time.is_some_and(|time| time.estimate.difference().abs() >= least)
            }
        }
    }
}

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowVerdict {
    /// It is on the new side alone.
    Added,
    /// It is on the base alone.
    Removed,
    /// Its share grew.
    Grown,
    /// Its share shrank.
    Shrunk,
    /// Its share changed as that of most others did: because of something else.
    Displaced,
    /// No significant change.
    Same,
}

impl RowVerdict {
    /// What is called a change, in the order it is printed.
    pub(crate) const CHANGES: [Self; 4] = [Self::Added, Self::Removed, Self::Grown, Self::Shrunk];

    /// Whether it is called a change.
    pub(crate) fn is_change(self) -> bool {
        Self::CHANGES.contains(&self)
    }

    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            RowVerdict::Added => "added",
            RowVerdict::Removed => "removed",
            RowVerdict::Grown => "grown",
            RowVerdict::Shrunk => "shrunk",
            RowVerdict::Displaced => "displaced",
            RowVerdict::Same => "same",
        }
    }
}

/// A key on both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    /// What is compared.
    pub(crate) key: KeyId,
    /// Self.
    pub(crate) own: Metric,
    /// Self and what it called.
    pub(crate) total: Metric,
}

impl Row {
    /// What became of it: by self if that changed, else by total.
    pub(crate) fn verdict(&self) -> RowVerdict {
        let metric = match (self.own.changed, self.total.changed) {
            (true, _) => &self.own,
            (false, true) => &self.total,
            (false, false) if self.own.displaced || self.total.displaced => {
                return RowVerdict::Displaced;
            }
            (false, false) => return RowVerdict::Same,
        };
        match metric.share.estimate.difference() {
            _ if self.total.base_samples == 0 => RowVerdict::Added,
            _ if self.total.new_samples == 0 => RowVerdict::Removed,
            difference if difference > 0.0 => RowVerdict::Grown,
            _ => RowVerdict::Shrunk,
        }
    }
}
