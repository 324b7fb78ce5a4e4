//! Comparisons of simulated programs that allocate through one function, with themselves and with versions in
//! which one caller of it allocates more.

use fastrand::Rng;
use nprof_report::profile::Sum;

use crate::compare::comparison::Criteria;
use crate::compare::diff::{Diff, compare};
use crate::compare::row::RowChange;
use crate::input::event::AmountUnit;
use crate::input::key::{KeyId, KeyTable, RowKey};
use crate::input::run_counts::{KeyCount, RunCounts};

/// The MB of each caller; those of the last grow.
const CALLERS: [u64; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 20, 20, 20, 40];
const GROWN: usize = CALLERS.len() - 1;

/// The largest variation of a caller from its mean, as a fraction.
const VARIATION: f64 = 0.005;

/// The sampling period in bytes.
const PERIOD: u64 = 1024;

const PAIRS: usize = 200;

/// The most pairs with a false alarm at a level of 5 %, of 200: more are reported in one of 1000 cases.
const ALARMS_MAX: usize = 20;

/// Returns a run: the callers, `main`, and the function that all of them allocate through.
fn run(keys: &[KeyId], growth: f64, rng: &mut Rng) -> RunCounts {
    let mut counts = RunCounts::default();
    for (caller, (megabytes, key)) in CALLERS.iter().zip(keys).enumerate() {
        let more = if caller == GROWN { growth } else { 0.0 };
        let varied = 1.0 + more + VARIATION * (2.0 * rng.f64() - 1.0);
        let weight = (*megabytes as f64 * 1e6 * varied) as u64;
        let sum = Sum::of(weight / PERIOD, weight);
        counts
            .keys
            .insert(*key, KeyCount { self_: Sum::default(), total: sum, ..KeyCount::default() });
        counts.sum.add(sum);
    }
    let [main, function] = [keys[CALLERS.len()], keys[CALLERS.len() + 1]];
    counts
        .keys
        .insert(main, KeyCount { self_: Sum::default(), total: counts.sum, ..KeyCount::default() });
    counts
        .keys
        .insert(function, KeyCount { self_: counts.sum, total: counts.sum, ..KeyCount::default() });
    counts
}

/// Compares five runs a side.
fn diff(keys: &[KeyId], growth: f64, rng: &mut Rng) -> Diff {
    let base: Vec<_> = (0..5).map(|_| run(keys, 0.0, rng)).collect();
    let new: Vec<_> = (0..5).map(|_| run(keys, growth, rng)).collect();
    let (base, new): (Vec<_>, Vec<_>) = (base.iter().collect(), new.iter().collect());
    let amount = Some(AmountUnit::Bytes);
    // The order of the recordings has no influence on bytes.
    let criteria = Criteria { alpha: 0.05, amount, is_in_turn: false, min_effect: None };
    compare(&base, &new, None, keys.iter().copied(), criteria)
}

/// Returns the pairs that report the caller as grown, and those that report anything else.
fn reported(growth: f64) -> [usize; 2] {
    // A fixed seed: the test has the same result every time.
    let mut rng = Rng::with_seed(5);
    let mut table = KeyTable::default();
    let names = 0..CALLERS.len() + 2;
    let keys: Vec<_> =
        names.map(|name| table.intern(RowKey::of_name(name.to_string().as_bytes()))).collect();
    let (mut found, mut others) = (0, 0);
    for _ in 0..PAIRS {
        let rows = diff(&keys, growth, &mut rng).rows;
        let is_found = rows[GROWN].change() == RowChange::Grown;
        let changes = rows.iter().filter(|row| row.change().is_change()).count();
        found += usize::from(is_found);
        others += usize::from(changes > usize::from(is_found));
    }
    [found, others]
}

#[test]
fn bytes_of_equal_programs_raise_no_more_alarms_than_their_level() {
    let [found, others] = reported(0.0);
    assert!(found + others <= ALARMS_MAX, "{found} and {others} of {PAIRS}");
}

#[test]
fn growth_of_three_per_cent_is_found_and_moves_no_other_row() {
    let [found, others] = reported(0.03);
    assert!(found == PAIRS && others <= ALARMS_MAX, "{found} and {others} of {PAIRS}");
}
