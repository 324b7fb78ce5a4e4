//! Call paths with what both sides spent on them: folded stacks with two counts, as difffolded.pl
//! and inferno-diff-folded write them, and the differential flame graph made of them.
//!
//! The sides are brought to one base: the counts of the one with fewer samples are scaled up, so
//! that both columns have the same sum.

use std::io::{self, Write};

use inferno::flamegraph::{self, Options};
use nprof_report::folded::{drawable, guarded};

use crate::compare::diff::Diff;
use crate::compare::row::Row;
use crate::input::key::KeyTable;
use crate::print::report::DiffReport;

/// The lines, sorted.
pub(super) fn lines(diff: &Diff, keys: &KeyTable) -> String {
    let sums = [diff.base.sum.samples, diff.new.sum.samples];
    let larger = sums[0].max(sums[1]);
    let scaled = |samples: u64, sum: u64| match sum {
        0 => 0,
        sum => (samples as f64 * (larger as f64 / sum as f64)).round() as u64,
    };
    let line = |row: &Row| {
        let base = scaled(row.own.base_samples, sums[0]);
        let new = scaled(row.own.new_samples, sums[1]);
        (row.own.samples() > 0).then(|| format!("{} {base} {new}\n", stack(keys, row)))
    };
    let mut lines: Vec<String> = diff.rows.iter().filter_map(line).collect();
    lines.sort();
    lines.concat()
}

fn stack(keys: &KeyTable, row: &Row) -> String {
    guarded(match keys.get(row.key).caller {
        Some(_) => keys.name(row.key),
        None => keys.part(row.key),
    })
}

/// Draws what has grown in red and what has shrunk in blue; the widths are those of the new side.
pub(super) fn draw(report: &DiffReport<'_>, out: &mut impl Write) -> io::Result<()> {
    let mut options = Options::default();
    options.title = "nprof: base and new".to_owned();
    options.subtitle = Some("red has grown, blue has shrunk, beside all samples".to_owned());
    options.count_name = "samples".to_owned();
    options.name_type = "Function:".to_owned();
    options.deterministic = true;
    let lines = drawable(&lines(report.diff, report.keys));
    match flamegraph::from_lines(&mut options, lines.lines(), &mut *out) {
        // A picture that says that there are no samples has been drawn.
        Err(_) if report.diff.new.sum.samples == 0 => Ok(()),
        result => result,
    }
}
