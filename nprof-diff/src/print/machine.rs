//! The report for programs: every row, in tsv, csv or JSON. The three have the same columns, and
//! columns are only ever added.

use std::io;

use nprof_report::machine::Lines;
use nprof_stream::escape::escaped;
use serde_json::{Value, json};

use crate::compare::comparison::Method;
use crate::compare::fail_on::{self, Bound};
use crate::compare::rename_candidates::RenameCandidate;
use crate::compare::row::{Metric, Row};
use crate::input::event::ComparedEvent;
use crate::print::cells::{self, points, significant};
use crate::print::report::DiffReport;
use crate::print::text::confidence;
use crate::stats::Estimate;

/// A line of column names, then a row a line.
pub(super) fn lines(report: &DiffReport<'_>) -> Lines {
    cells::lines(columns(), rows(report))
}

fn rows(report: &DiffReport<'_>) -> Vec<Vec<Value>> {
    report.sorted().into_iter().take(report.row_limit).map(|row| cells(report, row)).collect()
}

/// One object.
pub(super) fn json(report: &DiffReport<'_>) -> io::Result<Vec<u8>> {
    let diff = report.diff;
    let time = diff.time.map(|time| {
        json!({
            "base_ns": time.base.round(),
            "new_ns": time.new.round(),
            "diff_ns": time.difference().round(),
            "low_ns": time.low.round(),
            "high_ns": time.high.round(),
            "p": significant(time.p),
        })
    });
    let object = json!({
        "report": "nprof-diff",
        "version": env!("CARGO_PKG_VERSION"),
        "by": report.by.name(),
        "event": report.event.map(ComparedEvent::name),
        "unit": report.event.map(ComparedEvent::unit),
        "method": match diff.method {
            Method::Welch => "welch",
            Method::Newcombe => "newcombe",
        },
        "confidence": confidence(diff.criteria.alpha),
        "comparisons": diff.comparisons,
        "verdict": fail_on::verdict(report.diff, report.bounds).word(),
        "failures": failures(report),
        "missing": fail_on::missing(report.diff, report.bounds),
        "more_runs": more_runs(report),
        "warnings": report.warnings,
        "base": cells::side(report.base, diff.base),
        "new": cells::side(report.new, diff.new),
        "run_time": time,
        "rest": significant(diff.median_ratio),
        "renamed": renamed(report),
    });
    cells::json(&object, &columns(), rows(report))
}

fn failures(report: &DiffReport<'_>) -> Vec<Value> {
    let of_bound = |bound: &Bound| {
        let text = bound.to_string();
        let rows = bound.exceeding_rows(report.diff).map(move |row| {
            json!({
                "bound": text,
                "name": report.keys.name(row.key),
                "image": escaped(&report.keys.get(row.key).image),
            })
        });
        rows.collect::<Vec<_>>()
    };
    report.bounds.iter().flat_map(of_bound).collect()
}

/// How many more runs a side would decide on all bounds; null where none are needed, or too many.
fn more_runs(report: &DiffReport<'_>) -> Option<usize> {
    let open_rows =
        report.bounds.iter().filter(|bound| bound.open_rows(report.diff).next().is_some());
    let needs = open_rows.map(|bound| bound.more_runs(report.diff));
    needs.reduce(|one, other| Some(one?.max(other?))).flatten()
}

fn renamed(report: &DiffReport<'_>) -> Vec<Value> {
    let pair = |pair: &RenameCandidate<'_>| {
        json!({
            "old": report.keys.name(pair.old.key),
            "new": report.keys.name(pair.new.key),
            "image": escaped(&report.keys.get(pair.old.key).image),
        })
    };
    report.rename_candidates.iter().map(pair).collect()
}

/// The columns that say what a row is.
const NAMES: [&str; 4] = ["verdict", "changed", "name", "image"];

/// The columns of self, and again of total: shares in per cent, differences in points, CPU time
/// per run.
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

/// The columns of self, and again of total, that come last: of the share, then of CPU time.
const EVIDENCE: [&str; 6] = ["run_p", "p", "q", "ns_run_p", "ns_p", "ns_q"];

fn columns() -> Vec<String> {
    let of_both = |names: &[&str]| {
        let of = |metric: &str| names.iter().map(|name| format!("{metric}_{name}")).collect();
        let [own, total]: [Vec<String>; 2] = ["self", "total"].map(of);
        [own, total].concat()
    };
    let mut columns: Vec<String> = NAMES.map(str::to_owned).into();
    columns.extend(of_both(&EFFECT));
    columns.extend(of_both(&EVIDENCE));
    columns
}

/// What a row has in each column; null where there is nothing.
fn cells(report: &DiffReport<'_>, row: &Row) -> Vec<Value> {
    let changed = match (row.own.changed, row.total.changed) {
        (true, true) => "both",
        (true, false) => "self",
        (false, true) => "total",
        (false, false) => "none",
    };
    let names: [Value; NAMES.len()] = [
        row.verdict().word().into(),
        changed.into(),
        report.keys.name(row.key).into(),
        escaped(&report.keys.get(row.key).image).into(),
    ];
    let mut cells: Vec<Value> = names.into();
    cells.extend(effect(&row.own));
    cells.extend(effect(&row.total));
    cells.extend(evidence(&row.own));
    cells.extend(evidence(&row.total));
    cells
}

fn effect(metric: &Metric) -> [Value; EFFECT.len()] {
    let share = &metric.share.estimate;
    let time = metric.time.map(|time| time.estimate);
    let ns = |value: fn(&Estimate) -> f64| match &time {
        Some(time) => json!(value(time).round() as i64),
        None => Value::Null,
    };
    [
        points(share.base),
        points(share.new),
        points(share.difference()),
        points(share.low),
        points(share.high),
        ns(|time| time.base),
        ns(|time| time.new),
        ns(Estimate::difference),
        ns(|time| time.low),
        ns(|time| time.high),
        metric.base_samples.into(),
        metric.new_samples.into(),
    ]
}

fn evidence(metric: &Metric) -> [Value; EVIDENCE.len()] {
    let time = |value: Option<f64>| value.map_or(Value::Null, significant);
    [
        significant(metric.share.estimate.p),
        significant(metric.share.p),
        significant(metric.share.q),
        time(metric.time.map(|time| time.estimate.p)),
        time(metric.time.map(|time| time.p)),
        time(metric.time.map(|time| time.q)),
    ]
}
