//! The heading of a table: the streams compared and their circumstances. Pure.

use std::collections::{BTreeMap, BTreeSet};

use nprof_cli::date::utc;
use nprof_report::layout::{cut_middle, wrapped};
use nprof_report::summary::{EventSummary, lost_text, unnamed_sentences};
use nprof_stream::escape::escaped;
use unicode_width::UnicodeWidthStr;

use crate::compare::comparison::Method;
use crate::compare::observed::SideTotals;
use crate::input::event::{AmountUnit, ComparedEvent, incomplete_stacks};
use crate::input::moved_files::MovedDirectory;
use crate::input::side::Side;
use crate::print::report::DiffReport;
use crate::print::text::{WIDTH, amount, confidence, signed_amount};

/// Returns the lines of the heading: what a reader needs to judge the table, or with `--verbose` all
/// facts about both sides.
pub(super) fn lines(report: &DiffReport<'_>) -> Vec<String> {
    let mut lines = if report.is_verbose { facts(report) } else { brief(report) };
    lines.extend(labelled("names", unnamed(report.event, &[report.base, report.new])));
    let moves = report.moved_directories.iter();
    lines.extend(labelled("files", moves.map(moved_directory).collect()));
    for warning in report.warnings {
        lines.extend(wrapped(&format!("warning: {warning}"), WIDTH));
    }
    if let (Some(per), Some(scale)) = (report.per, report.ratio_scale()) {
        let unit = scale.unit;
        let per = per.name();
        let line = format!(
            "divided by {per} (--per {per}): shares and amounts are those with the {per} of the base; the ratio is in {unit}"
        );
        lines.extend(wrapped(&line, WIDTH));
    }
    if report.is_verbose {
        lines.push(String::new());
        lines.extend(wrapped(&method(report), WIDTH));
    } else {
        lines.extend(wrapped(&brief_method(report), WIDTH));
    }
    lines
}

/// Returns lines on the samples of each side in code without names, and the remedies.
pub(super) fn unnamed(event: Option<&ComparedEvent>, sides: &[&Side]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for side in sides {
        let streams =
            side.summaries().filter_map(|summary| Some((summary, event?.summary(summary)?)));
        let mut sentences = unnamed_sentences(streams).into_iter();
        lines.extend(sentences.next().map(|share| format!("{}: {share}", side.name)));
        // Mostly both sides need the same step.
        lines.extend(sentences.filter(|remedy| !lines.contains(remedy)).collect::<Vec<_>>());
    }
    lines
}

/// Returns a line on each side, or two if its command is long.
fn brief(report: &DiffReport<'_>) -> Vec<String> {
    let DiffReport { base, new, diff, event, .. } = report;
    let unit = event.and_then(ComparedEvent::amount_unit);
    let [of_base, of_new] = [diff.base, diff.new].map(SideTotals::mean_weight);
    let (mut base_amount, mut new_amount) = (String::new(), String::new());
    if let Some(unit) = unit {
        let quantity = event.map(ComparedEvent::quantity).unwrap_or_default();
        let of = match unit {
            AmountUnit::Ns => format!(" of {quantity}"),
            // Its unit is enough.
            AmountUnit::Bytes => String::new(),
            AmountUnit::Count => format!(" {quantity}"),
        };
        base_amount = format!(", {}{of} a run", amount(unit, of_base));
        let growth = signed_amount(unit, of_new - of_base);
        new_amount = format!(", {}, {growth}", amount(unit, of_new));
        // Single runs have no interval.
        if let Some(estimate) = &diff.run_amount {
            let [low, high] = [estimate.low, estimate.high].map(|end| signed_amount(unit, end));
            new_amount.push_str(&format!(" ({low} .. {high})"));
        }
    }
    let lines = |side: &Side, totals: SideTotals, amount: &str| {
        let plural = if totals.runs == 1 { "" } else { "s" };
        let begin = format!("{:<5} {} run{plural} of ", side.name, totals.runs);
        let counts = format!("{} samples{amount}", totals.sum.samples);
        let command = subject(side);
        let line = format!("{begin}{command}: {counts}");
        if line.width() <= WIDTH {
            return vec![line];
        }
        let command = cut_middle(&command, WIDTH.saturating_sub(begin.len()));
        vec![begin + &command, format!("      {counts}")]
    };
    let mut brief = lines(base, diff.base, &base_amount);
    brief.extend(lines(new, diff.new, &new_amount));
    brief
}

/// Returns the commands of a side, or the names of its streams if they have none.
pub(super) fn subject(side: &Side) -> String {
    let command = join(&side.facts(|head| &head.command), "; ");
    if command.is_empty() { inputs(side) } else { command }
}

fn brief_method(report: &DiffReport<'_>) -> String {
    let diff = report.diff;
    format!(
        "{} comparisons; changed: q, the chance of any false alarm, at most {}",
        diff.comparisons, diff.criteria.alpha,
    )
}

/// Returns lines on both sides and their circumstances.
fn facts(report: &DiffReport<'_>) -> Vec<String> {
    let DiffReport { base, new, diff, event, .. } = report;
    let mut lines = labelled(base.name, recordings(*event, base, diff.base));
    lines.extend(labelled(new.name, recordings(*event, new, diff.new)));
    let [base_lines, new_lines] = [base, new].map(|side| circumstances(*event, side));
    // Usually both sides were recorded on one machine: one block instead of two.
    if base_lines == new_lines {
        lines.extend(labelled("both", base_lines));
    } else {
        lines.extend(labelled(base.name, base_lines));
        lines.extend(labelled(new.name, new_lines));
    }
    if let Some(unit) = event.and_then(ComparedEvent::amount_unit) {
        lines.extend(wrapped(&run_amount(report, unit), WIDTH));
    }
    lines
}

/// Puts a label before the first line and indents the others; empty lines are left out.
pub(super) fn labelled(label: &str, mut lines: Vec<String>) -> Vec<String> {
    lines.retain(|line| !line.is_empty());
    // Five columns for the label, and a space.
    let lines = lines.iter().flat_map(|line| wrapped(line, WIDTH - 6));
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    labels.zip(lines).map(|(label, line)| format!("{label:<5} {line}")).collect()
}

/// Returns lines on the recordings of a side: streams, commands, dates, number of samples.
pub(super) fn recordings(
    event: Option<&ComparedEvent>,
    side: &Side,
    totals: SideTotals,
) -> Vec<String> {
    let runs = if totals.runs == 1 { "run" } else { "runs" };
    let counts = format!(
        "{} {runs}, {} samples, lost {}, with incomplete stack {}",
        totals.runs,
        totals.sum.samples,
        lost_text(side.lost_samples(), side.lost_others()),
        incomplete_stacks(side, event)
    );
    vec![inputs(side), join(&side.facts(|head| &head.command), "; "), dates(side), counts]
}

/// Returns lines on the circumstances of a side: machine and event.
pub(super) fn circumstances(event: Option<&ComparedEvent>, side: &Side) -> Vec<String> {
    let facts = [
        side.facts(|head| &head.host),
        side.facts(|head| &head.os),
        side.facts(|head| &head.arch),
        side.facts(|head| &head.cpu),
    ];
    let mut machine: Vec<String> = facts.iter().map(|facts| join(facts, "; ")).collect();
    machine.retain(|fact| !fact.is_empty());
    let mut lines = vec![machine.join(", ")];
    lines.extend(event.into_iter().flat_map(|event| event_lines(event, side)));
    lines
}

fn join(set: &BTreeSet<String>, separator: &str) -> String {
    set.iter().map(String::as_str).collect::<Vec<_>>().join(separator)
}

fn inputs(side: &Side) -> String {
    let mut inputs: Vec<String> = side.runs().map(|run| escaped(run.input.as_bytes())).collect();
    // A stream of several runs is listed once.
    inputs.dedup();
    inputs.join(", ")
}

fn dates(side: &Side) -> String {
    let Some((first, last)) = side.recording_times_ns() else { return String::new() };
    let (first, last) = (utc(first), utc(last));
    if first == last { format!("{first} UTC") } else { format!("{first} to {last} UTC") }
}

/// A rate of samples: per second, or in units of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RateKind {
    Frequency,
    Period,
}

/// Returns lines on the event: one for all runs, unless they differ in more than the rate.
fn event_lines(event: &ComparedEvent, side: &Side) -> Vec<String> {
    let mut rates: BTreeMap<(String, RateKind), BTreeSet<u64>> = BTreeMap::new();
    for summary in event.summaries(side) {
        let (kind, rate) = match (summary.event.frequency, summary.event.period) {
            (Some(hertz), _) => (RateKind::Frequency, Some(hertz)),
            (None, period) => (RateKind::Period, period),
        };
        // Runs at different rates avoid sampling in step with the program (nprof(7)): their rates
        // are joined into one line.
        rates.entry((capture(summary), kind)).or_default().extend(rate);
    }
    let mut lines = Vec::new();
    for ((capture, kind), rates) in rates {
        let (preposition, unit) = match kind {
            RateKind::Frequency => ("at", "Hz".to_owned()),
            RateKind::Period => ("every", event.unit()),
        };
        let rate = match (rates.first(), rates.last()) {
            (Some(min), Some(max)) if min < max => format!(" {preposition} {min} to {max} {unit}"),
            (Some(rate), _) => format!(" {preposition} {rate} {unit}"),
            _ => String::new(),
        };
        lines.push(format!("{}{rate}{capture}", event.label()));
    }
    lines
}

/// Returns the windows and the unwinder of an event, and the event it replaces.
fn capture(summary: &EventSummary) -> String {
    let event = &summary.event;
    let mut text = String::new();
    text.push_str(&summary.windows());
    if !event.unwind.is_empty() {
        text.push_str(&format!(", stacks by {}", escaped(&event.unwind)));
    }
    // The recorder falls back to another event if the machine lacks the requested one.
    if !event.fallback.is_empty() {
        let (requested, reason) = (escaped(&event.requested), escaped(&event.fallback));
        text.push_str(&format!(", in place of {requested}: {reason}"));
    }
    text
}

/// Returns a line on a directory of source files that has another path on the new side.
pub(super) fn moved_directory(moved: &MovedDirectory) -> String {
    let name =
        |path: &[u8]| if path.is_empty() { "relative paths".to_owned() } else { escaped(path) };
    let plural = if moved.files == 1 { "" } else { "s" };
    format!(
        "{} of base is compared with {} of new ({} file{plural})",
        name(&moved.base),
        name(&moved.new),
        moved.files
    )
}

/// Returns a sentence on the amounts of whole runs.
pub(super) fn run_amount(report: &DiffReport<'_>, unit: AmountUnit) -> String {
    let (base, new) = (report.diff.base.mean_weight(), report.diff.new.mean_weight());
    let mut line = format!(
        "{} of a run: base {}, new {}, difference {}",
        report.event.map(ComparedEvent::quantity).unwrap_or_default(),
        amount(unit, base),
        amount(unit, new),
        signed_amount(unit, new - base)
    );
    // Single runs have no interval.
    if let Some(estimate) = &report.diff.run_amount {
        let [low, high] = [estimate.low, estimate.high].map(|end| signed_amount(unit, end));
        line.push_str(&format!(" (interval {low} .. {high})"));
    }
    line
}

/// Returns a sentence on the statistical method.
pub(super) fn method(report: &DiffReport<'_>) -> String {
    let diff = report.diff;
    let (interval, tests) = match diff.method {
        Method::Welch => ("Welch's over runs", "moderated, Holm"),
        Method::Newcombe => ("Newcombe's, from counts", "Holm"),
    };
    format!(
        "{} comparisons, by self and by total; {} % intervals ({interval}); changed: q <= {} ({tests})",
        diff.comparisons,
        confidence(diff.criteria.alpha),
        diff.criteria.alpha,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_precedes_first_nonempty_line() {
        assert_eq!(labelled("new", vec![String::new(), "x".into()]), ["new   x"]);
    }
}
