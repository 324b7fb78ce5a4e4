//! The report of `--noise`: as a table, and for programs.

use std::io::{self, Write};

use nprof_report::layout::wrapped;
use nprof_report::machine_formats::Line;
use nprof_stream::escape::escaped;
use serde_json::{Value, json};

use crate::compare::noise::{MetricNoise, NoiseLevel};
use crate::input::event::{AmountUnit, ComparedEvent};
use crate::print::heading;
use crate::print::report::NoiseReport;
use crate::print::text::{WIDTH, amount, confidence, percent, row_name};
use crate::print::values::{self, points, significant};

/// Prints the report for people.
pub(super) fn print_table(
    report: &NoiseReport<'_>,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    for line in heading_lines(report) {
        writeln!(out, "{line}")?;
    }
    writeln!(
        out,
        "\n{:14}{:>12} {:>14} {:>14} {:>16}",
        "", "mean", "deviation", "x sampling", "noise floor"
    )?;
    let unit = unit(report);
    let rows = report.sorted_rows();
    for row in rows.iter().take(report.row_limit) {
        writeln!(out, "  {}", row_name(report.keys, row.key, width, 2))?;
        // A leaf: one line instead of two equal ones.
        if row.self_ == row.total {
            print_metric("self, total", &row.self_, unit, out)?;
            continue;
        }
        // A row without self only calls others.
        if row.self_.samples > 0 {
            print_metric("self", &row.self_, unit, out)?;
        }
        print_metric("total", &row.total, unit, out)?;
    }
    match rows.len().saturating_sub(report.row_limit) {
        0 => Ok(()),
        hidden => writeln!(out, "{hidden} more with less noise (-n 0 prints all)"),
    }
}

fn heading_lines(report: &NoiseReport<'_>) -> Vec<String> {
    let calibration = report.calibration;
    let mut lines = heading::recordings(report.event, report.base, calibration.totals);
    lines.extend(heading::circumstances(report.event, report.base));
    let mut lines = heading::labelled(report.base.name, lines);
    lines.extend(heading::labelled("names", heading::unnamed(report.event, &[report.base])));
    for warning in report.warnings {
        lines.extend(wrapped(&format!("warning: {warning}"), WIDTH));
    }
    lines.push(String::new());
    let summary = format!(
        "{} of {} runs with {} others, {}; noise floor: at most {} % of the differences exceed it",
        plural(calibration.splits, "comparison"),
        calibration.halves[0],
        calibration.halves[1],
        plural(calibration.false_alarms, "false alarm"),
        100.0 * calibration.criteria.alpha,
    );
    lines.extend(wrapped(&summary, WIDTH));
    lines
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

fn print_metric(
    label: &str,
    noise: &MetricNoise,
    unit: Option<AmountUnit>,
    out: &mut impl Write,
) -> io::Result<()> {
    print_level(label, &noise.share, percent, unsigned_points, out)?;
    match (&noise.amount, unit) {
        (Some(level), Some(unit)) => {
            let text = |size| amount(unit, size);
            print_level("", level, text, text, out)
        }
        _ => Ok(()),
    }
}

/// Returns a difference of shares in points; noise has no sign.
fn unsigned_points(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}

fn print_level(
    label: &str,
    level: &NoiseLevel,
    value: impl Fn(f64) -> String,
    difference: impl Fn(f64) -> String,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        "    {label:<11}{:>11} {:>14} {:>14.2} {:>16}",
        value(level.mean),
        difference(level.deviation),
        level.dispersion,
        difference(level.floor),
    )
}

/// The columns of self, and again of total.
const NOISE: [&str; 9] = [
    "mean",
    "deviation",
    "dispersion",
    "floor",
    "mean_ns",
    "deviation_ns",
    "dispersion_ns",
    "floor_ns",
    "samples",
];

/// The columns of an amount.
const LEVEL: [&str; 4] = ["mean", "deviation", "dispersion", "floor"];

/// Returns the names of the columns, then one line per row.
pub(super) fn lines(report: &NoiseReport<'_>) -> impl Iterator<Item = Line> {
    values::lines(columns(report), rows(report))
}

fn unit(report: &NoiseReport<'_>) -> Option<AmountUnit> {
    report.event.and_then(ComparedEvent::amount_unit)
}

fn columns(report: &NoiseReport<'_>) -> Vec<String> {
    let mut columns: Vec<String> = ["name", "image"].map(str::to_owned).into();
    for metric in ["self", "total"] {
        columns.extend(NOISE.map(|name| format!("{metric}_{name}")));
    }
    // Other events do not have these.
    if let Some(unit) = unit(report).and_then(AmountUnit::column) {
        for metric in ["self", "total"] {
            columns.extend(LEVEL.map(|name| format!("{metric}_{name}_{unit}")));
        }
    }
    columns
}

/// Returns the cells of the rows; null if there is no value.
fn rows(report: &NoiseReport<'_>) -> impl Iterator<Item = Vec<Value>> {
    let rows = report.sorted_rows().into_iter().take(report.row_limit);
    rows.map(|row| {
        let image = escaped(&report.keys.get(row.key).image);
        let mut cells: Vec<Value> = vec![report.keys.name(row.key).into(), image.into()];
        let metrics = [&row.self_, &row.total];
        let other = unit(report).filter(|unit| unit.column().is_some());
        for metric in metrics {
            cells.extend(metric_cells(metric, metric.amount.as_ref().filter(|_| other.is_none())));
        }
        if let Some(unit) = other {
            cells.extend(metrics.into_iter().flat_map(|it| level_cells(unit, it.amount.as_ref())));
        }
        cells
    })
}

/// Returns the noise of an amount; nulls without one.
fn level_cells(unit: AmountUnit, level: Option<&NoiseLevel>) -> [Value; LEVEL.len()] {
    let Some(level) = level else { return [const { Value::Null }; LEVEL.len()] };
    [
        values::amount(unit, level.mean),
        values::amount(unit, level.deviation),
        significant(level.dispersion),
        values::amount(unit, level.floor),
    ]
}

fn metric_cells(noise: &MetricNoise, time: Option<&NoiseLevel>) -> [Value; NOISE.len()] {
    let share = &noise.share;
    let [mean_ns, deviation_ns, dispersion_ns, floor_ns] = level_cells(AmountUnit::Ns, time);
    [
        points(share.mean),
        points(share.deviation),
        significant(share.dispersion),
        points(share.floor),
        mean_ns,
        deviation_ns,
        dispersion_ns,
        floor_ns,
        noise.samples.into(),
    ]
}

/// Writes the report as one JSON object.
pub(super) fn json(report: &NoiseReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let calibration = report.calibration;
    let members = json!({
        "confidence": confidence(calibration.criteria.alpha),
        "halves": calibration.halves,
        "splits": calibration.splits,
        "false_alarms": calibration.false_alarms,
        "warnings": report.warnings,
        "base": values::side(report.base, calibration.totals),
    });
    let name = "nprof-diff --noise";
    values::json(name, report.row_kind, report.event, members, &columns(report), rows(report), out)
}
