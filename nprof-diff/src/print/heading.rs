//! What stands above a table: what was compared, and under which circumstances. Pure.

use std::collections::{BTreeMap, BTreeSet};

use nprof_report::layout::wrapped;
use nprof_report::summary::EventSummary;
use nprof_stream::escape::escaped;

use crate::compare::comparison::Method;
use crate::compare::observed::SideTotals;
use crate::input::event::ComparedEvent;
use crate::input::event::incomplete_stacks;
use crate::input::side::Side;
use crate::input::side::{facts, lost_samples};
use crate::print::report::DiffReport;
use crate::print::text::{WIDTH, confidence, seconds, signed_seconds};

/// The lines of the heading.
pub(super) fn lines(report: &DiffReport<'_>) -> Vec<String> {
    let mut lines = labelled(report.base.name, side(report.event, report.base, report.diff.base));
    lines.extend(labelled(report.new.name, side(report.event, report.new, report.diff.new)));
    let [base, new] = [report.base, report.new].map(|side| circumstances(report.event, side));
    if base == new {
        lines.extend(labelled("both", base));
    } else {
        lines.extend(labelled(report.base.name, base));
        lines.extend(labelled(report.new.name, new));
    }
    if report.event.is_some_and(ComparedEvent::measures_cpu_time) {
        lines.extend(wrapped(&cpu_time(report), WIDTH));
    }
    for warning in report.warnings {
        lines.extend(wrapped(&format!("warning: {warning}"), WIDTH));
    }
    lines.push(String::new());
    lines.extend(wrapped(&method(report), WIDTH));
    lines
}

/// Lines below each other, the label before the first; empty ones are left out.
pub(super) fn labelled(label: &str, mut lines: Vec<String>) -> Vec<String> {
    lines.retain(|line| !line.is_empty());
    let lines = lines.iter().flat_map(|line| wrapped(line, WIDTH - 6));
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    labels.zip(lines).map(|(label, line)| format!("{label:<5} {line}")).collect()
}

/// What was run, when, and how much was seen.
pub(super) fn side(event: Option<&ComparedEvent>, side: &Side, whole: SideTotals) -> Vec<String> {
    let runs = if whole.runs == 1 { "run" } else { "runs" };
    let seen = format!(
        "{} {runs}, {} samples, lost {}, with incomplete stack {}",
        whole.runs,
        whole.sum.samples,
        lost_samples(side),
        incomplete_stacks(side, event)
    );
    vec![inputs(side), join(&facts(side, |head| &head.command), "; "), dates(side), seen]
}

/// Where and how it was recorded.
pub(super) fn circumstances(event: Option<&ComparedEvent>, side: &Side) -> Vec<String> {
    let host = facts(side, |head| &head.host);
    let system = facts(side, |head| &head.os);
    let machine = facts(side, |head| &head.arch);
    let processor = facts(side, |head| &head.cpu);
    let mut machine: Vec<String> =
        [host, system, machine, processor].map(|set| join(&set, "; ")).into();
    machine.retain(|fact| !fact.is_empty());
    let mut lines = vec![machine.join(", ")];
    lines.extend(events(event, side));
    lines
}

fn join(set: &BTreeSet<String>, separator: &str) -> String {
    set.iter().map(String::as_str).collect::<Vec<_>>().join(separator)
}

fn inputs(side: &Side) -> String {
    let mut inputs: Vec<String> = side.runs().map(|run| escaped(run.input.as_bytes())).collect();
    inputs.dedup();
    inputs.join(", ")
}

fn dates(side: &Side) -> String {
    let times = || side.runs().filter_map(|run| run.head.as_ref()?.utc);
    match (times().min(), times().max()) {
        (Some(first), Some(last)) if utc(first) != utc(last) => {
            format!("{} to {} UTC", utc(first), utc(last))
        }
        (Some(first), _) => format!("{} UTC", utc(first)),
        _ => String::new(),
    }
}

/// How the event was opened: a line for all runs, unless they differ in more than the rate.
fn events(event: Option<&ComparedEvent>, side: &Side) -> Vec<String> {
    let Some(chosen) = event else { return Vec::new() };
    let mut rates: BTreeMap<(String, &str), BTreeSet<u64>> = BTreeMap::new();
    for summary in side.summaries().filter_map(|summary| chosen.summary(summary)) {
        let event = &summary.event;
        let (rate, kind) = match (event.frequency, event.period) {
            (Some(hertz), _) => (Some(hertz), "at"),
            (None, period) => (period, "every"),
        };
        rates.entry((manner(summary), kind)).or_default().extend(rate);
    }
    let line = |((manner, kind), rates): ((String, &str), BTreeSet<u64>)| {
        let unit = if kind == "at" { "Hz".to_owned() } else { chosen.unit() };
        let rate = match (rates.first(), rates.last()) {
            (Some(least), Some(most)) if least < most => {
                format!(" {kind} {least} to {most} {unit}")
            }
            (Some(rate), _) => format!(" {kind} {rate} {unit}"),
            _ => String::new(),
        };
        format!("{}{rate}{manner}", chosen.label())
    };
    rates.into_iter().map(line).collect()
}

/// How stacks were captured, and what the event stands for.
fn manner(summary: &EventSummary) -> String {
    let event = &summary.event;
    let mut line = String::new();
    if !event.unwind.is_empty() {
        line.push_str(&format!(", stacks by {}", escaped(&event.unwind)));
    }
    if !event.fallback.is_empty() {
        let (asked, why) = (escaped(&event.requested), escaped(&event.fallback));
        line.push_str(&format!(", in place of {asked}: {why}"));
    }
    line
}

fn cpu_time(report: &DiffReport<'_>) -> String {
    let (base, new) = (report.diff.base.mean_weight(), report.diff.new.mean_weight());
    let mut line = format!(
        "CPU time of a run: base {}, new {}, difference {}",
        seconds(base),
        seconds(new),
        signed_seconds(new - base)
    );
    if let Some(time) = &report.diff.time {
        line.push_str(&format!(
            " (interval {} .. {})",
            signed_seconds(time.low),
            signed_seconds(time.high)
        ));
    }
    line
}

fn method(report: &DiffReport<'_>) -> String {
    let diff = report.diff;
    let (name, tests) = match diff.method {
        Method::Welch => ("Welch's over runs", "moderated, Benjamini-Hochberg"),
        Method::Newcombe => ("Newcombe's, from counts", "Benjamini-Hochberg"),
    };
    format!(
        "{} comparisons, by self and by total; {} % intervals ({name}); changed: q <= {} ({tests})",
        diff.comparisons,
        confidence(diff.criteria.alpha),
        diff.criteria.alpha,
    )
}

/// The time of day, to the second, of ns since 1970-01-01 UTC.
fn utc(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    // A u64 of nanoseconds ends in the year 2554.
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_those_of_date() {
        // date -u -d @N '+%F %T'
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_735_689_599, "2024-12-31 23:59:59"),
            (1_795_254_245, "2026-11-21 09:44:05"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), expected);
        }
        assert_eq!(&utc(u64::MAX)[..4], "2554");
    }

    #[test]
    fn labels_stand_before_what_there_is() {
        assert_eq!(labelled("new", vec![String::new(), "x".into()]), ["new   x"]);
    }
}
