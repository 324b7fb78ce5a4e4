//! `--noise`: how much runs of one side differ from each other. Pure.
//!
//! The runs are split into two halves, in every way or in many, and the halves are compared as if
//! they were two sides. Nothing has changed between them: what is found is noise.

use fastrand::Rng;

use crate::compare::comparison::Question;
use crate::compare::diff::{self, Diff};
use crate::compare::observed::{Measure, Observed, Whole};
use crate::compare::row::Metric;
use crate::input::key::{KeyId, Keys};
use crate::input::run_counts::{Count, Counts};

/// Splits are drawn where there are more than this.
const SPLITS: usize = 200;

/// What comparisons of the runs with each other have shown.
#[derive(Clone, Debug)]
pub(crate) struct Null {
    /// What was asked.
    pub(crate) question: Question,
    /// All runs.
    pub(crate) whole: Whole,
    /// How many runs each half had.
    pub(crate) halves: [usize; 2],
    /// How many splits were compared.
    pub(crate) splits: usize,
    /// In how many of them something is called changed.
    pub(crate) alarms: usize,
    /// One per key that has samples, in the order of the keys.
    pub(crate) rows: Vec<Floor>,
}

/// The noise of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Floor {
    /// The key.
    pub(crate) key: KeyId,
    /// Of self.
    pub(crate) own: Noise,
    /// Of total.
    pub(crate) total: Noise,
}

/// The noise of a key, by self or by total.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Noise {
    /// Samples of all runs.
    pub(crate) samples: u64,
    /// Of the share, as a fraction.
    pub(crate) share: Level,
    /// Of CPU time per run, ns; none unless the event is a clock.
    pub(crate) time: Option<Level>,
}

/// How a value varies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Level {
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
pub(crate) fn calibrate(runs: &[&Counts], keys: &Keys, question: Question) -> Option<Null> {
    if runs.len() < 2 {
        return None;
    }
    let halves = [runs.len() / 2, runs.len() - runs.len() / 2];
    let splits = splits(runs.len());
    let mut alarms = 0;
    let mut differences: Vec<[Vec<f64>; 4]> = Vec::new();
    let mut compared = Vec::new();
    for split in &splits {
        let side = |of: bool| -> Vec<&Counts> {
            runs.iter().zip(split).filter(|(_, first)| **first == of).map(|(run, _)| *run).collect()
        };
        let diff = diff::compare(&side(true), &side(false), keys.ids(), question);
        alarms += usize::from(diff.rows.iter().any(|row| row.verdict().is_change()));
        note(&diff, &mut differences);
        // Every split has all runs, and so the same rows.
        compared = diff.rows;
    }
    let rows = compared.iter().zip(&mut differences).map(|(row, found)| Floor {
        key: row.key,
        own: noise(runs, row.key, |count| count.own, question, &mut found[..2]),
        total: noise(runs, row.key, |count| count.total, question, &mut found[2..]),
    });
    let rows = rows.collect();
    Some(Null { question, whole: Whole::of(runs), halves, splits: splits.len(), alarms, rows })
}

/// Keeps the differences of a split: of self and of total, by share and by CPU time.
fn note(diff: &Diff, differences: &mut Vec<[Vec<f64>; 4]>) {
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
    runs: &[&Counts],
    key: KeyId,
    pick: fn(Count) -> nprof_report::profile::Sum,
    question: Question,
    found: &mut [Vec<f64>],
) -> Noise {
    let observed = Observed::of(runs, key, pick);
    let level = |measure, found: usize, differences: &mut [Vec<f64>]| {
        let spread = observed.spread(measure);
        Level {
            mean: spread.mean,
            deviation: spread.variance.sqrt(),
            dispersion: if spread.sampling > 0.0 { spread.variance / spread.sampling } else { 0.0 },
            floor: exceeded(&mut differences[found], question.alpha),
        }
    };
    Noise {
        samples: observed.samples(),
        share: level(Measure::Share, 0, found),
        time: question.clock.then(|| level(Measure::Time, 1, found)),
    }
}

/// The smallest of the values that at most a share of `alpha` of them exceed.
fn exceeded(values: &mut [f64], alpha: f64) -> f64 {
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
        for _ in 0..SPLITS {
            rng.shuffle(&mut split);
            splits.push(split.clone());
        }
    }
    splits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::key::Key;
    use nprof_report::profile::Sum;

    #[test]
    fn runs_are_halved_in_every_way() {
        for (runs, count) in [(2, 1), (3, 3), (4, 3), (5, 10), (6, 10), (10, 126), (40, SPLITS)] {
            let splits = splits(runs);
            assert_eq!(splits.len(), count);
            let sizes = |split: &Vec<bool>| split.iter().filter(|first| **first).count();
            assert!(splits.iter().all(|split| sizes(split) == runs / 2));
        }
    }

    #[test]
    fn the_floor_is_exceeded_rarely() {
        let mut values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(exceeded(&mut values, 0.05), 95.0);
        assert_eq!(exceeded(&mut [1.0, 3.0, 2.0], 0.05), 3.0);
    }

    /// A run in which the second key has so many of 1000 samples.
    fn run(keys: &[KeyId], own: u64) -> Counts {
        let sum = |samples| Sum { samples, weight: samples * 1000 };
        let mut counts = Counts { sum: sum(1000), ..Counts::default() };
        for (&key, samples) in keys.iter().zip([1000 - own, own]) {
            counts.keys.insert(key, Count { own: sum(samples), total: sum(samples) });
        }
        counts
    }

    #[test]
    fn noise_is_what_halves_differ_by() {
        let mut keys = Keys::default();
        let ids = ["a", "b"].map(|name| keys.intern(Key::of_name(name.as_bytes())));
        let runs = [100, 140, 120, 160].map(|own| run(&ids, own));
        let question = Question { alpha: 0.05, clock: true, min_effect: None };
        let null = calibrate(&runs.each_ref(), &keys, question).unwrap();
        assert_eq!((null.splits, null.halves), (3, [2, 2]));
        let own = null.rows[1].own;
        assert!((own.share.mean - 0.13).abs() < 1e-12);
        // {100, 120} against {140, 160}.
        assert!((own.share.floor - 0.04).abs() < 1e-12);
        assert!((own.time.unwrap().floor - 40_000.0).abs() < 1e-6);
        assert!((own.share.deviation - 0.025_819_888_974_716).abs() < 1e-12);
        assert!(own.share.dispersion > 5.0);
        assert!(calibrate(&[&runs[0]], &keys, question).is_none());
    }
}
