//! A key in the runs of a side, as the statistics want it: a proportion of all runs added up,
//! or a value per run. Pure.

use nprof_report::profile::Sum;

use crate::input::key::KeyId;
use crate::input::run_counts::{KeyCount, RunCounts};
use crate::stats::{self, Proportion, Spread};

/// A side as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SideTotals {
    /// How many runs have samples.
    pub(crate) runs: usize,
    /// Their samples and weight.
    pub(crate) sum: Sum,
}

impl SideTotals {
    /// Adds up runs.
    pub(crate) fn of(runs: &[&RunCounts]) -> Self {
        let mut whole = Self { runs: runs.len(), ..Self::default() };
        for run in runs {
            whole.sum.add(run.sum);
        }
        whole
    }

    /// The weight of a run, on average.
    pub(crate) fn mean_weight(self) -> f64 {
        self.sum.weight as f64 / self.runs.max(1) as f64
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// The share of the samples, as a fraction.
    Share,
    /// The weight, per run.
    Time,
}

impl Quantity {
    /// The largest value there can be.
    pub(crate) fn most(self) -> f64 {
        match self {
            Quantity::Share => 1.0,
            Quantity::Time => f64::INFINITY,
        }
    }
}

/// With so many samples a run, a row tells others how much rows vary.
const MIN_INFORMATIVE_SAMPLES: u64 = 5;

/// No count of samples is taken to be known better than with this variance (or that of
/// independent samples, if that is smaller), however well runs agree: counts are whole numbers,
/// and few of them agree by chance.
const MIN_COUNT_VARIANCE: f64 = 1.0;

/// Fewer runs agree too often by chance: they vary as independent samples do at least.
const MIN_RUNS_BELOW_SAMPLING: usize = 3;

/// A key in the runs of a side.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    runs: &'a [&'a RunCounts],
    per_run: Vec<Sum>,
    sum: Sum,
    whole: Sum,
}

impl<'a> Observed<'a> {
    /// Looks a key up in the runs of a side, by self or total.
    pub(crate) fn of(
        runs: &'a [&'a RunCounts],
        key: KeyId,
        pick: impl Fn(KeyCount) -> Sum,
    ) -> Self {
        let per_run: Vec<Sum> = runs
            .iter()
            .map(|run| run.keys.get(&key).map_or(Sum::default(), |c| pick(*c)))
            .collect();
        let mut sum = Sum::default();
        per_run.iter().for_each(|run| sum.add(*run));
        Self { runs, per_run, sum, whole: SideTotals::of(runs).sum }
    }

    /// Its samples in all runs.
    pub(crate) fn samples(&self) -> u64 {
        self.sum.samples
    }

    /// Whether its runs have samples enough to tell how much rows vary.
    pub(crate) fn is_informative(&self) -> bool {
        self.sum.samples >= MIN_INFORMATIVE_SAMPLES.saturating_mul(self.runs.len() as u64)
    }

    /// All runs of the side as one; CPU time per run.
    pub(crate) fn proportion(&self, quantity: Quantity) -> Proportion {
        let hits = self.sum.samples.min(self.whole.samples);
        let share = hits as f64 / self.whole.samples as f64;
        let scale = match quantity {
            Quantity::Share => 1.0,
            // So that the value is the weight, also where weights differ from sample to sample.
            Quantity::Time if hits > 0 => self.sum.weight as f64 / share / self.runs.len() as f64,
            Quantity::Time => self.whole.weight as f64 / self.runs.len().max(1) as f64,
        };
        Proportion { hits, trials: self.whole.samples, scale }
    }

    /// Its value in each run.
    pub(crate) fn values(&self, quantity: Quantity) -> Vec<f64> {
        let value = |(run, sum): (&&RunCounts, &Sum)| match quantity {
            Quantity::Share => sum.samples as f64 / run.sum.samples as f64,
            Quantity::Time => sum.weight as f64,
        };
        self.runs.iter().zip(&self.per_run).map(value).collect()
    }

    /// What its runs tell of its value.
    pub(crate) fn spread(&self, quantity: Quantity) -> Spread {
        let runs = self.runs.len() as f64;
        let of_one = stats::sampling_variance(self.sum.samples as f64, self.whole.samples as f64);
        let (mut sampling, mut of_exact) = (0.0, 0.0);
        for run in self.runs {
            let samples = run.sum.samples as f64;
            let of_a_sample = match quantity {
                Quantity::Share => 1.0 / samples,
                Quantity::Time => run.sum.weight as f64 / samples,
            };
            let square = of_a_sample * of_a_sample / runs;
            sampling += of_one * samples * square;
            of_exact += MIN_COUNT_VARIANCE * square;
        }
        let least = if self.runs.len() < MIN_RUNS_BELOW_SAMPLING {
            sampling
        } else {
            sampling.min(of_exact)
        };
        Spread { sampling, least, ..Spread::of(&self.values(quantity)) }
    }
}
