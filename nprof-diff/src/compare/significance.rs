//! Decides which differences are significant, over all keys together. Pure.
//!
//! A difference is significant if it passes two tests: the interval from its own runs excludes
//! zero, and its moderated p-value is a discovery among all keys (Benjamini and Hochberg). If a
//! key has enough runs for it, a permutation test must confirm the result of Welch's test.

use crate::compare::comparison::{Comparison, Method};
use crate::compare::observed::Observed;
use crate::compare::quantity::{MetricKind, Quantity};
use crate::compare::row::{Metric, Row};
use crate::stats::{self, Prior};

/// The smallest number of functions, seen on both sides, that a median ratio is computed from.
const MIN_FUNCTIONS_FOR_MEDIAN: usize = 5;

/// The smallest number of samples, on each side, of a function that enters the median ratio.
const MIN_SAMPLES_FOR_RATIO: u64 = 30;

/// Results that hold for all rows together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FamilyResult {
    /// The number of shares compared.
    pub(crate) comparisons: usize,
    /// The median over functions of new share by base share; 1 if no share is significant.
    pub(crate) median_ratio: f64,
}

/// Tests the rows by share and by CPU time.
pub(crate) fn test_rows(rows: &mut [Row], comparison: &Comparison<'_>) -> FamilyResult {
    let hypotheses = hypotheses(rows, comparison);
    let prior = test_quantity(Quantity::Share, rows, &hypotheses, comparison);
    test_quantity(Quantity::TimeNs, rows, &hypotheses, comparison);
    let median_ratio = mark_displaced(rows, &hypotheses, comparison, prior);
    let min_effect = comparison.criteria.min_effect;
    for hypothesis in &hypotheses {
        let metric = hypothesis.metric_mut(rows);
        metric.changed =
            metric.share.significant && !metric.displaced && metric.is_at_least(min_effect);
    }
    FamilyResult { comparisons: hypotheses.len(), median_ratio }
}

/// One member of the family: a metric of a row.
struct Hypothesis<'a> {
    row: usize,
    kind: MetricKind,
    observed: [Observed<'a>; 2],
}

impl Hypothesis<'_> {
    fn metric<'r>(&self, rows: &'r [Row]) -> &'r Metric {
        rows[self.row].metric(self.kind)
    }

    fn metric_mut<'r>(&self, rows: &'r mut [Row]) -> &'r mut Metric {
        rows[self.row].metric_mut(self.kind)
    }
}

/// Returns the family: self and total of every row, except rare ones.
fn hypotheses<'a>(rows: &[Row], comparison: &'a Comparison<'_>) -> Vec<Hypothesis<'a>> {
    let mut hypotheses = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        for kind in [MetricKind::Self_, MetricKind::Total] {
            if row.metric(kind).is_compared() {
                let observed = comparison.observed(row.key, kind);
                hypotheses.push(Hypothesis { row: index, kind, observed });
            }
        }
    }
    hypotheses
}

/// Sets p- and q-value of every hypothesis. Returns the prior of the variances; None without
/// repeated runs, or if the event has no such quantity.
fn test_quantity(
    quantity: Quantity,
    rows: &mut [Row],
    hypotheses: &[Hypothesis<'_>],
    comparison: &Comparison<'_>,
) -> Option<Prior> {
    let prior = (comparison.method == Method::Welch).then(|| fit_prior(hypotheses, quantity));
    let mut p = Vec::with_capacity(hypotheses.len());
    for hypothesis in hypotheses {
        let change = hypothesis.metric_mut(rows).change_mut(quantity)?;
        if let Some(prior) = prior {
            let [base, new] = &hypothesis.observed;
            change.p = prior.p_value(base.spread(quantity), new.spread(quantity));
        }
        p.push(change.p);
    }
    let alpha = comparison.criteria.alpha;
    // With fewer runs even the most extreme split of all has a p-value above alpha.
    let can_confirm =
        prior.is_some() && stats::smallest_p(comparison.base.len(), comparison.new.len()) <= alpha;
    for (hypothesis, q) in hypotheses.iter().zip(stats::benjamini_hochberg(&p)) {
        let Some(change) = hypothesis.metric_mut(rows).change_mut(quantity) else { continue };
        change.q = q;
        change.significant = q <= alpha && change.estimate.p <= alpha;
        if change.significant && can_confirm {
            change.estimate.p = change.estimate.p.max(permutation_p(hypothesis, quantity));
            change.significant = change.estimate.p <= alpha;
        }
    }
    prior
}

/// Fits the prior to the self of all informative keys. Totals are left out: they repeat the
/// samples of the functions they call.
fn fit_prior(hypotheses: &[Hypothesis<'_>], quantity: Quantity) -> Prior {
    let self_ = hypotheses.iter().filter(|hypothesis| hypothesis.kind == MetricKind::Self_);
    let informative =
        self_.flat_map(|hypothesis| &hypothesis.observed).filter(|side| side.is_informative());
    Prior::fit(&informative.map(|side| side.spread(quantity)).collect::<Vec<_>>())
}

fn permutation_p(hypothesis: &Hypothesis<'_>, quantity: Quantity) -> f64 {
    let [base, new] = &hypothesis.observed;
    let min_variance = base.spread(quantity).min_variance.max(new.spread(quantity).min_variance);
    stats::permutation_p(&base.values(quantity), &new.values(quantity), min_variance)
}

/// Marks the rows whose share changed only as that of most functions did, and returns that change:
/// the median over functions of new share by base share.
///
/// Shares sum to 1: if one function takes more, all others have a smaller share. The median of
/// ratios brings sequencing counts to one scale in the same way (S. Anders and W. Huber, Genome
/// Biology 11:R106, 2010). A row is not displaced if it is a discovery also against the base's
/// shares times the median; these tests are a family of comparisons of their own.
fn mark_displaced(
    rows: &mut [Row],
    hypotheses: &[Hypothesis<'_>],
    comparison: &Comparison<'_>,
    prior: Option<Prior>,
) -> f64 {
    // Without a significant share no row can be displaced.
    if !hypotheses.iter().any(|hypothesis| hypothesis.metric(rows).share.significant) {
        return 1.0;
    }
    let Some(ratio) = median_ratio(rows) else { return 1.0 };
    let adjusted: Vec<AdjustedTest> = hypotheses
        .iter()
        .map(|hypothesis| {
            test_against_median(hypothesis, hypothesis.metric(rows), ratio, comparison, prior)
        })
        .collect();
    let p: Vec<f64> = adjusted.iter().map(|test| test.p).collect();
    let alpha = comparison.criteria.alpha;
    for ((hypothesis, test), q) in
        hypotheses.iter().zip(adjusted).zip(stats::benjamini_hochberg(&p))
    {
        let metric = hypothesis.metric_mut(rows);
        // Relative to the median it moved in the other direction than its share did: a report of
        // growth would contradict the printed shares.
        let is_opposite = test.difference.signum() != metric.share.estimate.difference().signum();
        let changed = q <= alpha && test.own_p <= alpha && !is_opposite;
        metric.displaced = metric.share.significant && !changed;
    }
    ratio
}

/// The test of a row against the base's share times the median ratio.
struct AdjustedTest {
    difference: f64,
    /// The p-value by the row's own runs.
    own_p: f64,
    /// The p-value with the moderated variance.
    p: f64,
}

fn test_against_median(
    hypothesis: &Hypothesis<'_>,
    metric: &Metric,
    ratio: f64,
    comparison: &Comparison<'_>,
    prior: Option<Prior>,
) -> AdjustedTest {
    let [base, new] = &hypothesis.observed;
    let (share, alpha) = (metric.share, comparison.criteria.alpha);
    let difference = share.estimate.new - share.estimate.base * ratio;
    // An added or removed row has no share to scale: it is added or removed in any case.
    if metric.base_samples == 0 || metric.new_samples == 0 {
        return AdjustedTest { difference, own_p: share.estimate.p, p: share.p };
    }
    match prior {
        Some(prior) => {
            let [base, new] = [base, new].map(|side| side.spread(Quantity::Share));
            let base = base.scaled(ratio);
            let own_p = stats::welch(base, new, alpha, Quantity::Share.max()).p;
            AdjustedTest { difference, own_p, p: prior.p_value(base, new) }
        }
        None => {
            let mut base = base.proportion(Quantity::Share);
            base.scale = ratio;
            let p = stats::newcombe(base, new.proportion(Quantity::Share), alpha).p;
            AdjustedTest { difference, own_p: p, p }
        }
    }
}

/// Returns the median over functions of new share by base share. None if too few functions have
/// enough samples on both sides.
fn median_ratio(rows: &[Row]) -> Option<f64> {
    let frequent = rows
        .iter()
        .filter(|row| row.self_.base_samples.min(row.self_.new_samples) >= MIN_SAMPLES_FOR_RATIO);
    let mut ratios: Vec<f64> =
        frequent.map(|row| row.self_.share.estimate.new / row.self_.share.estimate.base).collect();
    ratios.sort_by(f64::total_cmp);
    let count = ratios.len();
    (count >= MIN_FUNCTIONS_FOR_MEDIAN)
        .then(|| f64::midpoint(ratios[(count - 1) / 2], ratios[count / 2]))
}
