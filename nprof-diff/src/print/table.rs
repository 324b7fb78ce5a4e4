//! The report for people: what changed, in 80 columns.
//!
//! A row takes a line for its name and one or two for its numbers, because names of functions
//! are long and no column of a table holds them.

use std::io::{self, Write};

use nprof_format::escape::escaped;

use crate::bound::{Bound, Growth};
use crate::diff::{Metric, RARE, Row, Verdict};
use crate::print::{Report, heading};

/// Prints the report.
pub(super) fn print(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    for line in heading::lines(report) {
        writeln!(out, "{line}")?;
    }
    let rows = report.sorted();
    let changed = rows.iter().filter(|row| row.verdict() != Verdict::Same).count();
    if changed > 0 {
        let interval = format!("{} interval", heading::level(report.diff.question.alpha));
        writeln!(
            out,
            "\n{:12}{:>9} {:>9} {:>8} {interval:>19} {:>9} {:>7}",
            "", "base", "new", "change", "CPU time", "q"
        )?;
    }
    let mut left = report.row_limit;
    for verdict in Verdict::CHANGES {
        let of_verdict = || rows.iter().filter(|row| row.verdict() == verdict);
        let count = of_verdict().count();
        if count > 0 {
            writeln!(out, "{} ({count})", verdict.word())?;
        }
        for row in of_verdict().take(left) {
            print_row(report, row, out)?;
        }
        left -= count.min(left);
    }
    if changed > report.row_limit {
        let hidden = changed - report.row_limit;
        writeln!(out, "{hidden} more changed (-n 0 prints all)")?;
    }
    writeln!(out, "\n{}", unchanged(report, &rows))?;
    print_broken(report, out)
}

/// What the table leaves out.
fn unchanged(report: &Report<'_>, rows: &[&Row]) -> String {
    let same = || rows.iter().filter(|row| row.verdict() == Verdict::Same);
    let rare = same().filter(|row| !row.total.is_compared()).count();
    let plural = if same().count() == 1 { "" } else { "s" };
    let mut line =
        format!("{} {}{plural} without significant change", same().count(), report.by.name());
    if rare > 0 {
        line.push_str(&format!("; {rare} of them too rare to compare (below {RARE} samples)"));
    }
    line
}

fn name(report: &Report<'_>, row: &Row) -> String {
    let key = report.keys.get(row.key);
    match &key.image[..] {
        b"" => escaped(&key.name),
        image => format!("{}  ({})", escaped(&key.name), escaped(image)),
    }
}

fn print_row(report: &Report<'_>, row: &Row, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "  {}", name(report, row))?;
    if row.own.share == row.total.share {
        return print_metric("self, total", &row.own, out);
    }
    if row.own.samples() > 0 {
        print_metric("self", &row.own, out)?;
    }
    print_metric("total", &row.total, out)
}

fn print_metric(label: &str, metric: &Metric, out: &mut impl Write) -> io::Result<()> {
    let estimate = &metric.share.estimate;
    let time = metric
        .time
        .map(|time| heading::signed_seconds(time.estimate.difference()))
        .unwrap_or_default();
    let interval = format!("{} .. {}", points(estimate.low), points(estimate.high));
    writeln!(
        out,
        "  {label:<11}{:>8} {:>9} {:>8} {interval:>19} {time:>9} {:>7}",
        percent(estimate.base),
        percent(estimate.new),
        points(estimate.difference()),
        q(metric.share.q),
    )
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// A difference of shares, in points.
fn points(share: f64) -> String {
    let text = format!("{:+.2}", 100.0 * share);
    if text == "-0.00" { "+0.00".to_owned() } else { text }
}

fn q(q: f64) -> String {
    if q < 0.0001 { "<0.0001".to_owned() } else { format!("{q:.4}") }
}

/// The rows that are beyond the bounds of `--fail-on`.
fn print_broken(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    for bound in report.bounds {
        let broken: Vec<&Row> = bound.broken(report.diff).collect();
        let mut lines: Vec<String> = broken
            .iter()
            .map(|row| format!("{}{}", name(report, row), near_end(bound, row)))
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
        Some(Growth::Share(low)) => format!(": at least {}", points(low)),
        Some(Growth::Time(low)) => format!(": at least {}", heading::signed_seconds(low)),
        None => String::new(),
    }
}
