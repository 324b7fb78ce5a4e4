//! Which differences are significant: what all keys tell of each other. Pure.
//!
//! A difference is significant when it is twice: by the runs of its key alone, whose interval
//! leaves out zero; and among all keys, by its moderated p-value after the procedure of Benjamini
//! and Hochberg. Where the runs of a key are enough for it, a permutation test must confirm what
//! Welch's says of them.

use crate::compare::comparison::{Method, Sides};
use crate::compare::observed::{Measure, Observed};
use crate::compare::row::{Metric, Row};
use crate::stats::{self, Prior};

/// With fewer functions on both sides nothing is said of most of them.
const MOST: usize = 5;

/// A function with fewer samples on a side says nothing of what most functions did.
const STEADY: u64 = 30;

/// What is said of all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Judged {
    /// How many shares were compared.
    pub(crate) comparisons: usize,
    /// What most functions' shares are, times those of the base.
    pub(crate) rest: f64,
}

/// Judges the rows, by share and by CPU time.
pub(crate) fn judge(rows: &mut [Row], sides: &Sides<'_>) -> Judged {
    let cases = cases(rows, sides);
    let prior = judge_by(Measure::Share, rows, &cases, sides);
    judge_by(Measure::Time, rows, &cases, sides);
    let rest = displace(rows, &cases, sides, prior);
    let min_effect = sides.question.min_effect;
    for case in &cases {
        let metric = case.metric_mut(rows);
        metric.changed = metric.share.sure && !metric.displaced && metric.is_at_least(min_effect);
    }
    Judged { comparisons: cases.len(), rest }
}

/// A comparison.
struct Case<'a> {
    row: usize,
    is_total: bool,
    observed: [Observed<'a>; 2],
}

impl Case<'_> {
    fn metric<'r>(&self, rows: &'r [Row]) -> &'r Metric {
        if self.is_total { &rows[self.row].total } else { &rows[self.row].own }
    }

    fn metric_mut<'r>(&self, rows: &'r mut [Row]) -> &'r mut Metric {
        if self.is_total { &mut rows[self.row].total } else { &mut rows[self.row].own }
    }
}

/// Every comparison that is made.
fn cases<'a>(rows: &[Row], sides: &'a Sides<'_>) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        if row.own.is_compared() {
            let observed = sides.observed(row.key, |count| count.own);
            cases.push(Case { row: index, is_total: false, observed });
        }
        if row.total.is_compared() {
            let observed = sides.observed(row.key, |count| count.total);
            cases.push(Case { row: index, is_total: true, observed });
        }
    }
    cases
}

/// Gives every comparison its p- and q-value, and says what was learned from all keys.
fn judge_by(
    measure: Measure,
    rows: &mut [Row],
    cases: &[Case<'_>],
    sides: &Sides<'_>,
) -> Option<Prior> {
    let prior = (sides.method == Method::Welch).then(|| prior(cases, measure));
    let mut p = Vec::with_capacity(cases.len());
    for case in cases {
        let change = case.metric_mut(rows).change_mut(measure)?;
        if let Some(prior) = prior {
            let [base, new] = &case.observed;
            change.p = prior.p_value(base.spread(measure), new.spread(measure));
        }
        p.push(change.p);
    }
    let alpha = sides.question.alpha;
    for (case, q) in cases.iter().zip(stats::benjamini_hochberg(&p)) {
        let Some(change) = case.metric_mut(rows).change_mut(measure) else { continue };
        change.q = q;
        change.sure = q <= alpha && change.estimate.p <= alpha;
        let can_confirm =
            prior.is_some() && stats::smallest_p(sides.base.len(), sides.new.len()) <= alpha;
        if change.sure && can_confirm {
            change.estimate.p = change.estimate.p.max(permuted(case, measure));
            change.sure = change.estimate.p <= alpha;
        }
    }
    prior
}

/// What the selfs of all keys that have samples enough tell of how much a key varies.
fn prior(cases: &[Case<'_>], measure: Measure) -> Prior {
    let selfs = cases.iter().filter(|case| !case.is_total).flat_map(|case| &case.observed);
    let telling = selfs.filter(|observed| observed.is_telling());
    Prior::fit(&telling.map(|observed| observed.spread(measure)).collect::<Vec<_>>())
}

fn permuted(case: &Case<'_>, measure: Measure) -> f64 {
    let [base, new] = &case.observed;
    let least = base.spread(measure).least.max(new.spread(measure).least);
    stats::permutation_p(&base.values(measure), &new.values(measure), least)
}

/// Shares sum to 1: where one function takes more, all others have a smaller share. Marks what
/// changed as most functions did, and says how that was: the median over functions of new share
/// by base share, as the counts of sequencing are brought to one scale (S. Anders and W. Huber,
/// Genome Biology 11:R106, 2010). Beside the rest a key changed if it would be a discovery were
/// the shares of the base those of the rest: a family of comparisons of its own.
fn displace(rows: &mut [Row], cases: &[Case<'_>], sides: &Sides<'_>, prior: Option<Prior>) -> f64 {
    if !cases.iter().any(|case| case.metric(rows).share.sure) {
        return 1.0;
    }
    let Some(rest) = median_ratio(rows) else { return 1.0 };
    let beside = |case: &Case<'_>| beside_the_rest(case, case.metric(rows), rest, sides, prior);
    let beside: Vec<Beside> = cases.iter().map(beside).collect();
    let p: Vec<f64> = beside.iter().map(|beside| beside.p).collect();
    let alpha = sides.question.alpha;
    for ((case, beside), q) in cases.iter().zip(beside).zip(stats::benjamini_hochberg(&p)) {
        let metric = case.metric_mut(rows);
        let is_other_way =
            beside.difference.signum() != metric.share.estimate.difference().signum();
        let changed = q <= alpha && beside.own_p <= alpha && !is_other_way;
        metric.displaced = metric.share.sure && !changed;
    }
    rest
}

/// How a key differs, were nothing but the rest to have changed.
struct Beside {
    difference: f64,
    /// By its own runs.
    own_p: f64,
    /// By what is known from all keys.
    p: f64,
}

fn beside_the_rest(
    case: &Case<'_>,
    metric: &Metric,
    rest: f64,
    sides: &Sides<'_>,
    prior: Option<Prior>,
) -> Beside {
    let [base, new] = &case.observed;
    let (share, alpha) = (metric.share, sides.question.alpha);
    let difference = share.estimate.new - share.estimate.base * rest;
    // What was added or removed is that, however much the rest changed.
    if metric.base_samples == 0 || metric.new_samples == 0 {
        return Beside { difference, own_p: share.estimate.p, p: share.p };
    }
    match prior {
        Some(prior) => {
            let [base, new] = [base, new].map(|side| side.spread(Measure::Share));
            let base = base.scaled(rest);
            let own_p = stats::welch(base, new, alpha, Measure::Share.most()).p;
            Beside { difference, own_p, p: prior.p_value(base, new) }
        }
        None => {
            let mut base = base.proportion(Measure::Share);
            base.scale = rest;
            let p = stats::newcombe(base, new.proportion(Measure::Share), alpha).p;
            Beside { difference, own_p: p, p }
        }
    }
}

fn median_ratio(rows: &[Row]) -> Option<f64> {
    let steady = rows.iter().filter(|row| row.own.base_samples.min(row.own.new_samples) >= STEADY);
    let mut ratios: Vec<f64> =
        steady.map(|row| row.own.share.estimate.new / row.own.share.estimate.base).collect();
    ratios.sort_by(f64::total_cmp);
    let count = ratios.len();
    (count >= MOST).then(|| f64::midpoint(ratios[(count - 1) / 2], ratios[count / 2]))
}
