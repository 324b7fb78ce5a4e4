//! What changed: the rows, their differences and their verdicts. Pure.
//!
//! Every key is compared twice, by its own share (self) and by the share of what it called as
//! well (total); where the event is a clock, also by CPU time. One family of comparisons is all
//! shares, another all CPU times: each is corrected for its size.

use nprof_format::profile::Sum;

use crate::judge;
use crate::key::KeyId;
use crate::observed::{Measure, Observed, Whole};
use crate::side::{Count, Counts};
use crate::size::Size;
use crate::stats::{self, Estimate, Spread};

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

/// A side with fewer samples decides nothing.
pub(crate) const ENOUGH: u64 = 100;

/// What has fewer samples on both sides together is not compared: it could hardly be significant,
/// and would only raise the bar for the rest. The sum says nothing on the difference, so that
/// choosing by it is fair (R. Bourgon, R. Gentleman and W. Huber, PNAS 107:9546-9551, 2010).
pub(crate) const RARE: u64 = 10;

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
pub(crate) struct Question {
    /// Intervals are of level 1 - alpha, and the rate of false discoveries is at most alpha.
    pub(crate) alpha: f64,
    /// Whether weights are CPU time, ns.
    pub(crate) clock: bool,
    /// What is smaller is not called a change.
    pub(crate) min_effect: Option<Size>,
}

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
    pub(crate) sure: bool,
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
        self.samples() >= RARE
    }

    /// What was found by a measure.
    pub(crate) fn change_mut(&mut self, measure: Measure) -> Option<&mut Change> {
        match measure {
            Measure::Share => Some(&mut self.share),
            Measure::Time => self.time.as_mut(),
        }
    }

    /// Whether the difference is at least this large; any is without a size.
    pub(crate) fn is_at_least(&self, size: Option<Size>) -> bool {
        match size {
            None => true,
            Some(Size::Share(least)) => self.share.estimate.difference().abs() >= least,
            Some(Size::Time(least)) => {
                self.time.is_some_and(|time| time.estimate.difference().abs() >= least)
            }
        }
    }
}

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
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

impl Verdict {
    /// What is called a change, in the order it is printed.
    pub(crate) const CHANGES: [Self; 4] = [Self::Added, Self::Removed, Self::Grown, Self::Shrunk];

    /// Whether it is called a change.
    pub(crate) fn is_change(self) -> bool {
        Self::CHANGES.contains(&self)
    }

    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verdict::Added => "added",
            Verdict::Removed => "removed",
            Verdict::Grown => "grown",
            Verdict::Shrunk => "shrunk",
            Verdict::Displaced => "displaced",
            Verdict::Same => "same",
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
    pub(crate) fn verdict(&self) -> Verdict {
        let metric = match (self.own.changed, self.total.changed) {
            (true, _) => &self.own,
            (false, true) => &self.total,
            (false, false) if self.own.displaced || self.total.displaced => {
                return Verdict::Displaced;
            }
            (false, false) => return Verdict::Same,
        };
        match metric.share.estimate.difference() {
            _ if self.total.base_samples == 0 => Verdict::Added,
            _ if self.total.new_samples == 0 => Verdict::Removed,
            difference if difference > 0.0 => Verdict::Grown,
            _ => Verdict::Shrunk,
        }
    }
}

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
    let judged = judge::judge(&mut rows, &sides);
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

/// The runs of both sides, and what is asked of them.
pub(crate) struct Sides<'a> {
    pub(crate) base: &'a [&'a Counts],
    pub(crate) new: &'a [&'a Counts],
    pub(crate) method: Method,
    pub(crate) question: Question,
}

impl Sides<'_> {
    /// A key in the runs of the base, and in those of the new side.
    pub(crate) fn observed(&self, key: KeyId, pick: impl Fn(Count) -> Sum) -> [Observed<'_>; 2] {
        [Observed::of(self.base, key, &pick), Observed::of(self.new, key, &pick)]
    }

    /// What is known of a key before all keys have been seen.
    fn metric(&self, key: KeyId, pick: impl Fn(Count) -> Sum) -> Metric {
        let [base, new] = self.observed(key, pick);
        let change = |measure: Measure| {
            let alpha = self.question.alpha;
            let estimate = match self.method {
                Method::Newcombe => {
                    stats::newcombe(base.proportion(measure), new.proportion(measure), alpha)
                }
                Method::Welch => {
                    stats::welch(base.spread(measure), new.spread(measure), alpha, measure.most())
                }
            };
            Change { estimate, p: estimate.p, q: 1.0, sure: false }
        };
        Metric {
            base_samples: base.samples(),
            new_samples: new.samples(),
            share: change(Measure::Share),
            time: self.question.clock.then(|| change(Measure::Time)),
            changed: false,
            displaced: false,
        }
    }
}
