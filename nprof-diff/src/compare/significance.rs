//! Decides which differences are significant, over all keys together. Pure.
//!
//! A difference is significant if it passes two tests: the interval from its own runs excludes
//! zero, and its moderated p-value is significant in the family of all keys (Holm, weighted by
//! samples). If a key has enough runs for it, a permutation test must confirm the result of Welch's
//! test.
//!
//! Rows that changed are left out of the whole runs that the others are compared with, the most
//! significant first: otherwise the share of a function shrinks because another one grew. Of few functions,
//! the amounts show which of them changed.

use crate::compare::comparison::{Comparison, Method};
use crate::compare::correction::Correction;
use crate::compare::observed::Observed;
use crate::compare::quantity::{MetricKind, Quantity};
use crate::compare::ratio::{Divisor, Ratios};
use crate::compare::row::{Change, Row};
use crate::input::event::AmountUnit;
use crate::stats::{self, Prior, Proportion, Spread, WeightedP};

/// The part of the level for self; the rest is for total. The totals of callers repeat each other's
/// samples, and most changes of totals are changes of a self.
const LEVEL_OF_SELF: f64 = 0.9;

/// The smallest number of runs of a side from which large rows have a larger part of the level. The
/// variance of two runs may be far too small, by chance, so that a large part raises false alarms.
const MIN_RUNS_FOR_WEIGHTS: usize = 3;

/// The share of total from which a row is the whole run, such as `main`: it is no change that such a
/// row takes more because a function in it does.
const WHOLE: f64 = 0.99;

/// The largest number of rows that are left out of the whole runs.
const MAX_LEFT_OUT: usize = 16;

/// The smallest number of frequent functions from which rows are left out. Among fewer, those that
/// changed cannot be distinguished from the others by their shares.
const MIN_FUNCTIONS: usize = 5;

/// The smallest number of samples, on each side, of a frequent function.
const MIN_SAMPLES_PER_SIDE: u64 = 30;

/// Results that hold for all rows together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FamilyResult {
    /// The number of comparisons.
    pub(crate) comparisons: usize,
    /// The power of the correction for the speed of the machine.
    pub(crate) common_part: f64,
}

/// Tests the rows by share, by amount, and by their corrected part of a run, which decides.
pub(crate) fn test_rows(rows: &mut [Row], comparison: &Comparison<'_>) -> FamilyResult {
    if let Some(divisor) = &comparison.divisor {
        return test_ratios(rows, comparison, divisor);
    }
    let hypotheses = hypotheses(rows, comparison);
    let shares = test_quantity(Quantity::Share, &hypotheses, comparison);
    let amounts = test_quantity(Quantity::Amount, &hypotheses, comparison);
    let (mut corrected, common_part) = test_corrected(&hypotheses, comparison);
    let criteria = comparison.criteria;
    let is_repeated = comparison.method == Method::Welch;
    if !has_others(&hypotheses) && criteria.amount.is_some() && criteria.is_in_turn && is_repeated {
        require_amounts(&hypotheses, &mut corrected, &shares, &amounts);
    }
    let min_effect = comparison.criteria.min_effect;
    for (index, hypothesis) in hypotheses.iter().enumerate() {
        let metric = rows[hypothesis.row].metric_mut(hypothesis.kind);
        metric.share = shares[index];
        metric.amount = metric.amount.map(|_| amounts[index]);
        metric.corrected = corrected[index];
        // The amount of a whole run is in the heading of the report.
        let share = metric.share.estimate;
        if has_whole(hypothesis.kind, comparison) && share.base.min(share.new) >= WHOLE {
            metric.corrected.significant = false;
        }
        metric.displaced = metric.share.significant && !metric.corrected.significant;
        metric.changed = metric.corrected.significant && metric.is_at_least(min_effect);
        if hypothesis.is_leaf {
            // The samples are the same, and so are all results.
            rows[hypothesis.row].total = rows[hypothesis.row].self_;
        }
    }
    FamilyResult { comparisons: hypotheses.len(), common_part }
}

/// True if enough functions are frequent to distinguish those that changed from the others.
fn has_others(hypotheses: &[Hypothesis<'_>]) -> bool {
    let is_frequent = |hypothesis: &&Hypothesis<'_>| {
        hypothesis.kind == MetricKind::Self_
            && hypothesis.observed.iter().all(|side| side.samples() >= MIN_SAMPLES_PER_SIDE)
    };
    hypotheses.iter().filter(is_frequent).count() >= MIN_FUNCTIONS
}

/// Requires that also the amount of a row changed if its share shrank beside one of which both grew, or the reverse.
fn require_amounts(
    hypotheses: &[Hypothesis<'_>],
    corrected: &mut [Change],
    shares: &[Change],
    amounts: &[Change],
) {
    let direction = |change: &Change| change.estimate.difference().signum();
    // Of rows that shrank, and of rows that grew.
    let mut explained = [false; 2];
    for (hypothesis, (share, amount)) in hypotheses.iter().zip(shares.iter().zip(amounts)) {
        let is_change = share.significant && amount.significant;
        if hypothesis.kind == MetricKind::Self_
            && is_change
            && direction(share) == direction(amount)
        {
            explained[usize::from(direction(share) < 0.0)] = true;
        }
    }
    for (corrected, amount) in corrected.iter_mut().zip(amounts) {
        if explained[usize::from(direction(corrected) > 0.0)] {
            corrected.p = corrected.p.max(amount.p);
            corrected.q = corrected.q.max(amount.q);
            corrected.estimate.p = corrected.estimate.p.max(amount.estimate.p);
            corrected.significant &=
                amount.significant && direction(corrected) == direction(amount);
        }
    }
}

/// True if a metric with the whole run in it has no change of its own. Self of a time has one: the function
/// itself is slower. But the one function through which a program allocates does so for its callers.
fn has_whole(kind: MetricKind, comparison: &Comparison<'_>) -> bool {
    kind == MetricKind::Total || comparison.criteria.amount == Some(AmountUnit::Bytes)
}

/// Tests the ratios of the rows, which take the place of all three.
fn test_ratios(
    rows: &mut [Row],
    comparison: &Comparison<'_>,
    divisor: &Divisor<'_>,
) -> FamilyResult {
    let (mut hypotheses, mut sides) = (Vec::new(), Vec::new());
    for (index, row) in rows.iter().enumerate() {
        let is_leaf = row.self_ == row.total;
        let kinds = [MetricKind::Self_, MetricKind::Total];
        for kind in kinds.into_iter().take(if is_leaf { 1 } else { 2 }) {
            let ratios = comparison.ratios(divisor, row.key, kind);
            let Some(ratios) = ratios.filter(|_| row.metric(kind).is_compared()) else { continue };
            let observed = comparison.observed(row.key, kind);
            hypotheses.push(Hypothesis { row: index, kind, observed, is_leaf });
            let Ratios { values, spreads, .. } = ratios;
            sides.push(match comparison.method {
                Method::Welch => Sides::Runs { values, spreads, max: f64::INFINITY },
                Method::Newcombe => Sides::Known(spreads),
            });
        }
    }
    let changes = test_family(&hypotheses, &sides, comparison);
    for (hypothesis, change) in hypotheses.iter().zip(changes) {
        let row = &mut rows[hypothesis.row];
        let metric = row.metric_mut(hypothesis.kind);
        metric.share = change;
        metric.corrected = change;
        metric.amount = comparison.amount_of(change);
        metric.changed = change.significant && metric.is_at_least(comparison.criteria.min_effect);
        if hypothesis.is_leaf {
            row.total = row.self_;
        }
    }
    FamilyResult { comparisons: hypotheses.len(), common_part: 0.0 }
}

/// One member of the family: a metric of a row.
struct Hypothesis<'a> {
    row: usize,
    kind: MetricKind,
    observed: [Observed<'a>; 2],
    /// True for the self of a row that calls nothing: its total is no comparison of its own.
    is_leaf: bool,
}

/// Returns the family: self and total of every row, except rare ones.
fn hypotheses<'a>(rows: &[Row], comparison: &'a Comparison<'_>) -> Vec<Hypothesis<'a>> {
    let mut hypotheses = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let self_ = comparison.observed(row.key, MetricKind::Self_);
        let total = comparison.observed(row.key, MetricKind::Total);
        let is_leaf = self_.iter().zip(&total).all(|(self_, total)| self_.has_same_samples(total));
        for (kind, observed) in [(MetricKind::Self_, self_), (MetricKind::Total, total)] {
            let is_repeated = is_leaf && kind == MetricKind::Total;
            if row.metric(kind).is_compared() && !is_repeated {
                hypotheses.push(Hypothesis { row: index, kind, observed, is_leaf });
            }
        }
    }
    hypotheses
}

/// The values of a hypothesis on both sides, in the form that its method takes.
enum Sides {
    Runs {
        values: [Vec<f64>; 2],
        spreads: [Spread; 2],
        max: f64,
    },
    Counts([Proportion; 2]),
    /// Means of which the variance is known.
    Known([Spread; 2]),
}

impl Sides {
    fn of_runs(observed: &[Observed<'_>; 2], scales: &[Vec<f64>; 2], max: f64) -> Self {
        let [base, new] = observed;
        let values = [base.values(&scales[0]), new.values(&scales[1])];
        let spreads = [base.spread(&scales[0]), new.spread(&scales[1])];
        Self::Runs { values, spreads, max }
    }
}

/// Tests one quantity of all hypotheses.
fn test_quantity(
    quantity: Quantity,
    hypotheses: &[Hypothesis<'_>],
    comparison: &Comparison<'_>,
) -> Vec<Change> {
    let sides = hypotheses.iter().map(|hypothesis| {
        let observed = &hypothesis.observed;
        match comparison.method {
            Method::Welch => {
                let scales = observed.each_ref().map(|side| side.scales(quantity));
                Sides::of_runs(observed, &scales, quantity.max())
            }
            Method::Newcombe => {
                Sides::Counts(observed.each_ref().map(|side| side.proportion(quantity)))
            }
        }
    });
    test_family(hypotheses, &sides.collect::<Vec<_>>(), comparison)
}

/// Tests the corrected parts of a run. Returns the power of the correction, too.
fn test_corrected(
    hypotheses: &[Hypothesis<'_>],
    comparison: &Comparison<'_>,
) -> (Vec<Change>, f64) {
    let selfs = hypotheses.iter().filter(|hypothesis| hypothesis.kind == MetricKind::Self_);
    let mut correction = Correction::new(comparison, selfs.map(|hypothesis| &hypothesis.observed));
    let has_others = has_others(hypotheses);
    let mut left_out: Vec<usize> = Vec::new();
    loop {
        let sides = hypotheses.iter().enumerate().map(|(index, hypothesis)| {
            let own = left_out.contains(&index).then_some(&hypothesis.observed);
            corrected_sides(hypothesis, &correction.scales(own), comparison)
        });
        let changes = test_family(hypotheses, &sides.collect::<Vec<_>>(), comparison);
        let changed = (0..hypotheses.len()).filter(|index| {
            hypotheses[*index].kind == MetricKind::Self_
                && changes[*index].significant
                && !left_out.contains(index)
        });
        let most = changed.min_by(|a, b| changes[*a].p.total_cmp(&changes[*b].p));
        let is_new = most.filter(|_| has_others).is_some_and(|index| {
            left_out.push(index);
            left_out.len() <= MAX_LEFT_OUT && correction.leave_out(&hypotheses[index].observed)
        });
        if !is_new {
            return (changes, correction.power());
        }
    }
}

fn corrected_sides(
    hypothesis: &Hypothesis<'_>,
    scales: &[Vec<f64>; 2],
    comparison: &Comparison<'_>,
) -> Sides {
    let observed = &hypothesis.observed;
    match comparison.method {
        Method::Welch => Sides::of_runs(observed, scales, f64::INFINITY),
        Method::Newcombe => {
            // The mean over the runs, each with its weight: the scale of the whole side.
            let [base, new] = [0, 1].map(|side| {
                let mut counts = observed[side].proportion(Quantity::Share);
                let whole = observed[side].whole_weight();
                let scaled: f64 =
                    observed[side].run_weights().zip(&scales[side]).map(|(w, s)| w * w * s).sum();
                counts.scale = if whole > 0.0 { scaled / whole } else { 1.0 };
                counts
            });
            Sides::Counts([base, new])
        }
    }
}

/// Tests a family of comparisons: one result for each hypothesis.
fn test_family(
    hypotheses: &[Hypothesis<'_>],
    sides: &[Sides],
    comparison: &Comparison<'_>,
) -> Vec<Change> {
    let alpha = comparison.criteria.alpha;
    let prior = fit_prior(hypotheses, sides);
    let mut changes: Vec<Change> = hypotheses
        .iter()
        .zip(sides)
        .map(|(hypothesis, sides)| {
            let (estimate, p) = match sides {
                Sides::Counts([base, new]) => {
                    let estimate = stats::newcombe(*base, *new, alpha);
                    (estimate, estimate.p)
                }
                Sides::Known([base, new]) => {
                    let estimate = stats::welch(*base, *new, alpha, f64::INFINITY);
                    (estimate, estimate.p)
                }
                Sides::Runs { spreads: [base, new], max, .. } => {
                    let estimate = stats::welch(*base, *new, alpha, *max);
                    let moderated = prior.p_value(*base, *new);
                    // The prior is fitted to self: totals share more of the variation of whole runs.
                    let is_total = hypothesis.kind == MetricKind::Total;
                    (estimate, if is_total { moderated.max(estimate.p) } else { moderated })
                }
            };
            Change { estimate, p, q: 1.0, significant: false }
        })
        .collect();
    let weights = weights(hypotheses, comparison);
    let family: Vec<WeightedP> = changes
        .iter()
        .zip(weights)
        .map(|(change, weight)| WeightedP { p: change.p, weight })
        .collect();
    // With fewer runs even the most extreme split of all has a p-value above alpha.
    let can_confirm = stats::smallest_p(comparison.base.len(), comparison.new.len()) <= alpha;
    for ((change, sides), q) in changes.iter_mut().zip(sides).zip(stats::holm(&family)) {
        change.q = q;
        change.significant = q <= alpha && change.estimate.p <= alpha;
        if let Sides::Runs { values: [base, new], spreads, .. } = sides
            && change.significant
            && can_confirm
        {
            let min_variance = spreads[0].min_variance.max(spreads[1].min_variance);
            let p = stats::permutation_p(base, new, min_variance);
            change.estimate.p = change.estimate.p.max(p);
            change.significant = change.estimate.p <= alpha;
        }
    }
    changes
}

/// Returns the parts of the level: in proportion to the samples of both sides together, which say
/// nothing about the difference of the sides.
fn weights(hypotheses: &[Hypothesis<'_>], comparison: &Comparison<'_>) -> Vec<f64> {
    let is_repeated = comparison.method == Method::Welch;
    if is_repeated && comparison.base.len().min(comparison.new.len()) < MIN_RUNS_FOR_WEIGHTS {
        return vec![1.0; hypotheses.len()];
    }
    let samples = |hypothesis: &Hypothesis<'_>| {
        hypothesis.observed.iter().map(|side| side.samples() as f64).sum::<f64>()
    };
    let sum =
        |kind| -> f64 { hypotheses.iter().filter(|other| other.kind == kind).map(samples).sum() };
    let [selfs, totals] = [MetricKind::Self_, MetricKind::Total].map(sum);
    let weight = |hypothesis: &Hypothesis<'_>| match hypothesis.kind {
        MetricKind::Self_ => LEVEL_OF_SELF * samples(hypothesis) / selfs,
        MetricKind::Total => (1.0 - LEVEL_OF_SELF) * samples(hypothesis) / totals,
    };
    hypotheses.iter().map(weight).collect()
}

/// Fits the prior to the self of all informative keys. Totals are left out: they repeat the
/// samples of the functions they call.
fn fit_prior(hypotheses: &[Hypothesis<'_>], sides: &[Sides]) -> Prior {
    let mut informative = Vec::new();
    for (hypothesis, sides) in hypotheses.iter().zip(sides) {
        let Sides::Runs { spreads, .. } = sides else { continue };
        if hypothesis.kind == MetricKind::Self_ {
            let pairs = hypothesis.observed.iter().zip(spreads);
            informative
                .extend(pairs.filter(|(side, _)| side.is_informative()).map(|(_, spread)| *spread));
        }
    }
    Prior::fit(&informative)
}
