//! What changed: the rows, their differences and their verdicts. Pure.
//!
//! Every key is compared twice, by its own share (self) and by the share of what it called as
//! well (total); where the event is a clock, also by CPU time. One family of comparisons is all
//! shares, another all CPU times: each is corrected for its size.

use nprof_format::profile::Sum;

use crate::key::KeyId;
use crate::observed::{Measure, Observed, Whole, weights};
use crate::side::{Count, Counts};
use crate::stats::{self, Estimate, Replicates};

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
}

/// A value of both sides, with its difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// The values and the interval of their difference.
    pub(crate) estimate: Estimate,
    /// The rate of false discoveries at which it is a discovery; 1 where nothing was compared.
    pub(crate) q: f64,
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
    /// Whether the share changed significantly.
    pub(crate) changed: bool,
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
    /// No significant change.
    Same,
}

impl Verdict {
    /// All but [`Verdict::Same`], in the order they are printed.
    pub(crate) const CHANGES: [Self; 4] = [Self::Added, Self::Removed, Self::Grown, Self::Shrunk];

    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verdict::Added => "added",
            Verdict::Removed => "removed",
            Verdict::Grown => "grown",
            Verdict::Shrunk => "shrunk",
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
    let comparisons = judge(&mut rows, question.alpha);
    let time = (question.clock && several).then(|| {
        let (base, new) = (weights(base), weights(new));
        let exact = |values| Replicates { values, floor: 0.0 };
        stats::welch(exact(&base), exact(&new), question.alpha)
    });
    Diff { method, question, base: Whole::of(base), new: Whole::of(new), time, comparisons, rows }
}

/// Gives every comparison its q-value, and returns how many shares were compared.
fn judge(rows: &mut [Row], alpha: f64) -> usize {
    let mut metrics: Vec<&mut Metric> = rows
        .iter_mut()
        .flat_map(|row| [&mut row.own, &mut row.total])
        .filter(|metric| metric.is_compared())
        .collect();
    let p: Vec<f64> = metrics.iter().map(|metric| metric.share.estimate.p).collect();
    for (metric, q) in metrics.iter_mut().zip(stats::benjamini_hochberg(&p)) {
        metric.share.q = q;
        metric.changed = q <= alpha;
    }
    let mut times: Vec<&mut Change> =
        metrics.iter_mut().filter_map(|metric| metric.time.as_mut()).collect();
    let p: Vec<f64> = times.iter().map(|time| time.estimate.p).collect();
    for (time, q) in times.iter_mut().zip(stats::benjamini_hochberg(&p)) {
        time.q = q;
    }
    metrics.len()
}

struct Sides<'a> {
    base: &'a [&'a Counts],
    new: &'a [&'a Counts],
    method: Method,
    question: Question,
}

impl Sides<'_> {
    fn metric(&self, key: KeyId, pick: impl Fn(Count) -> Sum) -> Metric {
        let base = Observed::of(self.base, key, &pick);
        let new = Observed::of(self.new, key, &pick);
        let change = |measure| {
            let alpha = self.question.alpha;
            let estimate = match self.method {
                Method::Newcombe => {
                    stats::newcombe(base.proportion(measure), new.proportion(measure), alpha)
                }
                Method::Welch => {
                    let values = [base.values(measure), new.values(measure)];
                    let floors = [&base, &new].map(|side| side.sampling_variance(measure));
                    let base = Replicates { values: &values[0], floor: floors[0] };
                    let new = Replicates { values: &values[1], floor: floors[1] };
                    stats::welch(base, new, alpha)
                }
            };
            Change { estimate, q: 1.0 }
        };
        Metric {
            base_samples: base.samples(),
            new_samples: new.samples(),
            share: change(Measure::Share),
            time: self.question.clock.then(|| change(Measure::Time)),
            changed: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Key, Keys};
    use proptest::collection::vec;
    use proptest::prelude::*;

    const QUESTION: Question = Question { alpha: 0.05, clock: true };

    /// A run in which key `i` has `samples[i]` of self and everything hangs under key 0; every
    /// sample stands for `period` ns.
    fn run(samples: &[u64], period: u64) -> Counts {
        let sum = |samples| Sum { samples, weight: samples * period };
        let whole = sum(samples.iter().sum());
        let mut counts = Counts { sum: whole, ..Counts::default() };
        for (i, (key, &samples)) in ids(samples.len()).zip(samples).enumerate() {
            let own = sum(samples);
            let total = if i == 0 { whole } else { own };
            if total.samples > 0 {
                counts.keys.insert(key, Count { own, total });
            }
        }
        counts
    }

    fn ids(count: usize) -> impl Iterator<Item = KeyId> {
        let mut keys = Keys::default();
        for i in 0..count {
            keys.intern(Key { name: i.to_string().into_bytes().into(), image: Box::default() });
        }
        keys.ids()
    }

    fn diff(base: &[Counts], new: &[Counts], keys: usize) -> Diff {
        let (base, new): (Vec<_>, Vec<_>) = (base.iter().collect(), new.iter().collect());
        compare(&base, &new, ids(keys), QUESTION)
    }

    fn verdicts(diff: &Diff) -> Vec<&'static str> {
        diff.rows.iter().map(|row| row.verdict().word()).collect()
    }

    #[test]
    fn every_verdict_has_its_cause() {
        let base = run(&[1000, 500, 0, 300, 50], 1);
        let new = run(&[1010, 800, 200, 0, 40], 1);
        let diff = diff(&[base], &[new], 5);
        assert_eq!(verdicts(&diff), ["shrunk", "grown", "added", "removed", "same"]);
        assert_eq!(diff.comparisons, 10);
        assert_eq!(diff.method, Method::Newcombe);
    }

    #[test]
    fn what_is_rare_is_not_compared() {
        let diff = diff(&[run(&[1000, 0, 0], 1)], &[run(&[1000, 9, 10], 1)], 3);
        // Self and total of the first and the third.
        assert_eq!(diff.comparisons, 4);
        assert_eq!(verdicts(&diff), ["shrunk", "same", "added"]);
        assert_eq!(diff.rows[1].own.share.q, 1.0);
    }

    #[test]
    fn rate_and_length_do_not_matter_to_shares() {
        let base = run(&[1000, 500, 20], 1_000_000);
        let new = run(&[6000, 3000, 120], 2_000_000);
        let diff = diff(&[base], &[new], 3);
        assert_eq!(verdicts(&diff), ["same"; 3]);
        // But the CPU time grew to the twelvefold.
        let time = diff.rows[1].own.time.unwrap();
        assert_eq!((time.estimate.base, time.estimate.new), (5e8, 6e9));
        assert!(time.estimate.low > 5e9 && time.q < 1e-9);
    }

    #[test]
    fn what_varies_from_run_to_run_is_not_blamed() {
        let noisy = |own: [u64; 5]| own.map(|own| run(&[1000 - own, own], 1));
        let base = noisy([100, 300, 200, 250, 150]);
        let new = noisy([200, 350, 260, 180, 310]);
        let over_runs = diff(&base, &new, 2);
        assert_eq!(over_runs.method, Method::Welch);
        assert_eq!(verdicts(&over_runs), ["same"; 2]);
        let steady = diff(&noisy([200, 205, 195, 202, 198]), &noisy([260, 262, 255, 258, 265]), 2);
        assert_eq!(verdicts(&steady), ["shrunk", "grown"]);
        // Added up as if they were one run, the noise would pass for a change.
        let pooled = diff(&base[..1], &new, 2);
        assert_eq!(pooled.method, Method::Newcombe);
        assert_eq!(verdicts(&pooled), ["shrunk", "grown"]);
    }

    #[test]
    fn a_side_without_samples_is_all_zeros() {
        let diff = diff(&[], &[run(&[5, 5], 1)], 2);
        assert!(!diff.is_decided());
        assert_eq!(verdicts(&diff), ["same"; 2]);
        assert_eq!(diff.rows[0].own.share.estimate.base, 0.0);
    }

    fn side() -> impl Strategy<Value = Vec<Counts>> {
        vec((vec(0..5000u64, 5), 1..3_000_000u64), 1..4).prop_map(|runs| {
            runs.into_iter()
                .map(|(mut samples, period)| {
                    samples[0] += 1;
                    run(&samples, period)
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn nothing_differs_from_itself(side in side()) {
            for row in diff(&side, &side, 5).rows {
                for metric in [row.own, row.total] {
                    prop_assert_eq!(metric.share.estimate.difference(), 0.0);
                    prop_assert_eq!(metric.share.estimate.p, 1.0);
                    prop_assert_eq!(metric.time.unwrap().estimate.difference(), 0.0);
                }
                prop_assert_eq!(row.verdict(), Verdict::Same);
            }
        }

        #[test]
        fn swapping_the_sides_negates(base in side(), new in side()) {
            let (there, back) = (diff(&base, &new, 5), diff(&new, &base, 5));
            prop_assert_eq!(there.rows.len(), back.rows.len());
            for (a, b) in there.rows.iter().zip(&back.rows) {
                for (a, b) in [(a.own, b.own), (a.total, b.total)] {
                    let (a, b) = (a.share, b.share);
                    prop_assert_eq!(a.estimate.difference(), -b.estimate.difference());
                    prop_assert!((a.estimate.low + b.estimate.high).abs() < 1e-12);
                    prop_assert_eq!(a.q, b.q);
                }
            }
        }

        #[test]
        fn shares_of_self_sum_to_one(base in side(), new in side()) {
            let rows = diff(&base, &new, 5).rows;
            let sum = |value: fn(&Estimate) -> f64| {
                rows.iter().map(|row| value(&row.own.share.estimate)).sum::<f64>()
            };
            prop_assert!((sum(|estimate| estimate.base) - 1.0).abs() < 1e-9);
            prop_assert!((sum(|estimate| estimate.new) - 1.0).abs() < 1e-9);
            for row in &rows {
                prop_assert!(row.own.share.estimate.new <= row.total.share.estimate.new + 1e-12);
            }
        }
    }
}
