//! Which differences are significant: what all keys tell of each other. Pure.
//!
//! A difference is significant when it is twice: by the runs of its key alone, whose interval
//! leaves out zero; and among all keys, by its moderated p-value after the procedure of Benjamini
//! and Hochberg. Where the runs of a key are enough for it, a permutation test must confirm what
//! Welch's says of them.

use crate::compare::comparison::{Comparison, Method};
use crate::compare::observed::{Observed, Quantity};
use crate::compare::row::{Metric, Row};
use crate::stats::{self, Prior};

/// With fewer functions on both sides nothing is said of most of them.
const MIN_FUNCTIONS_FOR_MEDIAN: usize = 5;

/// A function with fewer samples on a side says nothing of what most functions did.
const MIN_SAMPLES_FOR_RATIO: u64 = 30;

/// What is said of all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FamilyResult {
    /// How many shares were compared.
    pub(crate) comparisons: usize,
    /// What most functions' shares are, times those of the base.
    pub(crate) median_ratio: f64,
}

/// Judges the rows, by share and by CPU time.
pub(crate) fn test_rows(rows: &mut [Row], sides: &Comparison<'_>) -> FamilyResult {
    let hypotheses = hypotheses(rows, sides);
    let prior = test_quantity(Quantity::Share, rows, &hypotheses, sides);
    test_quantity(Quantity::Time, rows, &hypotheses, sides);
    let median_ratio = mark_displaced(rows, &hypotheses, sides, prior);
    let min_effect = sides.criteria.min_effect;
    for hypothesis in &hypotheses {
        let metric = hypothesis.metric_mut(rows);
        metric.changed =
            metric.share.significant && !metric.displaced && metric.is_at_least(min_effect);
    }
    FamilyResult { comparisons: hypotheses.len(), median_ratio }
}

/// A comparison.
struct Hypothesis<'a> {
    row: usize,
    is_total: bool,
    observed: [Observed<'a>; 2],
}

impl Hypothesis<'_> {
    fn metric<'r>(&self, rows: &'r [Row]) -> &'r Metric {
        if self.is_total { &rows[self.row].total } else { &rows[self.row].own }
    }

    fn metric_mut<'r>(&self, rows: &'r mut [Row]) -> &'r mut Metric {
        if self.is_total { &mut rows[self.row].total } else { &mut rows[self.row].own }
    }
}

/// Every comparison that is made.
fn hypotheses<'a>(rows: &[Row], sides: &'a Comparison<'_>) -> Vec<Hypothesis<'a>> {
    let mut hypotheses = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        if row.own.is_compared() {
            let observed = sides.observed(row.key, |count| count.own);
            hypotheses.push(Hypothesis { row: index, is_total: false, observed });
        }
        if row.total.is_compared() {
            let observed = sides.observed(row.key, |count| count.total);
            hypotheses.push(Hypothesis { row: index, is_total: true, observed });
        }
    }
    hypotheses
}

/// Gives every comparison its p- and q-value, and says what was learned from all keys.
fn test_quantity(
    quantity: Quantity,
    rows: &mut [Row],
    hypotheses: &[Hypothesis<'_>],
    sides: &Comparison<'_>,
) -> Option<Prior> {
    let prior = (sides.method == Method::Welch).then(|| prior(hypotheses, quantity));
    let mut p = Vec::with_capacity(hypotheses.len());
    for hypothesis in hypotheses {
        let change = hypothesis.metric_mut(rows).change_mut(quantity)?;
        if let Some(prior) = prior {
            let [base, new] = &hypothesis.observed;
            change.p = prior.p_value(base.spread(quantity), new.spread(quantity));
        }
        p.push(change.p);
    }
    let alpha = sides.criteria.alpha;
    for (hypothesis, q) in hypotheses.iter().zip(stats::benjamini_hochberg(&p)) {
        let Some(change) = hypothesis.metric_mut(rows).change_mut(quantity) else { continue };
        change.q = q;
        change.significant = q <= alpha && change.estimate.p <= alpha;
        let can_confirm =
            prior.is_some() && stats::smallest_p(sides.base.len(), sides.new.len()) <= alpha;
        if change.significant && can_confirm {
            change.estimate.p = change.estimate.p.max(permuted(hypothesis, quantity));
            change.significant = change.estimate.p <= alpha;
        }
    }
    prior
}

/// What the selfs of all keys that have samples enough tell of how much a key varies.
fn prior(hypotheses: &[Hypothesis<'_>], quantity: Quantity) -> Prior {
    let selfs = hypotheses
        .iter()
        .filter(|hypothesis| !hypothesis.is_total)
        .flat_map(|hypothesis| &hypothesis.observed);
    let telling = selfs.filter(|observed| observed.is_informative());
    Prior::fit(&telling.map(|observed| observed.spread(quantity)).collect::<Vec<_>>())
}

fn permuted(hypothesis: &Hypothesis<'_>, quantity: Quantity) -> f64 {
    let [base, new] = &hypothesis.observed;
    let least = base.spread(quantity).least.max(new.spread(quantity).least);
    stats::permutation_p(&base.values(quantity), &new.values(quantity), least)
}

/// Shares sum to 1: where one function takes more, all others have a smaller share. Marks what
/// changed as most functions did, and says how that was: the median over functions of new share
/// by base share, as the counts of sequencing are brought to one scale (S. Anders and W. Huber,
/// Genome Biology 11:R106, 2010). Beside the rest a key changed if it would be a discovery were
/// the shares of the base those of the rest: a family of comparisons of its own.
fn mark_displaced(
    rows: &mut [Row],
    hypotheses: &[Hypothesis<'_>],
    sides: &Comparison<'_>,
    prior: Option<Prior>,
) -> f64 {
    if !hypotheses.iter().any(|hypothesis| hypothesis.metric(rows).share.significant) {
        return 1.0;
    }
    let Some(median_ratio) = median_ratio(rows) else { return 1.0 };
    let beside = |hypothesis: &Hypothesis<'_>| {
        test_against_median(hypothesis, hypothesis.metric(rows), median_ratio, sides, prior)
    };
    let beside: Vec<AdjustedTest> = hypotheses.iter().map(beside).collect();
    let p: Vec<f64> = beside.iter().map(|beside| beside.p).collect();
    let alpha = sides.criteria.alpha;
    for ((hypothesis, beside), q) in
        hypotheses.iter().zip(beside).zip(stats::benjamini_hochberg(&p))
    {
        let metric = hypothesis.metric_mut(rows);
        let is_other_way =
            beside.difference.signum() != metric.share.estimate.difference().signum();
        let changed = q <= alpha && beside.own_p <= alpha && !is_other_way;
        metric.displaced = metric.share.significant && !changed;
    }
    median_ratio
}

/// How a key differs, were nothing but the rest to have changed.
struct AdjustedTest {
    difference: f64,
    /// By its own runs.
    own_p: f64,
    /// By what is known from all keys.
    p: f64,
}

fn test_against_median(
    hypothesis: &Hypothesis<'_>,
    metric: &Metric,
    median_ratio: f64,
    sides: &Comparison<'_>,
    prior: Option<Prior>,
) -> AdjustedTest {
    let [base, new] = &hypothesis.observed;
    let (share, alpha) = (metric.share, sides.criteria.alpha);
    let difference = share.estimate.new - share.estimate.base * median_ratio;
    // What was added or removed is that, however much the rest changed.
    if metric.base_samples == 0 || metric.new_samples == 0 {
        return AdjustedTest { difference, own_p: share.estimate.p, p: share.p };
    }
    match prior {
        Some(prior) => {
            let [base, new] = [base, new].map(|side| side.spread(Quantity::Share));
            let base = base.scaled(median_ratio);
            let own_p = stats::welch(base, new, alpha, Quantity::Share.most()).p;
            AdjustedTest { difference, own_p, p: prior.p_value(base, new) }
        }
        None => {
            let mut base = base.proportion(Quantity::Share);
            base.scale = median_ratio;
            let p = stats::newcombe(base, new.proportion(Quantity::Share), alpha).p;
            AdjustedTest { difference, own_p: p, p }
        }
    }
}

fn median_ratio(rows: &[Row]) -> Option<f64> {
    let frequent = rows
        .iter()
        .filter(|row| row.own.base_samples.min(row.own.new_samples) >= MIN_SAMPLES_FOR_RATIO);
    let mut ratios: Vec<f64> =
        frequent.map(|row| row.own.share.estimate.new / row.own.share.estimate.base).collect();
    ratios.sort_by(f64::total_cmp);
    let count = ratios.len();
    (count >= MIN_FUNCTIONS_FOR_MEDIAN)
        .then(|| f64::midpoint(ratios[(count - 1) / 2], ratios[count / 2]))
}
