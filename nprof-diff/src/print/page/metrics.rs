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

/// The parts of a share in the script: millionths of a per cent, as in the machine formats.
const SHARE_PARTS: f64 = 1e8;

/// The parts of q in the script.
const Q_PARTS: f64 = 1e6;

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
    push_estimate(numbers, &metric.share.estimate, SHARE_PARTS);
    numbers.push((metric.corrected.q * Q_PARTS).round() as u64);
    if !is_function {
        return;
    }
    numbers.push(metric.base.samples);
    numbers.push(metric.new.samples);
    if let Some(amount) = &metric.amount {
        push_estimate(numbers, &amount.estimate, 1.0);
    }
}

fn push_estimate(numbers: &mut Numbers, estimate: &Estimate, parts: f64) {
    let part = |value: f64| (value * parts).round();
    numbers.push(part(estimate.base) as u64);
    numbers.push(part(estimate.new) as u64);
    for value in [estimate.difference(), estimate.low, estimate.high] {
        numbers.push_signed(part(value) as i64);
    }
}
