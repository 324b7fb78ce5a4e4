//! The report for programs: every row, in tsv, csv or JSON, with the same columns in all three.
//! Columns are only ever added.

use std::io::{self, Write};

use nprof_report::machine_formats::Line;
use nprof_stream::escape::escaped;
use serde_json::{Value, json};

use crate::compare::comparison::Method;
use crate::compare::fail_on;
use crate::compare::row::{Change, Metric, Row};
use crate::input::event::{AmountUnit, ComparedEvent};
use crate::print::report::DiffReport;
use crate::print::text::confidence;
use crate::print::values::{self, points, significant};
use crate::stats::Estimate;

/// Returns the names of the columns, then one line per row.
pub(super) fn lines(report: &DiffReport<'_>) -> impl Iterator<Item = Line> {
    values::lines(columns(report), rows(report))
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
        "run_time": run_amount(report, AmountUnit::Ns).map(run_time),
        "common_part": significant(diff.common_part),
        "rename_candidates": rename_candidates(report),
        "moved_directories": moved_directories(report),
    });
    let mut members = members;
    if let Some(per) = report.per {
        members["per"] = per.name().into();
        members["undivided"] = report.diff.undivided.into();
    }
    if let Some(unit) = unit(report)
        && let Some(column) = unit.column()
    {
        let amount = run_amount(report, unit).map(|amount| run_amount_in(unit, amount));
        members[format!("run_{column}")] = amount.into();
    }
    let (rows, columns) = (rows(report), columns(report));
    values::json("nprof-diff", report.row_kind, report.event, members, &columns, rows, out)
}

fn unit(report: &DiffReport<'_>) -> Option<AmountUnit> {
    report.event.and_then(ComparedEvent::amount_unit)
}

/// Returns the amount of a whole run, if it has this unit.
fn run_amount<'a>(report: &DiffReport<'a>, of: AmountUnit) -> Option<&'a Estimate> {
    report.diff.run_amount.as_ref().filter(|_| unit(report) == Some(of))
}

fn run_amount_in(unit: AmountUnit, amount: &Estimate) -> Value {
    json!({
        "base": values::amount(unit, amount.base),
        "new": values::amount(unit, amount.new),
        "diff": values::amount(unit, amount.difference()),
        "low": values::amount(unit, amount.low),
        "high": values::amount(unit, amount.high),
        "p": significant(amount.p),
    })
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
        for row in report.rows_beyond(bound) {
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

/// Returns the columns of an event in bytes or counts, for self and again for total; `unit` is their word for it.
/// Other events do not have them.
fn amount_columns(unit: &str) -> Vec<String> {
    let amounts = ["base", "new", "diff", "low", "high"].map(|name| format!("{name}_{unit}"));
    let evidence = ["run_p", "p", "q"].map(|name| format!("{unit}_{name}"));
    amounts.into_iter().chain(evidence).collect()
}

/// The columns of ratios, for self and again for total: only with `--per`.
const RATIOS: [&str; 5] = ["base_ratio", "new_ratio", "diff_ratio", "low_ratio", "high_ratio"];

/// The columns of blocks of memory, for self and again for total: only of an event in bytes.
const BLOCKS: [&str; 2] = ["base_blocks", "new_blocks"];

fn has_blocks(report: &DiffReport<'_>) -> bool {
    unit(report) == Some(AmountUnit::Bytes)
}

fn columns(report: &DiffReport<'_>) -> Vec<String> {
    let mut columns: Vec<String> = NAMES.map(str::to_owned).into();
    // The order is fixed, since columns are only ever added at the end.
    let amounts = unit(report).and_then(AmountUnit::column).map(amount_columns).unwrap_or_default();
    let amounts: Vec<&str> = amounts.iter().map(String::as_str).collect();
    let ratios = if report.per.is_some() { &RATIOS[..] } else { &[] };
    let blocks = if has_blocks(report) { &BLOCKS[..] } else { &[] };
    for names in [&EFFECT[..], &EVIDENCE[..], &CORRECTED[..], &amounts, ratios, blocks] {
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
    let unit = unit(report);
    let metrics = [&row.self_, &row.total];
    let times = metrics.map(|metric| metric.amount.filter(|_| unit == Some(AmountUnit::Ns)));
    for (metric, time) in metrics.iter().zip(&times) {
        cells.extend(effect(metric, time.as_ref()));
    }
    for (metric, time) in metrics.iter().zip(&times) {
        cells.extend(evidence(metric, time.as_ref()));
    }
    cells.extend(corrected(&row.self_.corrected));
    cells.extend(corrected(&row.total.corrected));
    if let Some(unit) = unit.filter(|unit| unit.column().is_some()) {
        for metric in metrics {
            cells.extend(amounts(unit, metric.amount.as_ref()));
            cells.extend(p_values(metric.amount.as_ref()));
        }
    }
    if report.per.is_some() {
        cells.extend(metrics.into_iter().flat_map(ratios));
    }
    if has_blocks(report) {
        cells.extend(metrics.into_iter().flat_map(blocks));
    }
    cells
}

/// Returns base, new, difference and interval of a ratio; nulls if there is nothing to divide by.
fn ratios(metric: &Metric) -> [Value; RATIOS.len()] {
    let Some(whole) = metric.whole_ratio else { return [const { Value::Null }; 5] };
    let Estimate { base, new, low, high, .. } = metric.share.estimate;
    let difference = metric.share.estimate.difference();
    [base, new, difference, low, high].map(|share| significant(share * whole))
}

/// Returns the blocks of both sides; nulls if their bytes are not compared.
fn blocks(metric: &Metric) -> [Value; BLOCKS.len()] {
    let Some(blocks) = metric.blocks else { return [const { Value::Null }; 2] };
    blocks.map(|number| values::amount(AmountUnit::Count, number))
}

fn effect(metric: &Metric, time: Option<&Change>) -> [Value; EFFECT.len()] {
    let share = &metric.share.estimate;
    let [base_ns, new_ns, diff_ns, low_ns, high_ns] = amounts(AmountUnit::Ns, time);
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

/// Returns base, new, difference and interval of an amount; nulls if it was not measured.
fn amounts(unit: AmountUnit, change: Option<&Change>) -> [Value; 5] {
    let Some(change) = change else { return [const { Value::Null }; 5] };
    let Estimate { base, new, low, high, .. } = change.estimate;
    let difference = change.estimate.difference();
    [base, new, difference, low, high].map(|amount| values::amount(unit, amount))
}

fn evidence(metric: &Metric, time: Option<&Change>) -> [Value; EVIDENCE.len()] {
    let [run_p, p, q] = p_values(Some(&metric.share));
    let [ns_run_p, ns_p, ns_q] = p_values(time);
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
