//! The report for CI servers: JUnit's XML, with a test case for each bound of `--fail-on`, or one for the
//! event without bounds.

use std::io::{self, Write};

use nprof_report::folded::drawable;

use crate::compare::fail_on::{self, Bound};
use crate::compare::row::Row;
use crate::input::event::ComparedEvent;
use crate::print::changes;
use crate::print::report::DiffReport;
use crate::print::text::{min_growth, row_name};

/// A test case.
struct Case {
    name: String,
    verdict: Verdict,
}

enum Verdict {
    Passed,
    /// Rows exceed the bound: a summary, and a line for each.
    Failed(String, Vec<String>),
    /// There is not enough data to decide, and the remedy. Neither passed nor failed: a CI server shows
    /// it, and a job may go on.
    Undecided(String),
}

/// Writes the report.
pub(super) fn print(report: &DiffReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let cases = cases(report);
    let count = |is: fn(&Verdict) -> bool| cases.iter().filter(|case| is(&case.verdict)).count();
    let failures = count(|verdict| matches!(verdict, Verdict::Failed(..)));
    let skipped = count(|verdict| matches!(verdict, Verdict::Undecided(_)));
    let tests = cases.len();
    let counts = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\"");
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(
        out,
        "<testsuites {counts}>\n  <testsuite name=\"nprof-diff\" {counts} skipped=\"{skipped}\">"
    )?;
    let class = markup(&report.event.map_or("no event".to_owned(), ComparedEvent::name));
    for case in &cases {
        let name = markup(&case.name);
        let begin = format!("    <testcase classname=\"nprof-diff.{class}\" name=\"{name}\"");
        match &case.verdict {
            Verdict::Passed => writeln!(out, "{begin}/>")?,
            Verdict::Failed(message, lines) => {
                let (message, lines) = (markup(message), markup(&lines.join("\n")));
                writeln!(out, "{begin}>")?;
                writeln!(out, "      <failure message=\"{message}\">{lines}</failure>")?;
                writeln!(out, "    </testcase>")?;
            }
            Verdict::Undecided(message) => {
                let message = markup(message);
                writeln!(out, "{begin}>\n      <skipped message=\"{message}\"/>\n    </testcase>")?;
            }
        }
    }
    writeln!(out, "{}  </testsuite>\n</testsuites>", output(report))
}

fn cases(report: &DiffReport<'_>) -> Vec<Case> {
    let missing = |bounds: &[Bound]| fail_on::missing(report.diff, bounds).join("; ");
    if report.bounds.is_empty() {
        let verdict = match missing(&[]) {
            missing if missing.is_empty() => Verdict::Passed,
            missing => Verdict::Undecided(missing),
        };
        return vec![Case { name: "samples of both sides".to_owned(), verdict }];
    }
    let case = |bound: &Bound| {
        let rows = report.rows_beyond(bound).into_iter();
        let lines: Vec<String> =
            rows.map(|row| name(report, row) + &min_growth(bound, row)).collect();
        let verdict = match (&lines[..], missing(std::slice::from_ref(bound))) {
            // Without samples nothing exceeds a bound.
            (_, missing) if !report.diff.has_enough_samples() => Verdict::Undecided(missing),
            ([first, rest @ ..], _) => {
                let more = if rest.is_empty() {
                    String::new()
                } else {
                    format!(" and {} more", rest.len())
                };
                Verdict::Failed(format!("beyond {bound}: {first}{more}"), lines)
            }
            ([], missing) if missing.is_empty() => Verdict::Passed,
            ([], missing) => Verdict::Undecided(missing),
        };
        Case { name: bound.to_string(), verdict }
    };
    report.bounds.iter().map(case).collect()
}

/// Returns the element with the changed rows; empty without any.
fn output(report: &DiffReport<'_>) -> String {
    let rows = report.sorted_rows();
    let changed = changes::changed(report, &rows);
    let lines: Vec<String> = changes::within_limit(&changed, report.row_limit)
        .into_iter()
        .map(|(_, row)| format!("{}: {}", row.change().word(), name(report, row)))
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("    <system-out>{}</system-out>\n", markup(&lines.join("\n")))
}

fn name(report: &DiffReport<'_>, row: &Row) -> String {
    row_name(report.keys, row.key, None, 0)
}

/// Escapes text for XML. Names and messages have no control characters.
fn markup(text: &str) -> String {
    let text = drawable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}
