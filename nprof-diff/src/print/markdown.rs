//! The report for a comment in GitHub or GitLab: the result, both sides, and a table of the changes, in
//! GitHub Flavored Markdown.

use std::io::{self, Write};

use nprof_report::layout::cut_middle;

use crate::compare::fail_on::{self, Bound, DiffResult};
use crate::compare::observed::SideTotals;
use crate::compare::row::{Metric, Row};
use crate::input::event::{AmountUnit, ComparedEvent};
use crate::input::side::Side;
use crate::print::changes::{self, Group};
use crate::print::heading;
use crate::print::report::DiffReport;
use crate::print::text::{
    amount, confidence, min_growth, percent, points, q_value, row_name, signed_amount,
};
use crate::stats::Estimate;

/// The longest name in columns: a comment in GitHub has at most 65,536 characters.
const NAME_WIDTH: usize = 100;

/// Writes the report.
pub(super) fn print(report: &DiffReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "**{}**\n", result(report))?;
    for line in fail_on::missing(report.diff, report.bounds) {
        writeln!(out, "- {}", plain(&line))?;
    }
    for line in exceeding(report) {
        writeln!(out, "- {line}")?;
    }
    for warning in report.warnings {
        writeln!(out, "- warning: {}", plain(warning))?;
    }
    for line in heading::unnamed(report.event, &[report.base, report.new]) {
        writeln!(out, "- names: {}", plain(&line))?;
    }
    print_sides(report, out)?;
    print_changes(report, out)
}

/// Returns the sentence that a reader of the comment needs first.
fn result(report: &DiffReport<'_>) -> String {
    let names = |bounds: &mut dyn Iterator<Item = &Bound>, between| {
        bounds.map(|bound| code(&bound.to_string())).collect::<Vec<String>>().join(between)
    };
    match fail_on::result(report.diff, report.bounds) {
        DiffResult::Failed => {
            let exceeded = names(&mut fail_on::exceeded(report.diff, report.bounds), " and ");
            format!("nprof-diff: failed, changed beyond {exceeded}")
        }
        DiffResult::Undecided => "nprof-diff: not enough data to decide".to_owned(),
        DiffResult::Changed if report.bounds.is_empty() => "nprof-diff: changed".to_owned(),
        DiffResult::Changed => {
            format!("nprof-diff: changed, within {}", names(&mut report.bounds.iter(), " and "))
        }
        DiffResult::Same => "nprof-diff: no significant change".to_owned(),
    }
}

/// Returns a line for each row beyond a bound, up to the limit of rows.
fn exceeding(report: &DiffReport<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for bound in report.bounds {
        let rows = report.rows_beyond(bound);
        let printed = rows.into_iter().take(report.row_limit);
        lines.extend(printed.map(|row| beyond(report, bound, row)));
    }
    lines
}

fn beyond(report: &DiffReport<'_>, bound: &Bound, row: &Row) -> String {
    let name = code(&row_name(report.keys, row.key, Some(NAME_WIDTH), 0));
    format!("beyond {}: {name}{}", code(&bound.to_string()), min_growth(bound, row))
}

fn print_sides(report: &DiffReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let DiffReport { base, new, diff, event, .. } = report;
    let unit = event.and_then(ComparedEvent::amount_unit);
    let quantity = event.map(ComparedEvent::quantity).unwrap_or_default();
    let (heading, rule) = match unit {
        Some(_) => (format!(" {} a run | change |", plain(&quantity)), "---:|---:|"),
        None => (String::new(), ""),
    };
    writeln!(out, "\n| | command | runs | samples |{heading}\n|---|---|---:|---:|{rule}")?;
    for (side, totals) in [(base, diff.base), (new, diff.new)] {
        let counts = format!("{} | {} |", totals.runs, totals.sum.samples);
        let amounts = unit.map(|unit| amounts(report, unit, side, totals)).unwrap_or_default();
        let command = cell(&cut_middle(&heading::subject(side), NAME_WIDTH));
        writeln!(out, "| {} | {command} | {counts}{amounts}", side.name)?;
    }
    Ok(())
}

/// Returns the cells of the amount of a run and of its change.
fn amounts(report: &DiffReport<'_>, unit: AmountUnit, side: &Side, totals: SideTotals) -> String {
    let mean = totals.mean_weight();
    // The base has nothing that it has changed from.
    if std::ptr::eq(side, report.base) {
        return format!(" {} | |", amount(unit, mean));
    }
    let growth = signed_amount(unit, mean - report.diff.base.mean_weight());
    // Single runs have no interval.
    let interval = match &report.diff.run_amount {
        Some(estimate) => {
            let [low, high] = [estimate.low, estimate.high].map(|end| signed_amount(unit, end));
            format!(" ({low} .. {high})")
        }
        None => String::new(),
    };
    format!(" {} | {growth}{interval} |", amount(unit, mean))
}

fn print_changes(report: &DiffReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let rows = report.sorted_rows();
    let changed = changes::changed(report, &rows);
    let printed = changes::within_limit(&changed, report.row_limit);
    let unit = report.event.and_then(ComparedEvent::amount_unit);
    if !printed.is_empty() {
        let interval = format!("{} % interval", confidence(report.diff.criteria.alpha));
        let kind = report.row_kind.name();
        writeln!(
            out,
            "\n| | {kind} | | base | new | change | {interval} | q |\n\
             |---|---|---|---:|---:|---:|---:|---:|"
        )?;
    }
    for group in Group::all() {
        for (_, row) in printed.iter().filter(|(other, _)| *other == group) {
            let name = cell(&row_name(report.keys, row.key, Some(NAME_WIDTH), 0));
            let mut first = format!("{} | {name}", group.title(unit));
            for (label, metric) in metrics(row) {
                let cells = cells(metric, unit);
                writeln!(out, "| {first} | {label} | {cells} |")?;
                // The name of the row above.
                first = " | ".to_owned();
            }
        }
    }
    let (hidden, same) = (changed.len() - printed.len(), rows.len() - changed.len());
    if hidden > 0 {
        writeln!(out, "\n{hidden} more with smaller changes.")?;
    }
    let kind = report.row_kind.name();
    writeln!(out, "\n{same} of {} without significant change, by {kind}.", rows.len())
}

/// Returns the metrics of a row with their labels: one of a leaf, whose self is its total.
fn metrics(row: &Row) -> Vec<(&'static str, &Metric)> {
    if row.self_.share == row.total.share && row.self_.amount == row.total.amount {
        return vec![("self, total", &row.self_)];
    }
    let mut metrics = vec![("self", &row.self_), ("total", &row.total)];
    metrics.retain(|(label, metric)| *label == "total" || metric.samples() > 0);
    metrics
}

/// Returns the cells of a metric: shares, with the amounts that the event has, and the interval of the
/// share.
fn cells(metric: &Metric, unit: Option<AmountUnit>) -> String {
    let share = &metric.share.estimate;
    let with_amount = |text: String, amount: Option<String>| match amount {
        Some(amount) => format!("{text} ({amount})"),
        None => text,
    };
    let amounts = metric.amount.as_ref().zip(unit).map(|(change, unit)| {
        let Estimate { base, new, .. } = change.estimate;
        let growth = signed_amount(unit, change.estimate.difference());
        [amount(unit, base), amount(unit, new), growth]
    });
    let [base, new, growth] = match amounts {
        Some(amounts) => amounts.map(Some),
        None => [None, None, None],
    };
    let cells = [
        with_amount(percent(share.base), base),
        with_amount(percent(share.new), new),
        with_amount(points(share.difference()), growth),
        format!("{} .. {}", points(share.low), points(share.high)),
        plain(&q_value(metric.corrected.q)),
    ];
    cells.join(" | ")
}

/// Returns text as code in a cell of a table, in which `|` has a meaning, too.
fn cell(text: &str) -> String {
    code(text).replace('|', "\\|")
}

/// Returns text as code, in which only backquotes have a meaning.
fn code(text: &str) -> String {
    let mut longest = 0;
    for run in text.split(|c| c != '`') {
        longest = longest.max(run.len());
    }
    // A row of more backquotes than the text has; one space on each side is not shown.
    let fence = "`".repeat(longest + 1);
    if longest > 0 { format!("{fence} {text} {fence}") } else { format!("{fence}{text}{fence}") }
}

/// Returns text in which no character has a meaning.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            // A name with a link, a mention or a reference to an issue.
            '<' => plain.push_str("&lt;"),
            '&' => plain.push_str("&amp;"),
            '@' => plain.push_str("&#64;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '~' | '!' => {
                plain.push('\\');
                plain.push(character);
            }
            _ => plain.push(character),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_ends_at_no_character_of_its_text() {
        assert_eq!(code("f(int)"), "`f(int)`");
        assert_eq!(code("a|b"), "`a|b`");
        assert_eq!(cell("a|b"), "`a\\|b`");
        assert_eq!(code("`<script>``"), "``` `<script>`` ```");
    }

    #[test]
    fn plain_text_has_no_markup() {
        assert_eq!(plain("<img> @user #1 a_b|c"), "&lt;img> &#64;user \\#1 a\\_b\\|c");
    }
}
