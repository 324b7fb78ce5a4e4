//! Tests of a whole comparison on small hand-written runs.

use crate::compare::comparison::{Criteria, Method};
use crate::compare::diff::{Diff, compare};
use crate::compare::effect_size::EffectSize;
use crate::compare::fail_on::{self, Bound};
use crate::compare::row::RowChange;
use crate::input::event::AmountUnit;
use crate::input::key::{KeyId, KeyTable, RowKey};
use crate::input::run_counts::{KeyCount, RunCounts};
use crate::stats::Estimate;
use nprof_report::profile::Sum;
use proptest::collection::vec;
use proptest::prelude::*;

const CRITERIA: Criteria =
    Criteria { alpha: 0.05, amount: Some(AmountUnit::Ns), is_in_turn: true, min_effect: None };

/// A run in which key `i` has `samples[i]` of self and all keys are called from key 0; a sample
/// has the weight `period`, in nanoseconds.
fn run(samples: &[u64], period: u64) -> RunCounts {
    let sum = |samples| Sum::of(samples, samples * period);
    let whole = sum(samples.iter().sum());
    let mut counts = RunCounts { sum: whole, ..RunCounts::default() };
    for (i, (key, &samples)) in ids(samples.len()).zip(samples).enumerate() {
        let self_ = sum(samples);
        let total = if i == 0 { whole } else { self_ };
        if total.samples > 0 {
            counts.keys.insert(key, KeyCount { self_, total, ..KeyCount::default() });
        }
    }
    counts
}

fn ids(count: usize) -> impl Iterator<Item = KeyId> {
    let mut keys = KeyTable::default();
    for i in 0..count {
        keys.intern(RowKey::of_name(i.to_string().as_bytes()));
    }
    keys.ids()
}

fn diff(base: &[RunCounts], new: &[RunCounts], keys: usize) -> Diff {
    let (base, new): (Vec<_>, Vec<_>) = (base.iter().collect(), new.iter().collect());
    compare(&base, &new, None, ids(keys), CRITERIA)
}

fn changes(diff: &Diff) -> Vec<&'static str> {
    diff.rows.iter().map(|row| row.change().word()).collect()
}

#[test]
fn changes_follow_from_shares() {
    let base = run(&[1000, 500, 0, 300, 50], 1);
    let new = run(&[1010, 800, 200, 0, 40], 1);
    let diff = diff(&[base], &[new], 5);
    assert_eq!(changes(&diff), ["shrunk", "grown", "added", "removed", "same"]);
    // Self and total of the first row; the others call nothing.
    assert_eq!(diff.comparisons, 6);
    assert_eq!(diff.method, Method::Newcombe);
}

#[test]
fn does_not_compare_rare_rows() {
    let diff = diff(&[run(&[1000, 0, 0], 1)], &[run(&[1000, 9, 40], 1)], 3);
    // Self and total of the first row, and self of the third.
    assert_eq!(diff.comparisons, 3);
    assert_eq!(changes(&diff), ["shrunk", "same", "added"]);
    assert_eq!(diff.rows[1].self_.share.q, 1.0);
}

#[test]
fn shares_ignore_sampling_rate_and_run_length() {
    let base = run(&[1000, 500, 20], 1_000_000);
    let new = run(&[6000, 3000, 120], 2_000_000);
    let diff = diff(&[base], &[new], 3);
    assert_eq!(changes(&diff), ["same"; 3]);
    // But the CPU time grew by a factor of twelve.
    let time = diff.rows[1].self_.amount.unwrap();
    assert!((time.estimate.base - 5e8).abs() < 1.0 && (time.estimate.new - 6e9).abs() < 1.0);
    assert!(time.estimate.low > 5e9 && time.q < 1e-9);
}

#[test]
fn shares_and_intervals_follow_weights() {
    // Key 1 has 10 samples of weight 100 on the base and 30 on the new side, key 0 has 3000 of
    // weight 1. By count it would be 0.3 % against 1.0 %.
    let side = |heavy: u64| {
        let sums = [Sum::of(3000, 3000), Sum::of(heavy, 100 * heavy)];
        let mut counts = RunCounts::default();
        for (key, self_) in ids(2).zip(sums) {
            counts.sum.add(self_);
            counts.keys.insert(key, KeyCount { self_, total: self_, ..KeyCount::default() });
        }
        counts
    };
    let heavy = diff(&[side(10)], &[side(30)], 2).rows[1].self_;
    assert!((heavy.share.estimate.base - 0.25).abs() < 1e-12);
    assert!((heavy.share.estimate.new - 0.5).abs() < 1e-12);
    // 10 and 30 observations decide, and not 4000 and 6000 units of weight.
    let width = heavy.share.estimate.high - heavy.share.estimate.low;
    assert!((0.2..0.5).contains(&width), "{width}");
    assert!(heavy.share.estimate.p > 0.001, "{}", heavy.share.estimate.p);
}

#[test]
fn variance_between_runs_is_no_change() {
    let noisy = |self_: [u64; 5]| self_.map(|self_| run(&[1000 - self_, self_], 1));
    let base = noisy([100, 300, 200, 250, 150]);
    let new = noisy([200, 350, 260, 180, 310]);
    let over_runs = diff(&base, &new, 2);
    assert_eq!(over_runs.method, Method::Welch);
    assert_eq!(changes(&over_runs), ["same"; 2]);
    let steady = diff(&noisy([200, 205, 195, 202, 198]), &noisy([260, 262, 255, 258, 265]), 2);
    assert_eq!(changes(&steady), ["shrunk", "grown"]);
    // With a single run on one side, the runs of the other are added up: the noise appears as a change.
    let pooled = diff(&base[..1], &new, 2);
    assert_eq!(pooled.method, Method::Newcombe);
    assert_eq!(changes(&pooled), ["shrunk", "grown"]);
}

#[test]
fn equal_totals_of_runs_have_the_error_of_a_sample() {
    // 2,000,000 bytes more, of which a sample stands for 65,536 bytes.
    let runs = |samples| [const { 1 << 16 }; 4].map(|period| run(&[samples, 10], period));
    let amount = diff(&runs(40), &runs(71), 2).run_amount.unwrap();
    assert_eq!(amount.difference(), 2_031_616.0);
    assert!(amount.low > 1_900_000.0 && amount.low < 2_000_000.0, "{amount:?}");
    assert!(amount.high < 2_200_000.0 && amount.p < 1e-6, "{amount:?}");
    let same = diff(&runs(40), &runs(40), 2).run_amount.unwrap();
    assert!(same.low < 0.0 && same.high > 0.0 && same.p > 0.9, "{same:?}");
}

#[test]
fn function_of_few_is_displaced_if_only_its_share_changed() {
    let runs = |selfs: [u64; 3]| {
        [-2_i64, 1, 0, 3, -1].map(|noise| {
            let samples = selfs.map(|self_| self_.saturating_add_signed(noise));
            run(&samples, 1_000_000)
        })
    };
    let words = |new: [u64; 3]| changes(&diff(&runs([600, 300, 100]), &runs(new), 3));
    // The others take the same time.
    assert_eq!(words([600, 300, 160]), ["displaced", "displaced", "grown"]);
    assert_eq!(words([700, 300, 100]), ["grown", "displaced", "displaced"]);
    assert_eq!(words([600, 300, 40]), ["displaced", "displaced", "shrunk"]);
    // They take another time, too.
    assert_eq!(words([600, 240, 160]), ["same", "shrunk", "grown"]);
    // All take three times as long: the runs are longer.
    assert_eq!(words([1800, 900, 300]), ["same"; 3]);
    // Without comparable times, shares decide.
    let (base, new) = (runs([600, 300, 100]), runs([600, 300, 160]));
    let criteria = Criteria { is_in_turn: false, ..CRITERIA };
    let diff = compare(&base.each_ref(), &new.each_ref(), None, ids(3), criteria);
    assert_eq!(changes(&diff), ["shrunk", "shrunk", "grown"]);
}

/// The result of `--fail-on any`, and the sentences on the missing evidence.
fn any(diff: &Diff) -> (&'static str, Vec<String>) {
    let bounds = ["any".parse::<Bound>().unwrap()];
    (fail_on::result(diff, &bounds).word(), fail_on::missing(diff, &bounds))
}

#[test]
fn any_is_undecided_if_a_change_of_two_points_could_be_missed() {
    let runs = |selfs: [u64; 5]| selfs.map(|self_| run(&[2000 - self_, self_], 1));
    let steady = diff(&runs([200, 202, 199, 201, 198]), &runs([201, 198, 200, 202, 199]), 2);
    assert_eq!(any(&steady), ("same", Vec::new()));
    // The same means, but the runs differ by several points.
    let noisy = diff(&runs([100, 300, 200, 250, 150]), &runs([140, 280, 190, 260, 130]), 2);
    let (result, missing) = any(&noisy);
    assert_eq!(result, "undecided");
    assert!(
        missing[0].contains("2 rows may have changed by 2 points of a run or more; about"),
        "{missing:?}"
    );
    let grown = diff(&runs([200, 202, 199, 201, 198]), &runs([301, 298, 300, 302, 299]), 2);
    assert_eq!(any(&grown).0, "failed");
    // A larger change that matters is excluded by the same runs.
    let criteria = Criteria { min_effect: Some(EffectSize::Share(0.2)), ..CRITERIA };
    let tolerant = Diff { criteria, ..noisy };
    assert_eq!(any(&tolerant), ("same", Vec::new()));
}

#[test]
fn side_without_samples_is_undecided() {
    let diff = diff(&[], &[run(&[5, 5], 1)], 2);
    assert!(!diff.has_enough_samples());
    assert_eq!(changes(&diff), ["same"; 2]);
    assert_eq!(diff.rows[0].self_.share.estimate.base, 0.0);
}

fn side() -> impl Strategy<Value = Vec<RunCounts>> {
    vec((vec(0..5000u64, 5), 1..3_000_000u64), 1..4).prop_map(|runs| {
        runs.into_iter()
            .map(|(mut samples, period)| {
                // Runs without samples are left out before a comparison.
                samples[0] += 1;
                run(&samples, period)
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn side_compared_with_itself_has_no_difference(side in side()) {
        for row in diff(&side, &side, 5).rows {
            for metric in [row.self_, row.total] {
                prop_assert_eq!(metric.share.estimate.difference(), 0.0);
                prop_assert_eq!(metric.share.estimate.p, 1.0);
                prop_assert_eq!(metric.amount.unwrap().estimate.difference(), 0.0);
            }
            prop_assert_eq!(row.change(), RowChange::Same);
        }
    }

    #[test]
    fn swapping_sides_negates_differences(base in side(), new in side()) {
        let (there, back) = (diff(&base, &new, 5), diff(&new, &base, 5));
        prop_assert_eq!(there.rows.len(), back.rows.len());
        for (a, b) in there.rows.iter().zip(&back.rows) {
            for (a, b) in [(a.self_, b.self_), (a.total, b.total)] {
                let (a, b) = (a.share, b.share);
                prop_assert_eq!(a.estimate.difference(), -b.estimate.difference());
                // The sums of squares are added up in another order.
                prop_assert!((a.estimate.low + b.estimate.high).abs() < 1e-12);
                prop_assert!((a.q - b.q).abs() <= 1e-9 * a.q.max(b.q), "{} {}", a.q, b.q);
            }
        }
    }

    #[test]
    fn shares_of_self_sum_to_one(base in side(), new in side()) {
        let rows = diff(&base, &new, 5).rows;
        let sum = |value: fn(&Estimate) -> f64| {
            rows.iter().map(|row| value(&row.self_.share.estimate)).sum::<f64>()
        };
        prop_assert!((sum(|estimate| estimate.base) - 1.0).abs() < 1e-9);
        prop_assert!((sum(|estimate| estimate.new) - 1.0).abs() < 1e-9);
        for row in &rows {
            prop_assert!(row.self_.share.estimate.new <= row.total.share.estimate.new + 1e-12);
        }
    }
}
