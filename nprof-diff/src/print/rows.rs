//! The report for programs: every row, in tsv, csv or JSON, with the same columns in all three.
//! Columns are only ever added.

use std::io::{self, Write};

use nprof_report::machine_formats::Line;
use nprof_stream::escape::escaped;
use serde_json::{Value, json};

use crate::compare::comparison::Method;
use crate::compare::fail_on;
use crate::compare::row::{Change, Metric, Row};
use crate::print::report::DiffReport;
use crate::print::text::confidence;
use crate::print::values::{self, points, significant};
use crate::stats::Estimate;

/// Returns the names of the columns, then one line per row.
pub(super) fn lines(report: &DiffReport<'_>) -> impl Iterator<Item = Line> {
    values::lines(columns(), rows(report))
}

fn rows(report: &DiffReport<'_>) -> impl Iterator<Item = Vec<Value>> {
    let rows = report.sorted_rows().into_iter().take(report.row_limit);
    rows.map(|row| cells(report, row))
}

/// Writes the report as one JSON object.
pub(super) fn json(report: &DiffReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let diff = report.diff;
    let members = json!({
        "method": match diff.method {
            Method::Welch => "welch",
            Method::Newcombe => "newcombe",
        },
        "confidence": confidence(diff.criteria.alpha),
        "comparisons": diff.comparisons,
        "result": fail_on::result(report.diff, report.bounds).word(),
        "failures": failures(report),
        "missing": fail_on::missing(report.diff, report.bounds),
        "more_runs": more_runs(report),
        "warnings": report.warnings,
        "base": values::side(report.base, diff.base),
        "new": values::side(report.new, diff.new),
        "run_time": diff.run_time_ns.as_ref().map(run_time),
        "common_part": significant(diff.common_part),
        "has_trend": diff.has_trend,
        "rename_candidates": rename_candidates(report),
        "moved_directories": moved_directories(report),
    });
    let rows = rows(report);
    values::json("nprof-diff", report.row_kind, report.event, members, &columns(), rows, out)
}

fn run_time(time: &Estimate) -> Value {
    json!({
        "base_ns": time.base.round(),
        "new_ns": time.new.round(),
        "diff_ns": time.difference().round(),
        "low_ns": time.low.round(),
        "high_ns": time.high.round(),
        "p": significant(time.p),
    })
}

fn failures(report: &DiffReport<'_>) -> Vec<Value> {
    let mut failures = Vec::new();
    for bound in report.bounds {
        for row in bound.exceeding_rows(report.diff) {
            failures.push(json!({
                "bound": bound.to_string(),
                "name": report.keys.name(row.key),
                "image": escaped(&report.keys.get(row.key).image),
            }));
        }
    }
    failures
}

/// Returns the number of additional runs per side that would decide all bounds. None if no runs or
/// too many are needed.
fn more_runs(report: &DiffReport<'_>) -> Option<usize> {
    let mut max = None;
    for bound in report.bounds {
        if bound.open_rows(report.diff).next().is_some() {
            // One bound that needs too many runs leaves the whole undecided.
            max = max.max(Some(bound.more_runs(report.diff)?));
        }
    }
    max
}

fn rename_candidates(report: &DiffReport<'_>) -> Vec<Value> {
    let candidates = report.rename_candidates.iter();
    candidates
        .map(|pair| {
            json!({
                "old": report.keys.name(pair.old.key),
                "new": report.keys.name(pair.new.key),
                "image": escaped(&report.keys.get(pair.old.key).image),
            })
        })
        .collect()
}

fn moved_directories(report: &DiffReport<'_>) -> Vec<Value> {
    let moves = report.moved_directories.iter();
    moves
        .map(|moved| {
            json!({
                "base": escaped(&moved.base),
                "new": escaped(&moved.new),
                "files": moved.files,
            })
        })
        .collect()
}

/// The columns of change and name.
const NAMES: [&str; 4] = ["change", "changed", "name", "image"];

/// The columns of the differences, for self and again for total: shares in per cent, differences
/// in points, CPU time per run.
const EFFECT: [&str; 12] = [
    "base",
    "new",
    "diff",
    "low",
    "high",
    "base_ns",
    "new_ns",
    "diff_ns",
    "low_ns",
    "high_ns",
    "base_samples",
    "new_samples",
];

/// The columns of the p- and q-values, for self and again for total: of the share, then of CPU
/// time.
const EVIDENCE: [&str; 6] = ["run_p", "p", "q", "ns_run_p", "ns_p", "ns_q"];

/// The columns of the corrected part of a run, which decides, for self and again for total.
const CORRECTED: [&str; 6] = [
    "corrected_diff",
    "corrected_low",
    "corrected_high",
    "corrected_run_p",
    "corrected_p",
    "corrected_q",
];

fn columns() -> Vec<String> {
    let mut columns: Vec<String> = NAMES.map(str::to_owned).into();
    // The order is fixed, since columns are only ever added at the end.
    for names in [&EFFECT[..], &EVIDENCE[..], &CORRECTED[..]] {
        for metric in ["self", "total"] {
            columns.extend(names.iter().map(|name| format!("{metric}_{name}")));
        }
    }
    columns
}

/// Returns the cells of a row; null if there is no value.
fn cells(report: &DiffReport<'_>, row: &Row) -> Vec<Value> {
    let changed = match (row.self_.changed, row.total.changed) {
        (true, true) => "both",
        (true, false) => "self",
        (false, true) => "total",
        (false, false) => "none",
    };
    let names: [Value; NAMES.len()] = [
        row.change().word().into(),
        changed.into(),
        report.keys.name(row.key).into(),
        escaped(&report.keys.get(row.key).image).into(),
    ];
    let mut cells: Vec<Value> = names.into();
    cells.extend(effect(&row.self_));
    cells.extend(effect(&row.total));
    cells.extend(evidence(&row.self_));
    cells.extend(evidence(&row.total));
    cells.extend(corrected(&row.self_.corrected));
    cells.extend(corrected(&row.total.corrected));
    cells
}

fn effect(metric: &Metric) -> [Value; EFFECT.len()] {
    let share = &metric.share.estimate;
    let [base_ns, new_ns, diff_ns, low_ns, high_ns] = times(metric.time_ns.as_ref());
    [
        points(share.base),
        points(share.new),
        points(share.difference()),
        points(share.low),
        points(share.high),
        base_ns,
        new_ns,
        diff_ns,
        low_ns,
        high_ns,
        metric.base.samples.into(),
        metric.new.samples.into(),
    ]
}

/// Returns base, new, difference and interval of the CPU time; nulls if it was not measured.
fn times(change: Option<&Change>) -> [Value; 5] {
    let Some(change) = change else { return [const { Value::Null }; 5] };
    let time = &change.estimate;
    // Fractions of a nanosecond are noise.
    [time.base, time.new, time.difference(), time.low, time.high].map(|ns| json!(ns.round() as i64))
}

fn evidence(metric: &Metric) -> [Value; EVIDENCE.len()] {
    let [run_p, p, q] = p_values(Some(&metric.share));
    let [ns_run_p, ns_p, ns_q] = p_values(metric.time_ns.as_ref());
    [run_p, p, q, ns_run_p, ns_p, ns_q]
}

fn corrected(change: &Change) -> [Value; CORRECTED.len()] {
    let [run_p, p, q] = p_values(Some(change));
    let part = &change.estimate;
    [points(part.difference()), points(part.low), points(part.high), run_p, p, q]
}

/// Returns p by the row's own runs, moderated p, and q; nulls without a change.
fn p_values(change: Option<&Change>) -> [Value; 3] {
    match change {
        Some(change) => [change.estimate.p, change.p, change.q].map(significant),
        None => [const { Value::Null }; 3],
    }
}
