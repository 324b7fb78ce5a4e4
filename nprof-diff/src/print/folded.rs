//! Call paths with the samples of both sides: folded stacks with two numbers, as difffolded.pl and
//! inferno-diff-folded write them, and the differential flame graph drawn from them.
//!
//! The numbers are samples, or weights if samples of a side weigh differently, so that widths are
//! shares. Those of the smaller side are scaled up, so that both columns have the same sum.

use std::io;

use nprof_report::flamegraph::{self, MIN_PERCENT, Picture};
use nprof_report::folded::guarded;
use nprof_report::profile::Sum;

use crate::compare::diff::Diff;
use crate::compare::row::Row;
use crate::input::key::KeyTable;
use crate::print::report::DiffReport;

/// Returns the lines, sorted.
pub(super) fn lines(diff: &Diff, keys: &KeyTable) -> String {
    let counts_samples = counts_samples(diff);
    let number = |sum: Sum| if counts_samples { sum.samples } else { sum.weight };
    let [base_sum, new_sum] = [diff.base.sum, diff.new.sum].map(number);
    let larger = base_sum.max(new_sum);
    let rows = diff.rows.iter().filter(|row| row.self_.samples() > 0);
    let mut rows: Vec<(String, &Row)> = rows.map(|row| (stack(keys, row), row)).collect();
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    let (mut base, mut new) = (Scaled::new(base_sum, larger), Scaled::new(new_sum, larger));
    let lines = rows.into_iter().map(|(stack, row)| {
        let [base, new] = [base.next(number(row.self_.base)), new.next(number(row.self_.new))];
        format!("{stack} {base} {new}\n")
    });
    lines.collect()
}

/// True if the numbers are samples, false if they are weights.
fn counts_samples(diff: &Diff) -> bool {
    diff.base.sum.has_stacks_of_samples() && diff.new.sum.has_stacks_of_samples()
}

/// Scales the numbers of a side to the larger sum. The errors of rounding do not add up.
struct Scaled {
    sum: u64,
    larger: u64,
    /// The numbers so far.
    given: u64,
    /// The scaled ones.
    returned: u64,
}

impl Scaled {
    fn new(sum: u64, larger: u64) -> Self {
        Self { sum, larger, given: 0, returned: 0 }
    }

    /// Returns the next number, scaled: at least 1, unless it is 0.
    fn next(&mut self, number: u64) -> u64 {
        if number == 0 || self.sum == 0 {
            return 0;
        }
        self.given = self.given.saturating_add(number);
        let (sum, larger) = (u128::from(self.sum), u128::from(self.larger));
        let until = (u128::from(self.given) * larger + sum / 2) / sum;
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        let scaled = until.saturating_sub(self.returned);
        self.returned = until;
        scaled
    }
}

fn stack(keys: &KeyTable, row: &Row) -> String {
    guarded(match keys.get(row.key).caller {
        Some(_) => keys.name(row.key),
        // The name of a path of one function does not escape `;`.
        None => keys.path_part(row.key),
    })
}

/// Draws the flame graph: grown functions red, shrunk ones blue, widths of the new side.
pub(super) fn draw(report: &DiffReport<'_>, icicle: bool) -> io::Result<Vec<u8>> {
    let title = "nprof: base and new".to_owned();
    // The library fails on a picture without samples.
    if report.diff.new.sum.samples == 0 {
        return Ok(flamegraph::empty(&title, "no samples on the new side"));
    }
    let subtitle = format!(
        "red: grown, blue: shrunk, relative to all samples; frames below {MIN_PERCENT} % are not drawn"
    );
    let unit = match report.event.filter(|_| !counts_samples(report.diff)) {
        Some(event) => event.unit(),
        None => String::new(),
    };
    let picture = Picture { title, subtitle, icicle, min_percent: MIN_PERCENT, unit };
    flamegraph::draw(&picture, &lines(report.diff, report.keys))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn scaled_numbers_have_the_larger_sum(
            numbers in proptest::collection::vec(0..1000_u64, 1..200),
            more in 0..100_000_u64,
        ) {
            let sum: u64 = numbers.iter().sum();
            let mut scaled = Scaled::new(sum, sum + more);
            let parts: Vec<u64> = numbers.iter().map(|&number| scaled.next(number)).collect();
            prop_assert_eq!(parts.iter().sum::<u64>(), if sum == 0 { 0 } else { sum + more });
            for (number, part) in numbers.iter().zip(&parts) {
                prop_assert_eq!(*number == 0, *part == 0);
                let exact = *number as f64 * (sum + more) as f64 / sum.max(1) as f64;
                prop_assert!((*part as f64 - exact).abs() <= 1.0, "{} {}", part, exact);
            }
        }
    }
}
