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
    let mut lines = Vec::new();
    for row in diff.rows.iter().filter(|row| row.self_.samples() > 0) {
        let base = scaled(number(row.self_.base), base_sum, larger);
        let new = scaled(number(row.self_.new), new_sum, larger);
        lines.push(format!("{} {base} {new}\n", stack(keys, row)));
    }
    lines.sort();
    lines.concat()
}

/// True if the numbers are samples, false if they are weights.
fn counts_samples(diff: &Diff) -> bool {
    diff.base.sum.has_stacks_of_samples() && diff.new.sum.has_stacks_of_samples()
}

/// Scales the number of a side with this sum to the larger sum.
fn scaled(number: u64, sum: u64, larger: u64) -> u64 {
    if sum == 0 { 0 } else { (number as f64 * (larger as f64 / sum as f64)).round() as u64 }
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
