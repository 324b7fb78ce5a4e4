//! The numbers of rows, for the script. Pure.

use nprof_report::page::Numbers;

use crate::compare::row::{Metric, Row, RowChange};
use crate::stats::Estimate;

/// The changes in the order of their numbers, which is that of the table.
pub(super) const CHANGES: [RowChange; 6] = [
    RowChange::Grown,
    RowChange::Added,
    RowChange::Shrunk,
    RowChange::Removed,
    RowChange::Displaced,
    RowChange::Same,
];

/// The decimals of shares in per cent, and of q, in the table and on the page.
const SHARE_DECIMALS: usize = 2;
const Q_DECIMALS: usize = 4;

/// Appends a row: its change and the metrics that changed, total, and self if it differs; of functions also samples and amounts.
pub(super) fn push_row(numbers: &mut Numbers, row: &Row, is_function: bool) {
    let change = CHANGES.iter().position(|&change| change == row.change()).unwrap_or_default();
    let self_ = &row.self_;
    let is_leaf = self_.share == row.total.share
        && self_.amount == row.total.amount
        && self_.corrected.q == row.total.corrected.q;
    let kind = match () {
        // Most paths have no self. A function without has an interval, too.
        () if self_.samples() == 0 && !is_function => 0,
        () if is_leaf => 1,
        () => 2,
    };
    // Three bits for the change, two for the kind of self, two for the metrics that changed.
    let changed = u64::from(self_.changed) | u64::from(row.total.changed) << 1;
    numbers.push(changed << 5 | kind << 3 | change as u64);
    push_metric(numbers, &row.total, is_function);
    if kind == 2 {
        push_metric(numbers, self_, is_function);
    }
}

fn push_metric(numbers: &mut Numbers, metric: &Metric, is_function: bool) {
    push_estimate(numbers, &metric.share.estimate, |share| {
        millionths(100.0 * share, SHARE_DECIMALS)
    });
    numbers.push(q_millionths(metric.corrected.q) as u64);
    if !is_function {
        return;
    }
    numbers.push(metric.base.samples);
    numbers.push(metric.new.samples);
    if let Some(amount) = &metric.amount {
        push_estimate(numbers, &amount.estimate, |amount| amount.round() as i64);
    }
}

fn push_estimate(numbers: &mut Numbers, estimate: &Estimate, whole: impl Fn(f64) -> i64) {
    numbers.push(whole(estimate.base) as u64);
    numbers.push(whole(estimate.new) as u64);
    for value in [estimate.difference(), estimate.low, estimate.high] {
        numbers.push_signed(whole(value));
    }
}

/// Returns a number in millionths, which the script rounds to the same decimals as the table.
fn millionths(number: f64, decimals: usize) -> i64 {
    let nearest = (number * 1e6).round() as i64;
    let last_digit = 10_i64.pow(6 - decimals as u32);
    if nearest.abs() % last_digit != last_digit / 2 {
        return nearest;
    }
    // In the middle between two numbers of the table, the script might choose the other one.
    let printed: f64 = format!("{number:.decimals$}").parse().unwrap_or(number);
    if printed > number { nearest + 1 } else { nearest - 1 }
}

/// Returns q in millionths; it stays below 0.0001 if it is, which is not printed as a number.
fn q_millionths(q: f64) -> i64 {
    let rounded = millionths(q, Q_DECIMALS);
    if q < 0.0001 { rounded.min(99) } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::text::q_value;

    /// Returns a number as the script has it, rounded as JavaScript does: away from 0 in the middle.
    fn shown(millionths: i64, decimals: usize) -> f64 {
        let last_digit = 10_f64.powi(6 - decimals as i32);
        (millionths as f64 / last_digit).round() * last_digit / 1e6
    }

    #[test]
    fn decimals_are_those_of_the_table() {
        // Of equally near numbers the table has the even one. The others are in the middle only when they
        // are rounded to millionths.
        for number in [0.125, -0.125, 0.375, 2.625, 12.344_999_7, -12.345_000_3, 99.995, 0.0] {
            let printed: f64 = format!("{number:.2}").parse().unwrap();
            let millionths = millionths(number, 2);
            assert!((shown(millionths, 2) - printed).abs() < 1e-9, "{number}: {millionths}");
            assert!((millionths as f64 - number * 1e6).abs() < 2.0, "{number}: {millionths}");
        }
        for q in [0.031_25, 0.012_349_6, 0.012_350_4, 0.5, 1.0] {
            let printed: f64 = q_value(q).parse().unwrap();
            assert!((shown(q_millionths(q), 4) - printed).abs() < 1e-9, "{q}");
        }
        for q in [0.0, 1e-9, 0.000_05, 0.000_099_999_9] {
            assert_eq!(q_value(q), "<0.0001");
            assert!((0..100).contains(&q_millionths(q)), "{q}");
        }
        assert_eq!(q_millionths(0.0001), 100);
    }
}
