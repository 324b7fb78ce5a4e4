//! `--noise`: differences between runs of the same side. Pure.
//!
//! The runs are split into two halves, in every way or in a fixed number of random ways, and the
//! halves are compared like two sides. Nothing has changed between them, so all differences are
//! noise.

use fastrand::Rng;

use crate::compare::comparison::Criteria;
use crate::compare::diff::{self, Diff};
use crate::compare::observed::{Observed, SideTotals};
use crate::compare::quantity::{MetricKind, Quantity};
use crate::compare::row::{Metric, Row};
use crate::input::key::{KeyId, KeyTable};
use crate::input::run_counts::RunCounts;

/// The number of random splits, if there are more runs than [`MAX_RUNS_FOR_ALL_SPLITS`].
const RANDOM_SPLITS: usize = 200;

/// The largest number of runs that are split in every way: ten runs have 126 splits.
const MAX_RUNS_FOR_ALL_SPLITS: usize = 10;

/// The result of comparing runs of one side with each other.
#[derive(Clone, Debug)]
pub(crate) struct NoiseCalibration {
    /// The criteria of a change.
    pub(crate) criteria: Criteria,
    /// The totals of all runs.
    pub(crate) totals: SideTotals,
    /// The number of runs in each half.
    pub(crate) halves: [usize; 2],
    /// The number of splits compared.
    pub(crate) splits: usize,
    /// The number of splits with a reported change.
    pub(crate) false_alarms: usize,
    /// One per key with samples, in the order of the keys.
    pub(crate) rows: Vec<RowNoise>,
}

/// The noise of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RowNoise {
    /// The key.
    pub(crate) key: KeyId,
    /// The noise of self.
    pub(crate) self_: MetricNoise,
    /// The noise of total.
    pub(crate) total: MetricNoise,
}

/// The noise of self or total of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MetricNoise {
    /// Samples of all runs.
    pub(crate) samples: u64,
    /// The noise of the share, as a fraction.
    pub(crate) share: NoiseLevel,
    /// The noise of the weight per run. None unless they are compared as they are.
    pub(crate) amount: Option<NoiseLevel>,
}

/// The variation of a value between runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NoiseLevel {
    /// The mean over the runs.
    pub(crate) mean: f64,
    /// The standard deviation between runs.
    pub(crate) deviation: f64,
    /// The variance between runs divided by that of independent samples: above 1 if runs differ,
    /// below 1 if sampling is regular.
    pub(crate) dispersion: f64,
    /// The difference between two halves that at most a fraction alpha of the splits exceed.
    pub(crate) floor: f64,
}

/// The differences between the halves of a key, one per split.
#[derive(Clone, Debug, Default)]
struct RowDifferences {
    self_: MetricDifferences,
    total: MetricDifferences,
}

#[derive(Clone, Debug, Default)]
struct MetricDifferences {
    share: Vec<f64>,
    amount: Vec<f64>,
}

impl RowDifferences {
    fn add(&mut self, row: &Row) {
        self.self_.add(&row.self_);
        self.total.add(&row.total);
    }
}

impl MetricDifferences {
    fn add(&mut self, metric: &Metric) {
        self.share.push(metric.share.estimate.difference().abs());
        if let Some(time) = &metric.amount {
            self.amount.push(time.estimate.difference().abs());
        }
    }
}

/// Compares the runs with each other; `keys` are all keys. None with fewer than two runs.
pub(crate) fn calibrate(
    runs: &[&RunCounts],
    keys: &KeyTable,
    criteria: Criteria,
) -> Option<NoiseCalibration> {
    if runs.len() < 2 {
        return None;
    }
    // With an odd number of runs, the second half has one more.
    let halves = [runs.len() / 2, runs.len() - runs.len() / 2];
    let splits = splits(runs.len());
    let mut false_alarms = 0;
    let mut differences: Vec<RowDifferences> = Vec::new();
    let mut rows = Vec::new();
    for split in &splits {
        let diff = compare_halves(runs, split, keys, criteria);
        // Nothing changed, so every reported change is a false alarm.
        false_alarms += usize::from(diff.rows.iter().any(|row| row.change().is_change()));
        differences.resize_with(diff.rows.len(), Default::default);
        for (row, differences) in diff.rows.iter().zip(&mut differences) {
            differences.add(row);
        }
        // Every split contains all runs, and so the same rows.
        rows = diff.rows;
    }
    let rows = rows.iter().zip(differences).map(|(row, differences)| RowNoise {
        key: row.key,
        self_: noise(runs, row.key, MetricKind::Self_, criteria, differences.self_),
        total: noise(runs, row.key, MetricKind::Total, criteria, differences.total),
    });
    let rows = rows.collect();
    let totals = SideTotals::of(runs);
    Some(NoiseCalibration { criteria, totals, halves, splits: splits.len(), false_alarms, rows })
}

fn compare_halves(
    runs: &[&RunCounts],
    split: &[bool],
    keys: &KeyTable,
    criteria: Criteria,
) -> Diff {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for (run, &is_first) in runs.iter().zip(split) {
        if is_first { first.push(*run) } else { second.push(*run) }
    }
    diff::compare(&first, &second, None, keys.ids(), criteria)
}

fn noise(
    runs: &[&RunCounts],
    key: KeyId,
    kind: MetricKind,
    criteria: Criteria,
    differences: MetricDifferences,
) -> MetricNoise {
    let observed = Observed::of(runs, key, kind);
    let MetricDifferences { share, amount } = differences;
    let alpha = criteria.alpha;
    MetricNoise {
        samples: observed.samples(),
        share: level(&observed, Quantity::Share, share, alpha),
        amount: criteria.amount.map(|_| level(&observed, Quantity::Amount, amount, alpha)),
    }
}

fn level(
    observed: &Observed<'_>,
    quantity: Quantity,
    mut differences: Vec<f64>,
    alpha: f64,
) -> NoiseLevel {
    let spread = observed.spread(&observed.scales(quantity));
    let sampling = spread.sampling_variance;
    NoiseLevel {
        mean: spread.mean,
        deviation: spread.variance.sqrt(),
        dispersion: if sampling > 0.0 { spread.variance / sampling } else { 0.0 },
        floor: noise_floor(&mut differences, alpha),
    }
}

/// Returns the smallest of the values that at most a fraction `alpha` of them exceed.
fn noise_floor(values: &mut [f64], alpha: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let above = (alpha * values.len() as f64).floor() as usize;
    values.iter().rev().nth(above).copied().unwrap_or_default()
}

/// Returns the splits, each as one flag per run: true for the first half. All splits of a few
/// runs; of many, a fixed pseudo-random selection.
fn splits(runs: usize) -> Vec<Vec<bool>> {
    let first = runs / 2;
    if runs <= MAX_RUNS_FOR_ALL_SPLITS {
        // Bit i of a set is run i.
        return (0..1_usize << runs)
            .filter(|set| set.count_ones() as usize == first)
            // With halves of equal size, a split and its mirror image are the same comparison.
            .filter(|set| runs % 2 == 1 || set & 1 == 1)
            .map(|set| (0..runs).map(|run| set >> run & 1 == 1).collect())
            .collect();
    }
    // A fixed seed: the same runs give the same report.
    let mut rng = Rng::with_seed(1);
    let mut split: Vec<bool> = (0..runs).map(|run| run < first).collect();
    let mut splits = Vec::with_capacity(RANDOM_SPLITS);
    for _ in 0..RANDOM_SPLITS {
        rng.shuffle(&mut split);
        splits.push(split.clone());
    }
    splits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::event::AmountUnit;
    use crate::input::key::RowKey;
    use crate::input::run_counts::KeyCount;
    use nprof_report::profile::Sum;

    #[test]
    fn splits_few_runs_in_every_way_and_many_at_random() {
        for (runs, count) in
            [(2, 1), (3, 3), (4, 3), (5, 10), (6, 10), (10, 126), (40, RANDOM_SPLITS)]
        {
            let splits = splits(runs);
            assert_eq!(splits.len(), count);
            let size = |split: &Vec<bool>| split.iter().filter(|first| **first).count();
            assert!(splits.iter().all(|split| size(split) == runs / 2));
        }
    }

    #[test]
    fn noise_floor_is_exceeded_by_fraction_alpha() {
        let mut values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(noise_floor(&mut values, 0.05), 95.0);
        assert_eq!(noise_floor(&mut [1.0, 3.0, 2.0], 0.05), 3.0);
    }

    /// A run of 1000 samples, `own` of them on the second key.
    fn run(keys: &[KeyId], self_: u64) -> RunCounts {
        let sum = |samples| Sum::of(samples, samples * 1000);
        let mut counts = RunCounts { sum: sum(1000), ..RunCounts::default() };
        for (&key, samples) in keys.iter().zip([1000 - self_, self_]) {
            counts.keys.insert(
                key,
                KeyCount { self_: sum(samples), total: sum(samples), ..KeyCount::default() },
            );
        }
        counts
    }

    #[test]
    fn calibration_measures_differences_of_halves() {
        let mut keys = KeyTable::default();
        let ids = ["a", "b"].map(|name| keys.intern(RowKey::of_name(name.as_bytes())));
        let runs = [100, 140, 120, 160].map(|self_| run(&ids, self_));
        let amount = Some(AmountUnit::Ns);
        let criteria = Criteria { alpha: 0.05, amount, is_in_turn: true, min_effect: None };
        let calibration = calibrate(&runs.each_ref(), &keys, criteria).unwrap();
        assert_eq!((calibration.splits, calibration.halves), (3, [2, 2]));
        let self_ = calibration.rows[1].self_;
        assert!((self_.share.mean - 0.13).abs() < 1e-12);
        // {100, 120} against {140, 160}.
        assert!((self_.share.floor - 0.04).abs() < 1e-12);
        assert!((self_.amount.unwrap().floor - 40_000.0).abs() < 1e-6);
        assert!((self_.share.deviation - 0.025_819_888_974_716).abs() < 1e-12);
        assert!(self_.share.dispersion > 5.0);
        assert!(calibrate(&[&runs[0]], &keys, criteria).is_none());
    }
}
