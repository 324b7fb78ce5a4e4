//! `--noise`: how much runs of one side differ from each other. Pure.
//!
//! The runs are split into two halves, in every way or in many, and the halves are compared as if
//! they were two sides. Nothing has changed between them: what is found is noise.

use fastrand::Rng;

use crate::compare::comparison::Criteria;
use crate::compare::diff::{self, Diff};
use crate::compare::observed::{Observed, Quantity, SideTotals};
use crate::compare::row::Metric;
use crate::input::key::{KeyId, KeyTable};
use crate::input::run_counts::{KeyCount, RunCounts};

/// Splits are drawn where there are more than this.
const MAX_SPLITS: usize = 200;

/// What comparisons of the runs with each other have shown.
#[derive(Clone, Debug)]
pub(crate) struct NoiseCalibration {
    /// What was asked.
    pub(crate) criteria: Criteria,
    /// All runs.
    pub(crate) whole: SideTotals,
    /// How many runs each half had.
    pub(crate) halves: [usize; 2],
    /// How many splits were compared.
    pub(crate) splits: usize,
    /// In how many of them something is called changed.
    pub(crate) false_alarms: usize,
    /// One per key that has samples, in the order of the keys.
    pub(crate) rows: Vec<RowNoise>,
}

/// The noise of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RowNoise {
    /// The key.
    pub(crate) key: KeyId,
    /// Of self.
    pub(crate) own: MetricNoise,
    /// Of total.
    pub(crate) total: MetricNoise,
}

/// The noise of a key, by self or by total.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MetricNoise {
    /// Samples of all runs.
    pub(crate) samples: u64,
    /// Of the share, as a fraction.
    pub(crate) share: NoiseLevel,
    /// Of CPU time per run, ns; none unless the event is a clock.
    pub(crate) time: Option<NoiseLevel>,
}

/// How a value varies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NoiseLevel {
    /// Its mean over the runs.
    pub(crate) mean: f64,
    /// Its standard deviation between runs.
    pub(crate) deviation: f64,
    /// The variance between runs, times what it would be were samples independent: above 1 runs
    /// differ, below 1 sampling is regular.
    pub(crate) dispersion: f64,
    /// What the difference of two halves exceeds in a share of alpha of the splits at most.
    pub(crate) floor: f64,
}

/// Compares the runs with each other; `keys` are all keys. `None` with fewer than two runs.
pub(crate) fn calibrate(
    runs: &[&RunCounts],
    keys: &KeyTable,
    criteria: Criteria,
) -> Option<NoiseCalibration> {
    if runs.len() < 2 {
        return None;
    }
    let halves = [runs.len() / 2, runs.len() - runs.len() / 2];
    let splits = splits(runs.len());
    let mut false_alarms = 0;
    let mut differences: Vec<[Vec<f64>; 4]> = Vec::new();
    let mut compared = Vec::new();
    for split in &splits {
        let side = |of: bool| -> Vec<&RunCounts> {
            runs.iter().zip(split).filter(|(_, first)| **first == of).map(|(run, _)| *run).collect()
        };
        let diff = diff::compare(&side(true), &side(false), keys.ids(), criteria);
        false_alarms += usize::from(diff.rows.iter().any(|row| row.verdict().is_change()));
        record_differences(&diff, &mut differences);
        // Every split has all runs, and so the same rows.
        compared = diff.rows;
    }
    let rows = compared.iter().zip(&mut differences).map(|(row, found)| RowNoise {
        key: row.key,
        own: noise(runs, row.key, |count| count.own, criteria, &mut found[..2]),
        total: noise(runs, row.key, |count| count.total, criteria, &mut found[2..]),
    });
    let rows = rows.collect();
    Some(NoiseCalibration {
        criteria,
        whole: SideTotals::of(runs),
        halves,
        splits: splits.len(),
        false_alarms,
        rows,
    })
}

/// Keeps the differences of a split: of self and of total, by share and by CPU time.
fn record_differences(diff: &Diff, differences: &mut Vec<[Vec<f64>; 4]>) {
    differences.resize_with(diff.rows.len(), Default::default);
    let time = |metric: &Metric| metric.time.map_or(0.0, |time| time.estimate.difference());
    for (row, found) in diff.rows.iter().zip(differences) {
        let of_row = [
            row.own.share.estimate.difference(),
            time(&row.own),
            row.total.share.estimate.difference(),
            time(&row.total),
        ];
        found.iter_mut().zip(of_row).for_each(|(found, difference)| found.push(difference.abs()));
    }
}

fn noise(
    runs: &[&RunCounts],
    key: KeyId,
    pick: fn(KeyCount) -> nprof_report::profile::Sum,
    criteria: Criteria,
    found: &mut [Vec<f64>],
) -> MetricNoise {
    let observed = Observed::of(runs, key, pick);
    let level = |quantity, found: usize, differences: &mut [Vec<f64>]| {
        let spread = observed.spread(quantity);
        NoiseLevel {
            mean: spread.mean,
            deviation: spread.variance.sqrt(),
            dispersion: if spread.sampling > 0.0 { spread.variance / spread.sampling } else { 0.0 },
            floor: noise_floor(&mut differences[found], criteria.alpha),
        }
    };
    MetricNoise {
        samples: observed.samples(),
        share: level(Quantity::Share, 0, found),
        time: criteria.clock.then(|| level(Quantity::Time, 1, found)),
    }
}

/// The smallest of the values that at most a share of `alpha` of them exceed.
fn noise_floor(values: &mut [f64], alpha: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let above = (alpha * values.len() as f64).floor() as usize;
    values.iter().rev().nth(above).copied().unwrap_or_default()
}

/// Which runs are in the first half, for each split: every way to halve them, or some that are
/// the same every time.
fn splits(runs: usize) -> Vec<Vec<bool>> {
    let first = runs / 2;
    let mut splits: Vec<Vec<bool>> = Vec::new();
    if runs <= 10 {
        let of = |set: usize| (0..runs).map(|run| set >> run & 1 == 1).collect::<Vec<_>>();
        let sets = (0..1_usize << runs).filter(|set| set.count_ones() as usize == first);
        // Of halves of the same size the mirrored split is the same.
        let is_new = |set: &usize| runs % 2 == 1 || set & 1 == 1;
        splits.extend(sets.filter(is_new).map(of));
    } else {
        let mut rng = Rng::with_seed(1);
        let mut split: Vec<bool> = (0..runs).map(|run| run < first).collect();
        for _ in 0..MAX_SPLITS {
            rng.shuffle(&mut split);
            splits.push(split.clone());
        }
    }
    splits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::key::RowKey;
    use nprof_report::profile::Sum;

    #[test]
    fn runs_are_halved_in_every_way() {
        for (runs, count) in [(2, 1), (3, 3), (4, 3), (5, 10), (6, 10), (10, 126), (40, MAX_SPLITS)]
        {
            let splits = splits(runs);
            assert_eq!(splits.len(), count);
            let sizes = |split: &Vec<bool>| split.iter().filter(|first| **first).count();
            assert!(splits.iter().all(|split| sizes(split) == runs / 2));
        }
    }

    #[test]
    fn the_floor_is_exceeded_rarely() {
        let mut values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(noise_floor(&mut values, 0.05), 95.0);
        assert_eq!(noise_floor(&mut [1.0, 3.0, 2.0], 0.05), 3.0);
    }

    /// A run in which the second key has so many of 1000 samples.
    fn run(keys: &[KeyId], own: u64) -> RunCounts {
        let sum = |samples| Sum { samples, weight: samples * 1000 };
        let mut counts = RunCounts { sum: sum(1000), ..RunCounts::default() };
        for (&key, samples) in keys.iter().zip([1000 - own, own]) {
            counts.keys.insert(key, KeyCount { own: sum(samples), total: sum(samples) });
        }
        counts
    }

    #[test]
    fn noise_is_what_halves_differ_by() {
        let mut keys = KeyTable::default();
        let ids = ["a", "b"].map(|name| keys.intern(RowKey::of_name(name.as_bytes())));
        let runs = [100, 140, 120, 160].map(|own| run(&ids, own));
        let criteria = Criteria { alpha: 0.05, clock: true, min_effect: None };
        let calibration = calibrate(&runs.each_ref(), &keys, criteria).unwrap();
        assert_eq!((calibration.splits, calibration.halves), (3, [2, 2]));
        let own = calibration.rows[1].own;
        assert!((own.share.mean - 0.13).abs() < 1e-12);
        // {100, 120} against {140, 160}.
        assert!((own.share.floor - 0.04).abs() < 1e-12);
        assert!((own.time.unwrap().floor - 40_000.0).abs() < 1e-6);
        assert!((own.share.deviation - 0.025_819_888_974_716).abs() < 1e-12);
        assert!(own.share.dispersion > 5.0);
        assert!(calibrate(&[&runs[0]], &keys, criteria).is_none());
    }
}
