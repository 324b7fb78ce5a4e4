//! Ratios of two events, such as waiting per call: `--per`. Pure.
//!
//! The ratio of a row has one value in each run, so that its variance between runs decides, as that of
//! a share does. A run has at least the sampling error of the ratio: the sum of the relative variances of
//! both sums (delta method), see `nprof_report::ratio`.
//!
//! Ratios are scaled to the base: multiplied by the divisor of a mean run of the base, and divided by the
//! weight of such a run. That is the part of a run that the row would take with the divisor of the base. A
//! row that is called more often has not changed; one of which each call takes longer has grown by the
//! points that the calls of the base would take more. Rows of all sizes then have one scale, and bounds
//! keep their meaning.

use nprof_report::profile::Sum;
use nprof_report::ratio::{DivisorError, Ratio};

use crate::compare::observed::{MIN_RUNS_BELOW_SAMPLING, Observed};
use crate::compare::quantity::MetricKind;
use crate::input::key::{KeyCount, KeyId};
use crate::input::run_counts::RunCounts;
use crate::stats::Spread;

/// The event that another one is divided by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor<'a> {
    /// Its counts in the runs of the base, and in those of the new side.
    pub(crate) runs: [&'a [&'a RunCounts]; 2],
    /// True if its samples are calls of their leaf: those of a callee are no calls of the caller.
    pub(crate) counts_calls: bool,
    /// True if its weights are counts, and only its stacks were sampled.
    pub(crate) is_counted: bool,
}

impl Divisor<'_> {
    fn of(&self, kind: MetricKind, count: KeyCount) -> Sum {
        if self.counts_calls { count.self_ } else { kind.of(count) }
    }

    /// Returns the sums of a key in the runs of a side.
    fn sums(&self, side: usize, key: KeyId, kind: MetricKind) -> Vec<Sum> {
        let count = |run: &&RunCounts| run.keys.get(&key).map(|count| self.of(kind, *count));
        self.runs[side].iter().map(|run| count(run).unwrap_or_default()).collect()
    }
}

/// The ratios of a key in the runs of both sides, as parts of a run of the base.
#[derive(Clone, Debug)]
pub(super) struct Ratios {
    /// One for each run of the base, and of the new side.
    pub(super) values: [Vec<f64>; 2],
    pub(super) spreads: [Spread; 2],
    /// The ratio that is the whole run of the base.
    pub(super) whole: f64,
}

impl Ratios {
    /// Returns the ratios of a key with these samples. None if a run has nothing to divide by. If runs are
    /// not repeated on both sides, the spreads have the sampling error alone.
    pub(super) fn of(
        observed: &[Observed<'_>; 2],
        divisor: &Divisor<'_>,
        key: KeyId,
        kind: MetricKind,
        is_repeated: bool,
    ) -> Option<Self> {
        let divisors = [0, 1].map(|side| divisor.sums(side, key, kind));
        if divisors.iter().flatten().any(|sum| sum.weight == 0) {
            return None;
        }
        let base_runs: Vec<f64> = observed[0].run_weights().collect();
        let base_run = mean(base_runs.into_iter()).max(1.0);
        let divisor_of_run = mean(divisors[0].iter().map(|sum| sum.weight as f64));
        let whole = base_run / divisor_of_run;
        let mut both = observed[0].sum();
        both.add(observed[1].sum());
        // A run without samples of the row may have missed one.
        let one = both.weight as f64 / both.samples.max(1) as f64;
        let error = match divisor.is_counted {
            true => DivisorError::StacksSampled,
            false => DivisorError::Sampled,
        };
        let sides = [0, 1].map(|side| {
            let pairs = observed[side].per_run().iter().zip(&divisors[side]);
            let ratios = pairs.map(|(&numerator, &denominator)| Ratio {
                numerator,
                // The time for counting is the same on both sides.
                overhead: 0,
                denominator,
                error,
            });
            let ratios: Vec<Ratio> = ratios.collect();
            if is_repeated {
                of_runs(&ratios, one, whole)
            } else {
                of_samples(&observed[side], &divisors[side], &ratios, one, whole)
            }
        });
        let [base, new] = sides;
        Some(Self { values: [base.0, new.0], spreads: [base.1, new.1], whole })
    }
}

/// Returns the values of the runs, and their spread.
fn of_runs(ratios: &[Ratio], one: f64, whole: f64) -> (Vec<f64>, Spread) {
    let values: Vec<f64> = ratios.iter().map(|ratio| value(ratio) / whole).collect();
    let sampling_variance = mean(ratios.iter().map(|ratio| variance(ratio, one, whole)));
    let of_one = |ratio: &Ratio| (one / ratio.denominator.weight as f64 / whole).powi(2);
    let count_variance = mean(ratios.iter().map(of_one));
    let min_variance = if ratios.len() < MIN_RUNS_BELOW_SAMPLING {
        sampling_variance
    } else {
        sampling_variance.min(count_variance)
    };
    let spread = Spread { sampling_variance, min_variance, ..Spread::of(&values) };
    (values, spread)
}

/// Returns the values of the runs, and the spread of the ratio of their sums by its sampling error
/// alone.
fn of_samples(
    observed: &Observed<'_>,
    divisors: &[Sum],
    ratios: &[Ratio],
    one: f64,
    whole: f64,
) -> (Vec<f64>, Spread) {
    let mut denominator = Sum::default();
    divisors.iter().for_each(|sum| denominator.add(*sum));
    let error = ratios.first().map_or(DivisorError::Sampled, |ratio| ratio.error);
    let ratio = Ratio { numerator: observed.sum(), overhead: 0, denominator, error };
    let values = ratios.iter().map(|ratio| value(ratio) / whole).collect();
    (values, Spread::known(value(&ratio) / whole, variance(&ratio, one, whole)))
}

fn value(ratio: &Ratio) -> f64 {
    ratio.value().unwrap_or(0.0)
}

/// Returns the sampling variance of a scaled ratio; without samples that of a single one.
fn variance(ratio: &Ratio, one: f64, whole: f64) -> f64 {
    let error = match ratio.log_error() {
        Some(error) => value(ratio) * error,
        None => one / ratio.denominator.weight as f64,
    };
    (error / whole).powi(2)
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}
