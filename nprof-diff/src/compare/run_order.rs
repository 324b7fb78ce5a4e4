//! The order in which the runs were recorded, and the removal of a drift from their values. Pure.
//!
//! A machine that slowly changes its speed for some functions, but not for others, adds a trend to
//! their shares. If the sides were recorded in turn, the trend can be estimated together with the
//! difference of the sides: the analysis of covariance (R. A. Fisher, Statistical Methods for Research
//! Workers, 1932). It costs one degree of freedom of all runs; the differences of pairs of neighbours
//! would cost half of them, which is more than they gain with five runs a side.

use crate::input::run_counts::RunCounts;
use crate::stats::Spread;

/// The largest factor by which the trend may raise the variance of the difference: it does if the sides
/// were hardly recorded in turn, so that a trend looks like their difference.
const MAX_VARIANCE_FACTOR: f64 = 1.25;

/// The positions of the runs of both sides among all of them, in the order of recording.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunOrder {
    /// From the mean of all runs.
    positions: [Vec<f64>; 2],
    /// The mean position of each side.
    means: [f64; 2],
    /// The sum of squares of the positions within the sides.
    squares: f64,
    /// The variance of the difference of the sides, as a multiple of that without a trend.
    variance_factor: f64,
}

impl RunOrder {
    /// Returns the order of the runs of both sides. None if times are unknown, or if a trend cannot be
    /// separated from the difference of the sides.
    pub(super) fn of(base: &[&RunCounts], new: &[&RunCounts]) -> Option<Self> {
        let began = |run: &&RunCounts| run.began_ns;
        let times: Vec<u64> = base.iter().chain(new).map(began).collect::<Option<_>>()?;
        // Ranks: a pause between two runs has no more weight than a run.
        let mut order: Vec<usize> = (0..times.len()).collect();
        order.sort_by_key(|&run| times[run]);
        let middle = (times.len() as f64 - 1.0) / 2.0;
        let mut positions = vec![0.0; times.len()];
        for (rank, &run) in order.iter().enumerate() {
            positions[run] = rank as f64 - middle;
        }
        let new_positions = positions.split_off(base.len());
        let positions = [positions, new_positions];
        let means = positions.each_ref().map(|side| side.iter().sum::<f64>() / side.len() as f64);
        let sides = positions.iter().zip(means);
        let squares: f64 = sides
            .flat_map(|(side, mean)| side.iter().map(move |position| (position - mean).powi(2)))
            .sum();
        let of_means: f64 = positions.iter().map(|side| (side.len() as f64).recip()).sum();
        let variance_factor = 1.0 + (means[1] - means[0]).powi(2) / squares / of_means;
        let is_in_turn = variance_factor <= MAX_VARIANCE_FACTOR;
        is_in_turn.then_some(Self { positions, means, squares, variance_factor })
    }

    /// Removes the trend, which is equal on both sides, from the values of their runs.
    pub(super) fn level(&self, values: &mut [Vec<f64>; 2]) {
        let mut product = 0.0;
        for ((side, positions), mean) in values.iter().zip(&self.positions).zip(self.means) {
            let pairs = side.iter().zip(positions);
            product += pairs.map(|(value, position)| value * (position - mean)).sum::<f64>();
        }
        let slope = product / self.squares;
        for (side, positions) in values.iter_mut().zip(&self.positions) {
            side.iter_mut().zip(positions).for_each(|(value, position)| *value -= slope * position);
        }
    }

    /// Returns the spread of values without the trend: each side lost a part of a degree of freedom to
    /// it.
    pub(super) fn spread(&self, levelled: &[f64], of_side: Spread) -> Spread {
        let runs: f64 = self.positions.iter().map(|side| side.len() as f64).sum();
        let own = of_side.runs as f64 - 1.0;
        let degrees_of_freedom = own - own / (runs - 2.0);
        let spread = Spread::of(levelled);
        Spread {
            mean: spread.mean.max(0.0),
            variance: spread.variance * own / degrees_of_freedom * self.variance_factor,
            degrees_of_freedom,
            ..of_side
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(times: &[u64]) -> Vec<RunCounts> {
        let run = |&began_ns| RunCounts { began_ns: Some(began_ns), ..RunCounts::default() };
        times.iter().map(run).collect()
    }

    fn order(base: &[u64], new: &[u64]) -> Option<RunOrder> {
        let (base, new) = (runs(base), runs(new));
        let (base, new): (Vec<_>, Vec<_>) = (base.iter().collect(), new.iter().collect());
        RunOrder::of(&base, &new)
    }

    #[test]
    fn trend_is_removed_and_difference_stays() {
        // Recorded in turn, with a pause in the middle.
        let order = order(&[10, 30, 900, 920], &[20, 40, 910, 930]).expect("in turn");
        let mut values = [vec![5.0, 7.0, 9.0, 11.0], vec![16.0, 18.0, 20.0, 22.0]];
        order.level(&mut values);
        for (side, expected) in values.iter().zip([8.5, 18.5]) {
            assert!(side.iter().all(|value| (value - expected).abs() < 1e-12), "{values:?}");
        }
    }

    #[test]
    fn variance_matches_analysis_of_covariance() {
        // By numpy's lstsq of the values on a constant, side and position.
        let order = order(&[0, 2, 4, 6], &[1, 3, 5, 7]).expect("in turn");
        let mut values = [vec![3.1, 4.0, 4.2, 5.5], vec![4.9, 4.6, 6.3, 6.9]];
        let before = values.each_ref().map(|side| Spread::of(side));
        order.level(&mut values);
        let spreads = [0, 1].map(|side| order.spread(&values[side], before[side]));
        let degrees: f64 = spreads.iter().map(|side| side.degrees_of_freedom).sum();
        assert!((degrees - 5.0).abs() < 1e-12);
        let difference = spreads[1].mean - spreads[0].mean;
        let error = (spreads.iter().map(|side| side.variance / 4.0).sum::<f64>()).sqrt();
        assert!((difference - 1.0975).abs() < 1e-9 && (error - 0.305_223_278_928_72).abs() < 1e-9);
    }

    #[test]
    fn sides_recorded_one_after_the_other_have_no_order() {
        assert_eq!(order(&[0, 1, 2, 3], &[4, 5, 6, 7]), None);
        assert!(
            order(&[0, 3, 4, 7], &[1, 2, 5, 6]).is_some_and(|order| order.variance_factor == 1.0)
        );
        let mut unknown = runs(&[0, 2, 4, 6]);
        unknown[1].began_ns = None;
        let new = runs(&[1, 3, 5, 7]);
        let (unknown, new): (Vec<_>, Vec<_>) = (unknown.iter().collect(), new.iter().collect());
        assert_eq!(RunOrder::of(&unknown, &new), None);
    }
}
