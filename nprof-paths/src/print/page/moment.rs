//! The sum of a moment as numbers of the page. Pure.

use nprof_report::page::Numbers;
use nprof_report::profile::{ReportedEvent, Sum};

/// The parts in which the script has effective sample sizes.
const EFFECTIVE_PARTS: f64 = 1024.0;

/// Returns the weight of a sample if all weigh the same. None if not.
pub(super) fn weight_of_each(sum: Sum) -> Option<u64> {
    // A sum that has saturated is no multiple of its samples.
    let each = sum.weight.checked_div(sum.samples).unwrap_or(0);
    (sum.is_uniform() && each.checked_mul(sum.samples) == Some(sum.weight)).then_some(each)
}

/// Appends the samples; if those of the event weigh differently, then their weight and effective sample
/// size.
pub(super) fn push_sum(numbers: &mut Numbers, sum: Sum, event: &ReportedEvent) {
    numbers.push(sum.samples);
    if weight_of_each(event.counted).is_none() {
        numbers.push(sum.weight);
        let effective = sum.samples_of_equal_weight() * EFFECTIVE_PARTS;
        numbers.push(effective.round() as u64);
    }
}
