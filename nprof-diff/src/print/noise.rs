//! The noise of one side: as a table, and for programs.

use std::io::{self, Write};

use nprof_report::layout::wrapped;
use nprof_report::machine::Lines;
use nprof_stream::escape::escaped;
use serde_json::{Value, json};

use crate::compare::noise::{MetricNoise, NoiseLevel, RowNoise};
use crate::input::event::ComparedEvent;
use crate::print::cells::{self, points, significant};
use crate::print::heading;
use crate::print::report::NoiseReport;
use crate::print::text::{WIDTH, confidence, percent, row_name, seconds};

/// Prints the report for people.
pub(super) fn print_table(report: &NoiseReport<'_>, out: &mut impl Write) -> io::Result<()> {
    let calibration = report.calibration;
    let mut lines = heading::side(report.event, report.base, calibration.whole);
    lines.extend(heading::circumstances(report.event, report.base));
    let mut lines = heading::labelled(report.base.name, lines);
    let warnings = report.warnings.iter().map(|warning| format!("warning: {warning}"));
    lines.extend(warnings.flat_map(|warning| wrapped(&warning, WIDTH)));
    lines.push(String::new());
    let level = 100.0 * calibration.criteria.alpha;
    let about = format!(
        "{} of {} runs with {} others: {} raised a false alarm; noise floor: exceeded by {level} % of the differences at most",
        plural(calibration.splits, "comparison"),
        calibration.halves[0],
        calibration.halves[1],
        calibration.false_alarms,
    );
    lines.extend(wrapped(&about, WIDTH));
    for line in lines {
        writeln!(out, "{line}")?;
    }
    writeln!(
        out,
        "\n{:14}{:>12} {:>14} {:>14} {:>16}",
        "", "mean", "deviation", "x sampling", "noise floor"
    )?;
    let rows = sorted(report);
    for row in rows.iter().take(report.row_limit) {
        writeln!(out, "  {}", row_name(report.keys, row.key, report.width, 2))?;
        if row.own == row.total {
            print_noise("self, total", &row.own, out)?;
            continue;
        }
        if row.own.samples > 0 {
            print_noise("self", &row.own, out)?;
        }
        print_noise("total", &row.total, out)?;
    }
    match rows.len().saturating_sub(report.row_limit) {
        0 => Ok(()),
        hidden => writeln!(out, "{hidden} more with less noise (-n 0 prints all)"),
    }
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

fn print_noise(label: &str, noise: &MetricNoise, out: &mut impl Write) -> io::Result<()> {
    let points = |share: f64| format!("{:.2}", 100.0 * share);
    print_level(label, &noise.share, percent, points, out)?;
    match &noise.time {
        Some(time) => print_level("", time, seconds, seconds, out),
        None => Ok(()),
    }
}

fn print_level(
    label: &str,
    level: &NoiseLevel,
    value: fn(f64) -> String,
    difference: fn(f64) -> String,
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

/// The rows with the highest floor first.
fn sorted<'a>(report: &NoiseReport<'a>) -> Vec<&'a RowNoise> {
    let floor = |row: &RowNoise| row.own.share.floor.max(row.total.share.floor);
    let ranks = report.keys.ranks();
    let rank = |row: &RowNoise| ranks[row.key.index()];
    let mut rows: Vec<&RowNoise> = report.calibration.rows.iter().collect();
    rows.sort_by(|a, b| floor(b).total_cmp(&floor(a)).then_with(|| rank(a).cmp(&rank(b))));
    rows
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

/// A line of column names, then a row a line.
pub(super) fn lines(report: &NoiseReport<'_>) -> Lines {
    cells::lines(columns(), rows(report))
}

/// The names of the columns.
fn columns() -> Vec<String> {
    let of = |metric: &'static str| NOISE.iter().map(move |name| format!("{metric}_{name}"));
    let names = ["name", "image"].map(str::to_owned);
    names.into_iter().chain(of("self")).chain(of("total")).collect()
}

/// What the rows have in each column; null where there is nothing.
fn rows(report: &NoiseReport<'_>) -> Vec<Vec<Value>> {
    let row = |row: &RowNoise| {
        let image = escaped(&report.keys.get(row.key).image);
        let mut cells: Vec<Value> = vec![report.keys.name(row.key).into(), image.into()];
        cells.extend(noise(&row.own));
        cells.extend(noise(&row.total));
        cells
    };
    sorted(report).into_iter().take(report.row_limit).map(row).collect()
}

fn noise(noise: &MetricNoise) -> [Value; NOISE.len()] {
    let share = &noise.share;
    let time = |value: fn(&NoiseLevel) -> Value| noise.time.as_ref().map_or(Value::Null, value);
    [
        points(share.mean),
        points(share.deviation),
        significant(share.dispersion),
        points(share.floor),
        time(|time| json!(time.mean.round())),
        time(|time| json!(time.deviation.round())),
        time(|time| significant(time.dispersion)),
        time(|time| json!(time.floor.round())),
        noise.samples.into(),
    ]
}

/// One object.
pub(super) fn json(report: &NoiseReport<'_>) -> io::Result<Vec<u8>> {
    let noise = report.calibration;
    let object = json!({
        "report": "nprof-diff --noise",
        "version": env!("CARGO_PKG_VERSION"),
        "by": report.by.name(),
        "event": report.event.map(ComparedEvent::name),
        "unit": report.event.map(ComparedEvent::unit),
        "confidence": confidence(noise.criteria.alpha),
        "halves": noise.halves,
        "splits": noise.splits,
        "alarms": noise.false_alarms,
        "warnings": report.warnings,
        "base": cells::side(report.base, noise.whole),
    });
    cells::json(&object, &columns(), rows(report))
}
