//! The key that samples are summed by, and the sums.

use nprof_stream::tables::NameId;
use nprof_stream::{NodeId, TaskId};

/// The properties that the samples of one sum share. Ids are those of the current epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupKey {
    /// Index into [`Summary::runs`](crate::profile::summary::Summary::runs).
    pub run: usize,
    /// Index into [`Summary::events`](crate::profile::summary::Summary::events).
    pub event: usize,
    /// The task; none unless [`GroupBy::task`](crate::profile::stack_sums::GroupBy::task).
    pub task: TaskId,
    /// The name the task had; default unless [`GroupBy::task`](crate::profile::stack_sums::GroupBy::task).
    pub comm: NameId,
    /// The CPU; [`NO_CPU`](nprof_stream::NO_CPU) unless [`GroupBy::cpu`](crate::profile::stack_sums::GroupBy::cpu).
    pub cpu: u32,
    /// The extras that [`GroupBy::extras`](crate::profile::stack_sums::GroupBy::extras) names, as
    /// encoded in the stream. None without any.
    pub extras: Option<NameId>,
    /// The number of the time slice, 0 unless
    /// [`TimeSplit::slice`](crate::profile::time::TimeSplit::slice); None for samples outside of
    /// [`TimeSplit::span`](crate::profile::time::TimeSplit::span).
    pub slice: Option<u64>,
    /// The stack's leaf.
    pub node: NodeId,
}

/// The samples of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of samples: observations, of which a record may represent several.
    pub samples: u64,
    /// Their weight, in the event's unit. Saturates: a wrapped sum would pass as a small one.
    pub weight: u64,
    squares: Squares,
}

/// The sum of the squared weights of samples. An integer: its value does not depend on the order of
/// addition, as that of a floating-point number would.
// Aligned like the other fields: reports keep millions of sums, and 16 bytes would waste 8 of 48.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(Rust, packed(8))]
struct Squares(u128);

impl Sum {
    /// Returns the sum of one record that represents `samples` observations: each has its part of
    /// the weight.
    #[inline]
    pub fn of(samples: u64, weight: u64) -> Self {
        let mut squares = u128::from(weight) * u128::from(weight);
        if samples > 1 {
            // Rounded up: records of many light observations must not appear free of error.
            squares = squares.div_ceil(u128::from(samples));
        }
        Self { samples, weight, squares: Squares(squares) }
    }

    /// Adds another sum to this.
    #[inline]
    pub fn add(&mut self, other: Sum) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
        self.squares = Squares(self.squares.0.saturating_add(other.squares.0));
    }

    /// Returns the whole without this part.
    pub fn rest_of(self, whole: Sum) -> Sum {
        Sum {
            samples: whole.samples.saturating_sub(self.samples),
            weight: whole.weight.saturating_sub(self.weight),
            squares: Squares(whole.squares.0.saturating_sub(self.squares.0)),
        }
    }

    /// Returns its share of a whole by weight, as a fraction from 0 to 1; 0 if the whole is empty.
    pub fn share_of(self, whole: Sum) -> f64 {
        // Saturated sums can make the part exceed the whole.
        if whole.weight == 0 { 0.0 } else { (self.weight as f64 / whole.weight as f64).min(1.0) }
    }

    /// Returns its share of a whole by weight, in per cent; 0 if the whole is empty.
    pub fn percent_of(self, whole: Sum) -> f64 {
        if whole.weight == 0 { 0.0 } else { 100.0 * self.weight as f64 / whole.weight as f64 }
    }

    /// True if all its samples weigh the same.
    pub fn is_uniform(self) -> bool {
        // By Cauchy and Schwarz, the ratio is 1 for equal weights only. A double has 53 bits, and a
        // weight that differs by a part in 10,000 in one of 10,000 samples changes 1 in 10^12.
        self.weight == 0 || self.samples_of_equal_weight() >= self.samples as f64 * (1.0 - 1e-13)
    }

    /// True if folded stacks of these samples have numbers of samples: all weigh the same. Otherwise they
    /// have weights, so that widths are shares.
    pub fn has_stacks_of_samples(self) -> bool {
        // Weights whose sum saturates are wrong anyway, and would overflow in programs that add them.
        self.is_uniform() || self.weight == u64::MAX
    }

    /// Returns the effective sample size of these samples together (Kish): the number of samples of
    /// equal weight with the same sampling error. At most their number; 0 without weight.
    pub fn samples_of_equal_weight(self) -> f64 {
        let weight = self.weight as f64;
        let squares = self.squares();
        if squares > 0.0 { (weight * weight / squares).min(self.samples as f64) } else { 0.0 }
    }

    /// Returns the effective sample size for its share of a whole: the number of samples of equal
    /// weight with which a share of this size has the same sampling error. At most the number of
    /// samples of the whole; 0 without weight.
    pub fn effective_samples(self, whole: Sum) -> f64 {
        let of_whole = whole.samples_of_equal_weight();
        let share = self.share_of(whole);
        if of_whole == 0.0 || share == 0.0 || share == 1.0 {
            return of_whole;
        }
        let rest = self.rest_of(whole);
        // The variance of a ratio of two sums of weights (Cochran, Sampling Techniques, 6.4). It uses
        // the row's own squares: a row of heavy samples has fewer observations than its share says.
        let (part, others) = (self.squares(), rest.squares());
        let weight = whole.weight as f64;
        let variance = ((1.0 - share).powi(2) * part + share * share * others) / (weight * weight);
        let of_row = share * (1.0 - share) / variance;
        if of_row <= of_whole {
            return of_row;
        }
        // A row whose samples are lighter than the average has a smaller error, but a few samples may
        // be light by chance: the row has seen none of its heavy ones. The average counts as much as
        // PRIOR_SAMPLES of the row's own; without it, intervals of 95 % covered 88 % of shares with
        // three samples of exponentially distributed weight.
        let own = self.samples_of_equal_weight().min(rest.samples_of_equal_weight());
        let inverse = (own / of_row + PRIOR_SAMPLES / of_whole) / (own + PRIOR_SAMPLES);
        (1.0 / inverse).min(whole.samples as f64)
    }

    fn squares(self) -> f64 {
        self.squares.0 as f64
    }
}

/// The samples of average weight that correct an estimate from a few light ones; about z² at 95 %
/// confidence, as in the interval of Agresti and Coull.
const PRIOR_SAMPLES: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(records: &[(u64, u64)]) -> Sum {
        let mut sum = Sum::default();
        for &(samples, weight) in records {
            sum.add(Sum::of(samples, weight));
        }
        sum
    }

    #[test]
    fn records_of_equal_observations_are_one_sample_each() {
        // A record of count 3 is the same as three records.
        assert_eq!(sum(&[(3, 30), (1, 10)]), sum(&[(1, 10); 4]));
        assert_eq!(sum(&[(3, 30), (1, 10)]).samples_of_equal_weight(), 4.0);
        assert!(sum(&[(3, 30), (1, 10)]).is_uniform());
        assert!(!sum(&[(3, 30), (1, 11)]).is_uniform());
        assert_eq!(Sum::default().samples_of_equal_weight(), 0.0);
    }

    #[test]
    fn heavy_sample_counts_for_little_more_than_itself() {
        // (100 + 10)^2 / (100^2 + 10) = 1.21.
        let whole = sum(&[&[(1, 100)][..], &[(1, 1); 10][..]].concat());
        assert!((whole.samples_of_equal_weight() - 1.2088).abs() < 1e-4);
        // The light rest: 10/110 with a variance of (100/110)^2 * 10 / 110^2, and the prior.
        let light = sum(&[(1, 1); 10]);
        assert!(
            light.effective_samples(whole) < light.rest_of(whole).effective_samples(whole) + 1e-9
        );
    }

    #[test]
    fn sum_of_largest_weights_saturates() {
        let mut sum = Sum::of(1, u64::MAX);
        sum.add(sum);
        sum.add(sum);
        assert_eq!((sum.samples, sum.weight), (4, u64::MAX));
        assert!(sum.samples_of_equal_weight() <= 4.0);
    }

    proptest! {
        #[test]
        fn effective_samples_of_equal_weights_are_all_samples(
            part in 0..1000u64, rest in 0..1000u64, weight in 1..u64::from(u32::MAX),
        ) {
            let row = |samples| Sum::of(samples, samples * weight);
            let mut whole = row(part);
            whole.add(row(rest));
            prop_assert!(whole.is_uniform());
            let effective = row(part).effective_samples(whole);
            let all = (part + rest) as f64;
            prop_assert!((effective - all).abs() <= 1e-9 * all, "{} {}", effective, all);
        }

        #[test]
        fn effective_samples_are_between_none_and_all(
            part in prop::collection::vec((0..5u64, any::<u64>()), 0..9),
            rest in prop::collection::vec((0..5u64, 0..1000u64), 0..9),
        ) {
            let mut whole = sum(&part);
            whole.add(sum(&rest));
            let effective = sum(&part).effective_samples(whole);
            prop_assert!(effective >= 0.0 && effective <= whole.samples as f64, "{}", effective);
        }
    }
}
