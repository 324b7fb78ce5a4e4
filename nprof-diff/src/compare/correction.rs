//! The correction of amounts for the variation that all rows of a run share. Pure.
//!
//! A run on a busy machine takes longer, with all its functions: shares do not have that noise. But a
//! share is measured against all other functions, and moves less than the time: where a function of
//! 36 % takes 10 % more, its share grows by 6.2 % of itself. So the time of a row is divided by a power
//! of the time of the whole run: the power 0 compares times, 1 compares shares. The variation of
//! the runs of each side decides on the power; differences between the sides have no part in it.
//!
//! Bytes do not depend on the speed of the machine. They are compared as they are, unless the variation
//! of enough rows shows that runs do more or less of the same work. Counts, such as those of cycles and of
//! context switches, may depend on the machine, and are treated as times.

use crate::compare::comparison::{Comparison, Method};
use crate::compare::observed::Observed;
use crate::input::event::AmountUnit;
use crate::input::run_counts::RunCounts;
use crate::stats::{self, Spread};

/// The smallest number of runs of a side from which the common variation of amounts is known well
/// enough. All rows share it, so that the variances of other rows say nothing about it.
const MIN_RUNS: usize = 4;

/// The smallest number of rows that reveal the speed of a run.
const MIN_ROWS: usize = 5;

/// The smallest number of samples in each run of a row that reveals it.
const MIN_SAMPLES_PER_RUN: u64 = 5;

/// The powers that are tried: this number of equal steps from 0 to 1.
const STEPS: usize = 20;

/// The part of a whole run that remains at least, after rows that changed were left out.
const MIN_REST: f64 = 0.1;

/// The largest share that the compression of its change is computed for: that of 100 % is complete.
const MAX_SHARE: f64 = 0.9;

/// The weights of whole runs without the rows that changed, and the power of the correction.
#[derive(Clone, Debug)]
pub(super) struct Correction {
    /// Of the base, and of the new side, for each run.
    unchanged: [Vec<f64>; 2],
    /// The mean weight of a whole run.
    mean: f64,
    power: f64,
}

impl Correction {
    /// Chooses the power. `selfs` are the self of all rows on both sides.
    pub(super) fn new<'a>(
        comparison: &Comparison<'_>,
        selfs: impl Iterator<Item = &'a [Observed<'a>; 2]>,
    ) -> Self {
        let unchanged = [comparison.base, comparison.new].map(run_weights);
        let runs = unchanged.iter().flatten().count().max(1) as f64;
        let mean = unchanged.iter().flatten().sum::<f64>() / runs;
        let rows: Vec<Row> = selfs.filter_map(|sides| Row::of(sides, mean)).collect();
        let is_repeated = comparison.method == Method::Welch
            && comparison.base.len().min(comparison.new.len()) >= MIN_RUNS;
        let has_rows = rows.len() >= MIN_ROWS;
        let power = match comparison.criteria.amount.filter(|_| is_repeated) {
            Some(AmountUnit::Bytes) if has_rows => best_power(&rows, &unchanged),
            Some(AmountUnit::Bytes) => 0.0,
            Some(AmountUnit::Ns | AmountUnit::Count)
                if has_rows
                    && comparison.criteria.is_in_turn
                    && !speeds_differ(&rows, comparison) =>
            {
                best_power(&rows, &unchanged)
            }
            Some(AmountUnit::Ns | AmountUnit::Count) | None => 1.0,
        };
        Self { unchanged, mean, power }
    }

    /// Returns the power.
    pub(super) fn power(&self) -> f64 {
        self.power
    }

    /// Leaves a row out of the whole runs, because it changed. False if too little would remain.
    pub(super) fn leave_out(&mut self, row: &[Observed<'_>; 2]) -> bool {
        let mut rest = self.unchanged.clone();
        for (side, row) in rest.iter_mut().zip(row) {
            side.iter_mut().zip(row.weights()).for_each(|(rest, weight)| *rest -= weight);
        }
        let is_enough = rest.iter().flatten().all(|rest| *rest >= MIN_REST * self.mean);
        if is_enough {
            self.unchanged = rest;
        }
        is_enough
    }

    /// Returns the values of a unit of weight in the runs of both sides, as parts of a mean run.
    /// `own` is the row itself if it was left out.
    pub(super) fn scales(&self, own: Option<&[Observed<'_>; 2]>) -> [Vec<f64>; 2] {
        let mut whole = self.unchanged.clone();
        for (side, row) in whole.iter_mut().zip(own.into_iter().flatten()) {
            side.iter_mut().zip(row.weights()).for_each(|(whole, weight)| *whole += weight);
        }
        let runs = whole.iter().flatten().count().max(1) as f64;
        let mean = whole.iter().flatten().sum::<f64>() / runs;
        whole.map(|side| {
            side.iter().map(|whole| (mean / whole).powf(self.power) / self.mean).collect()
        })
    }
}

fn run_weights(runs: &[&RunCounts]) -> Vec<f64> {
    // A run of samples without weight has no times.
    runs.iter().map(|run| (run.sum.weight as f64).max(1.0)).collect()
}

/// The self of a row with enough samples in every run.
struct Row {
    /// Its part of a mean run.
    share: f64,
    /// The logarithms of its times in the runs of both sides.
    logs: [Vec<f64>; 2],
}

impl Row {
    fn of(sides: &[Observed<'_>; 2], mean: f64) -> Option<Self> {
        let enough = |side: &Observed<'_>| side.min_samples() >= MIN_SAMPLES_PER_RUN;
        if !sides.iter().all(enough) {
            return None;
        }
        let runs = sides.iter().flat_map(Observed::weights).count() as f64;
        let weight: f64 = sides.iter().flat_map(Observed::weights).sum();
        let logs = sides.each_ref().map(|side| side.weights().map(f64::ln).collect());
        Some(Self { share: weight / runs / mean, logs })
    }
}

/// True if most of the program is faster or slower on one side: the runs differ in length, or the
/// sides in speed.
fn speeds_differ(rows: &[Row], comparison: &Comparison<'_>) -> bool {
    let heaviest = rows.iter().map(|row| row.share).fold(0.0, f64::max);
    let others: Vec<&Row> = rows.iter().filter(|row| row.share < heaviest).collect();
    // A row with almost half of the time that changed moves the median of all far into the noise of the others.
    [rows.iter().collect(), others].iter().all(|rows| medians_differ(rows, comparison))
}

/// True if the medians over rows differ significantly between the sides. A few rows that changed do not
/// move them.
fn medians_differ(rows: &[&Row], comparison: &Comparison<'_>) -> bool {
    let count = (comparison.base.len() + comparison.new.len()) as f64;
    let means: Vec<f64> =
        rows.iter().map(|row| row.logs.iter().flatten().sum::<f64>() / count).collect();
    let speed = |side: usize, run: usize| {
        let mut ratios: Vec<(f64, f64)> = rows
            .iter()
            .zip(&means)
            .map(|(row, mean)| (row.logs[side][run] - mean, row.share))
            .collect();
        weighted_median(&mut ratios)
    };
    let base: Vec<f64> = (0..comparison.base.len()).map(|run| speed(0, run)).collect();
    let new: Vec<f64> = (0..comparison.new.len()).map(|run| speed(1, run)).collect();
    let alpha = comparison.criteria.alpha;
    stats::welch(Spread::of(&base), Spread::of(&new), alpha, f64::INFINITY).p <= alpha
}

/// Returns the value at which the weights of smaller values reach half of the sum.
fn weighted_median(values: &mut [(f64, f64)]) -> f64 {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let reached = values.iter().find(|(_, weight)| {
        sum += weight;
        sum >= half
    });
    reached.map_or(0.0, |(value, _)| *value)
}

/// Returns the power with the smallest relative variation of the rows between runs of a side,
/// weighted by their shares. The power also shrinks a change of a large row, which counts as
/// variation.
fn best_power(rows: &[Row], whole: &[Vec<f64>; 2]) -> f64 {
    let wholes = centered(&whole.each_ref().map(|side| side.iter().map(|run| run.ln()).collect()));
    let residuals: Vec<(f64, Vec<f64>)> =
        rows.iter().map(|row| (row.share, centered(&row.logs))).collect();
    let variation = |power: f64| -> f64 {
        let of_row = |(share, logs): &(f64, Vec<f64>)| {
            let squares: f64 =
                logs.iter().zip(&wholes).map(|(row, whole)| (row - power * whole).powi(2)).sum();
            let kept = 1.0 - power * share.min(MAX_SHARE);
            // The smallest positive number: a row may not vary at all.
            share * (squares.max(f64::MIN_POSITIVE) / (kept * kept)).ln()
        };
        residuals.iter().map(of_row).sum()
    };
    let powers = (0..=STEPS).map(|step| step as f64 / STEPS as f64);
    powers.min_by(|a, b| variation(*a).total_cmp(&variation(*b))).unwrap_or(1.0)
}

/// Returns the values of both sides, each minus the mean of its side.
fn centered(sides: &[Vec<f64>; 2]) -> Vec<f64> {
    let mut centered = Vec::new();
    for side in sides {
        let mean = side.iter().sum::<f64>() / side.len() as f64;
        centered.extend(side.iter().map(|value| value - mean));
    }
    centered
}
