//! The samples of one key in the runs of a side, in the form that the statistics need: a
//! proportion of all runs added up, or a value per run. Pure.

use nprof_report::profile::Sum;

use crate::compare::quantity::{MetricKind, Quantity};
use crate::input::key::KeyId;
use crate::input::run_counts::RunCounts;
use crate::stats::{self, Proportion, Spread};

/// The totals of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SideTotals {
    /// The number of runs with samples.
    pub(crate) runs: usize,
    /// Their samples and weight.
    pub(crate) sum: Sum,
}

impl SideTotals {
    /// Adds up runs.
    pub(crate) fn of(runs: &[&RunCounts]) -> Self {
        let mut totals = Self { runs: runs.len(), ..Self::default() };
        for run in runs {
            totals.sum.add(run.sum);
        }
        totals
    }

    /// Returns the mean weight of a run.
    pub(crate) fn mean_weight(self) -> f64 {
        self.sum.weight as f64 / self.runs.max(1) as f64
    }
}

/// Samples per run from which a row is informative about the variance of rows.
const MIN_INFORMATIVE_SAMPLES: u64 = 5;

/// A lower bound for the variance of a count of samples (or the variance of independent samples,
/// if that is smaller), however well the runs agree: counts are whole numbers, and a few of them
/// agree by chance.
pub(super) const MIN_COUNT_VARIANCE: f64 = 1.0;

/// The smallest number of runs whose variance may be below that of independent samples. Fewer runs
/// agree by chance too often.
pub(super) const MIN_RUNS_BELOW_SAMPLING: usize = 3;

/// One metric of a key in the runs of a side.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    runs: &'a [&'a RunCounts],
    per_run: Vec<Sum>,
    sum: Sum,
    side_sum: Sum,
}

impl<'a> Observed<'a> {
    /// Looks up a key in the runs of a side.
    pub(crate) fn of(runs: &'a [&'a RunCounts], key: KeyId, kind: MetricKind) -> Self {
        let per_run: Vec<Sum> = runs
            .iter()
            .map(|run| run.keys.get(&key).map_or(Sum::default(), |count| kind.of(*count)))
            .collect();
        let mut sum = Sum::default();
        per_run.iter().for_each(|run| sum.add(*run));
        Self { runs, per_run, sum, side_sum: SideTotals::of(runs).sum }
    }

    /// Returns the samples in each run.
    pub(super) fn per_run(&self) -> &[Sum] {
        &self.per_run
    }

    /// Returns the samples in all runs, with their weight.
    pub(crate) fn sum(&self) -> Sum {
        self.sum
    }

    /// Returns the number of samples in all runs.
    pub(crate) fn samples(&self) -> u64 {
        self.sum.samples
    }

    /// True if the runs have enough samples to be informative about the variance of rows.
    pub(crate) fn is_informative(&self) -> bool {
        self.sum.samples >= MIN_INFORMATIVE_SAMPLES.saturating_mul(self.runs.len() as u64)
    }

    /// Returns the number of samples of the run with the fewest.
    pub(crate) fn min_samples(&self) -> u64 {
        self.per_run.iter().map(|sum| sum.samples).min().unwrap_or_default()
    }

    /// Returns the weights of whole runs.
    pub(crate) fn run_weights(&self) -> impl Iterator<Item = f64> {
        self.runs.iter().map(|run| run.sum.weight as f64)
    }

    /// Returns the weight of all runs.
    pub(crate) fn whole_weight(&self) -> f64 {
        self.side_sum.weight as f64
    }

    /// Returns the weights in each run.
    pub(crate) fn weights(&self) -> impl Iterator<Item = f64> {
        self.per_run.iter().map(|sum| sum.weight as f64)
    }

    /// True if both have the same samples in each run.
    pub(crate) fn has_same_samples(&self, other: &Self) -> bool {
        self.per_run == other.per_run
    }

    /// Returns the value of a unit of weight in each run.
    pub(crate) fn scales(&self, quantity: Quantity) -> Vec<f64> {
        let scale = |run: &&RunCounts| match quantity {
            // A run of samples without weight has no shares.
            Quantity::Share => (run.sum.weight as f64).recip().min(1.0),
            Quantity::Amount => 1.0,
        };
        self.runs.iter().map(scale).collect()
    }

    /// Returns the proportion over all runs of the side, scaled to the quantity (amounts: per run).
    pub(crate) fn proportion(&self, quantity: Quantity) -> Proportion {
        let trials = self.sum.effective_samples(self.side_sum);
        let hits = self.sum.share_of(self.side_sum) * trials;
        let scale = match quantity {
            Quantity::Share => 1.0,
            Quantity::Amount => self.side_sum.weight as f64 / self.runs.len().max(1) as f64,
        };
        Proportion { hits, trials, scale }
    }

    /// Returns the value in each run, for these values of a unit of weight.
    pub(crate) fn values(&self, scales: &[f64]) -> Vec<f64> {
        self.weights().zip(scales).map(|(weight, scale)| weight * scale).collect()
    }

    /// Returns mean and variance over the runs, for these values of a unit of weight.
    pub(crate) fn spread(&self, scales: &[f64]) -> Spread {
        let runs = self.runs.len() as f64;
        let trials = self.sum.effective_samples(self.side_sum);
        let hits = self.sum.share_of(self.side_sum) * trials;
        let per_sample = stats::sampling_variance(hits, trials);
        let (mut sampling_variance, mut count_variance) = (0.0, 0.0);
        // Runs differ in length: the variance of one run is the mean over the runs.
        for ((run, sum), scale) in self.runs.iter().zip(&self.per_run).zip(scales) {
            // A run of samples without weight has no effective sample.
            let samples = sum.effective_samples(run.sum).max(1.0);
            let value_per_sample = scale * run.sum.weight as f64 / samples;
            let square = value_per_sample * value_per_sample / runs;
            sampling_variance += per_sample * samples * square;
            count_variance += MIN_COUNT_VARIANCE * square;
        }
        let min_variance = if self.runs.len() < MIN_RUNS_BELOW_SAMPLING {
            sampling_variance
        } else {
            sampling_variance.min(count_variance)
        };
        Spread { sampling_variance, min_variance, ..Spread::of(&self.values(scales)) }
    }
}
