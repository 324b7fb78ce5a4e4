//! The report for people: what changed, in 80 columns.
//!
//! A row takes a line for its name and some for its numbers, because names of functions are long
//! and no column of a table holds them.

use std::io::{self, Write};

use nprof_report::layout::wrapped;
use rustc_hash::FxHashSet;

use crate::compare::effect_size::EffectSize;
use crate::compare::fail_on::Bound;
use crate::compare::row::{Change, MIN_SAMPLES_TO_COMPARE, Metric, Row, RowVerdict};
use crate::input::key::KeyId;
use crate::print::heading;
use crate::print::report::DiffReport;
use crate::print::text::{
    WIDTH, confidence, percent, points, q, row_name, seconds, signed_seconds,
};

/// Prints the report.
pub(super) fn print(report: &DiffReport<'_>, out: &mut impl Write) -> io::Result<()> {
    for line in heading::lines(report) {
        writeln!(out, "{line}")?;
    }
    let rows = report.sorted();
    let changed = changed(report, &rows);
    print_changed(report, &changed, out)?;
    print_pairs(report, out)?;
    writeln!(out)?;
    for line in wrapped(&unchanged(report, &rows, changed.len()), WIDTH) {
        writeln!(out, "{line}")?;
    }
    let is_displaced = |row: &&Row| row.verdict() == RowVerdict::Displaced;
    let all = rows.iter().copied().filter(is_displaced).count();
    let displaced = all - changed.iter().map(|&(_, row)| row).filter(is_displaced).count();
    if displaced > 0 {
        let are = if displaced == 1 { "is" } else { "are" };
        let line = format!(
            "{displaced} of them {are} displaced: the share changed, but only as that of most did, to {:.3} of what it was, since others take more or less",
            report.diff.median_ratio
        );
        for line in wrapped(&line, WIDTH) {
            writeln!(out, "{line}")?;
        }
    }
    print_broken(report, out)
}

/// What is beyond a bound in time, though its share did not change.
const SLOWER_IN_TIME: &str = "grown in time only, beyond a bound";

/// What changed or is beyond a bound, by what became of it.
fn changed<'a>(report: &DiffReport<'_>, rows: &[&'a Row]) -> Vec<(&'static str, &'a Row)> {
    let exceeding_rows = report.bounds.iter().flat_map(|bound| bound.exceeding_rows(report.diff));
    let exceeding_rows: FxHashSet<KeyId> = exceeding_rows.map(|row| row.key).collect();
    let what = |row: &&'a Row| match row.verdict() {
        verdict if verdict.is_change() => Some((verdict.word(), *row)),
        _ => exceeding_rows.contains(&row.key).then_some((SLOWER_IN_TIME, *row)),
    };
    rows.iter().filter_map(what).collect()
}

fn print_changed(
    report: &DiffReport<'_>,
    changed: &[(&'static str, &Row)],
    out: &mut impl Write,
) -> io::Result<()> {
    if changed.is_empty() {
        return Ok(());
    }
    let interval = format!("{} % interval", confidence(report.diff.criteria.alpha));
    writeln!(
        out,
        "\n{:14}{:>10} {:>10} {:>10} {interval:>23} {:>8}",
        "", "base", "new", "change", "q"
    )?;
    // The largest changes of all kinds are printed, then put in order; what failed a bound is no
    // smaller for its share.
    let some = |beyond| {
        let of_kind = move |(what, _): &&(&str, &Row)| (*what == SLOWER_IN_TIME) == beyond;
        changed.iter().filter(of_kind).take(report.row_limit)
    };
    let printed: Vec<_> = some(false).chain(some(true)).collect();
    for what in RowVerdict::CHANGES.map(RowVerdict::word).into_iter().chain([SLOWER_IN_TIME]) {
        let count = changed.iter().filter(|(other, _)| *other == what).count();
        if count > 0 {
            writeln!(out, "{what} ({count})")?;
        }
        for (_, row) in printed.iter().filter(|(other, _)| *other == what) {
            print_row(report, row, out)?;
        }
    }
    match changed.len() - printed.len() {
        0 => Ok(()),
        hidden => writeln!(out, "{hidden} more changed, by less (-n 0 prints all)"),
    }
}

/// What may have been renamed, as lines for `--rename`.
fn print_pairs(report: &DiffReport<'_>, out: &mut impl Write) -> io::Result<()> {
    if report.rename_candidates.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nrenamed? of the same image and about the same share (--rename FILE joins them):"
    )?;
    for pair in report.rename_candidates.iter().take(report.row_limit) {
        let (old, new) = (name(report, pair.old, 2), name(report, pair.new, 4));
        writeln!(out, "  {old}\n    {new}")?;
        let (old, new) = (&pair.old.total.share.estimate, &pair.new.total.share.estimate);
        writeln!(out, "      total {}, now {}", percent(old.base), percent(new.new))?;
    }
    let hidden = report.rename_candidates.len().saturating_sub(report.row_limit);
    if hidden > 0 {
        writeln!(out, "  {hidden} more pairs (-n 0 prints all)")?;
    }
    Ok(())
}

/// What the table leaves out, where so many rows changed.
fn unchanged(report: &DiffReport<'_>, rows: &[&Row], changed: usize) -> String {
    let same = rows.len() - changed;
    let rare = rows.iter().filter(|row| !row.total.is_compared()).count();
    let plural = if same == 1 { "" } else { "s" };
    let mut line = format!("{same} {}{plural} without significant change", report.by.name());
    if report.diff.criteria.min_effect.is_some() {
        line.push_str(" of this size");
    }
    if rare > 0 {
        line.push_str(&format!(
            "; {rare} of them too rare to compare (below {MIN_SAMPLES_TO_COMPARE} samples)"
        ));
    }
    line
}

fn name(report: &DiffReport<'_>, row: &Row, indent: usize) -> String {
    row_name(report.keys, row.key, report.width, indent)
}

fn print_row(report: &DiffReport<'_>, row: &Row, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "  {}", name(report, row, 2))?;
    if row.own.share == row.total.share && row.own.time == row.total.time {
        return print_metric("self, total", &row.own, out);
    }
    if row.own.samples() > 0 {
        print_metric("self", &row.own, out)?;
    }
    print_metric("total", &row.total, out)
}

fn print_metric(label: &str, metric: &Metric, out: &mut impl Write) -> io::Result<()> {
    print_change(label, &metric.share, percent, points, out)?;
    match &metric.time {
        Some(time) => print_change("", time, seconds, signed_seconds, out),
        None => Ok(()),
    }
}

fn print_change(
    label: &str,
    change: &Change,
    value: fn(f64) -> String,
    difference: fn(f64) -> String,
    out: &mut impl Write,
) -> io::Result<()> {
    let estimate = &change.estimate;
    let interval = format!("{} .. {}", difference(estimate.low), difference(estimate.high));
    writeln!(
        out,
        "    {label:<11}{:>9} {:>10} {:>10} {interval:>23} {:>8}",
        value(estimate.base),
        value(estimate.new),
        difference(estimate.difference()),
        q(change.q),
    )
}

/// The rows that are beyond the bounds of `--fail-on`.
fn print_broken(report: &DiffReport<'_>, out: &mut impl Write) -> io::Result<()> {
    for bound in report.bounds {
        let exceeding_rows: Vec<&Row> = bound.exceeding_rows(report.diff).collect();
        let mut lines: Vec<String> = exceeding_rows
            .iter()
            .map(|row| format!("{}{}", name(report, row, 40), near_end(bound, row)))
            .collect();
        lines.sort();
        for line in lines.iter().take(report.row_limit) {
            writeln!(out, "beyond {bound}: {line}")?;
        }
        if lines.len() > report.row_limit {
            writeln!(out, "beyond {bound}: {} more", lines.len() - report.row_limit)?;
        }
    }
    Ok(())
}

/// How far at least a row has grown.
fn near_end(bound: &Bound, row: &Row) -> String {
    match bound.growth(row) {
        Some(EffectSize::Share(low)) => format!(": at least {}", points(low)),
        Some(EffectSize::Time(low)) => format!(": at least {}", signed_seconds(low)),
        None => String::new(),
    }
}
