//! The report for people: the changes, in 80 columns.
//!
//! A row has one line for its name and further lines for its numbers, because names of functions
//! are too long for a column.

use std::io::{self, Write};

use nprof_report::heading::marks;
use nprof_report::layout::wrapped;
use rustc_hash::FxHashSet;

use crate::compare::row::{Change, MIN_SAMPLES_TO_COMPARE, Metric, Row, RowChange};
use crate::input::event::{AmountUnit, ComparedEvent};
use crate::print::changes::{self, Group};
use crate::print::heading;
use crate::print::report::DiffReport;
use crate::print::text::{
    WIDTH, amount, confidence, min_growth, percent, points, q_value, row_name, signed_amount,
};
use crate::stats::Estimate;

/// Prints the report.
pub(super) fn print(
    report: &DiffReport<'_>,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    Table { report, width }.print(out)
}

/// A report with the width of the terminal, if there is one.
struct Table<'a> {
    report: &'a DiffReport<'a>,
    width: Option<usize>,
}

impl<'a> Table<'a> {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        for line in heading::lines(self.report) {
            writeln!(out, "{line}")?;
        }
        let rows = self.report.sorted_rows();
        let changed = changes::changed(self.report, &rows);
        self.print_changed(&changed, out)?;
        self.print_rename_candidates(out)?;
        writeln!(out)?;
        print_wrapped(&self.unchanged(&rows, changed.len()), out)?;
        self.print_displaced(&rows, &changed, out)?;
        self.print_marks(&changed, out)?;
        self.print_exceeding(out)
    }

    /// Returns the unit of amounts. None if rows have only shares.
    fn unit(&self) -> Option<AmountUnit> {
        self.report.event.and_then(ComparedEvent::amount_unit)
    }

    fn print_changed(&self, changed: &[(Group, &Row)], out: &mut impl Write) -> io::Result<()> {
        if changed.is_empty() {
            return Ok(());
        }
        let interval = format!("{} % interval", confidence(self.report.diff.criteria.alpha));
        writeln!(
            out,
            "\n{:14}{:>10} {:>10} {:>10} {interval:>23} {:>8}",
            "", "base", "new", "change", "q"
        )?;
        let printed = changes::within_limit(changed, self.report.row_limit);
        for group in Group::all() {
            let count = changed.iter().filter(|(other, _)| *other == group).count();
            if count > 0 {
                writeln!(out, "{} ({count})", group.title(self.unit()))?;
            }
            for (_, row) in printed.iter().filter(|(other, _)| *other == group) {
                self.print_row(row, out)?;
            }
        }
        match changed.len() - printed.len() {
            0 => Ok(()),
            hidden => writeln!(out, "{hidden} more with smaller changes (-n 0 prints all)"),
        }
    }

    fn print_rename_candidates(&self, out: &mut impl Write) -> io::Result<()> {
        let candidates = self.report.rename_candidates;
        if candidates.is_empty() {
            return Ok(());
        }
        writeln!(out, "\npossible renames: same image, similar share (--rename FILE joins them):")?;
        for pair in candidates.iter().take(self.report.row_limit) {
            let (old, new) = (self.name(pair.old, 2), self.name(pair.new, 4));
            writeln!(out, "  {old}\n    {new}")?;
            let (old, new) = (&pair.old.total.share.estimate, &pair.new.total.share.estimate);
            writeln!(out, "      total {}, now {}", percent(old.base), percent(new.new))?;
        }
        match candidates.len().saturating_sub(self.report.row_limit) {
            0 => Ok(()),
            hidden => writeln!(out, "  {hidden} more pairs (-n 0 prints all)"),
        }
    }

    /// Returns a sentence on the rows that are not in the table.
    fn unchanged(&self, rows: &[&Row], changed: usize) -> String {
        let same = rows.len() - changed;
        // By total, which is never less than self.
        let rare = rows.iter().filter(|row| !row.total.is_compared()).count();
        let plural = if same == 1 { "" } else { "s" };
        let kind = self.report.row_kind.name();
        let mut line = format!("{same} {kind}{plural} without significant change");
        if self.report.diff.criteria.min_effect.is_some() {
            line.push_str(" of this size");
        }
        if self.report.diff.undivided > 0 {
            line.push_str(&format!(
                "; not compared, with nothing to divide by in a run: {}",
                self.report.diff.undivided
            ));
        }
        if rare > 0 {
            line.push_str(&format!(
                "; {rare} of them too rare to compare (below {MIN_SAMPLES_TO_COMPARE} samples)"
            ));
        }
        line
    }

    /// Prints the number of displaced rows that are not in the table.
    fn print_displaced(
        &self,
        rows: &[&Row],
        changed: &[(Group, &Row)],
        out: &mut impl Write,
    ) -> io::Result<()> {
        let all = rows.iter().filter(|row| is_displaced(row)).count();
        let printed = changed.iter().filter(|(_, row)| is_displaced(row)).count();
        let line = match all - printed {
            0 => return Ok(()),
            1 => "1 of them has another share only because others take more or less".to_owned(),
            displaced => {
                format!(
                    "{displaced} of them have other shares only because others take more or less"
                )
            }
        };
        print_wrapped(&line, out)
    }

    /// Prints the meaning of the marks of incomplete stacks that are rows of the table, or begin paths in
    /// it.
    fn print_marks(&self, changed: &[(Group, &Row)], out: &mut impl Write) -> io::Result<()> {
        let DiffReport { base, new, event, keys, .. } = self.report;
        let sides = [base, new].into_iter();
        let events =
            event.iter().flat_map(|event| sides.clone().flat_map(|side| event.summaries(side)));
        let outermost: FxHashSet<String> =
            changed.iter().map(|(_, row)| format!("{}: ", keys.outermost_name(row.key))).collect();
        let mut lines = marks(events);
        lines.retain(|line| outermost.iter().any(|name| line.starts_with(name)));
        lines.iter().try_for_each(|line| print_wrapped(line, out))
    }

    fn print_row(&self, row: &Row, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "  {}", self.name(row, 2))?;
        // A leaf: one line instead of two equal ones.
        if row.self_.share == row.total.share && row.self_.amount == row.total.amount {
            return self.print_metric("self, total", &row.self_, out);
        }
        if row.self_.samples() > 0 {
            self.print_metric("self", &row.self_, out)?;
        }
        self.print_metric("total", &row.total, out)
    }

    /// Prints the shares of a row, its amounts if the event has a unit for them, and its ratios.
    fn print_metric(&self, label: &str, metric: &Metric, out: &mut impl Write) -> io::Result<()> {
        let q = q_value(metric.corrected.q);
        print_change(label, &metric.share, &q, percent, points, out)?;
        if let (Some(change), Some(unit)) = (&metric.amount, self.unit()) {
            let (value, difference) =
                (|value| amount(unit, value), |difference| signed_amount(unit, difference));
            print_change("", change, "", value, difference, out)?;
        }
        if let Some([base, new]) = metric.blocks {
            let [before, after] = [base, new].map(|number| amount(AmountUnit::Count, number));
            let difference = signed_amount(AmountUnit::Count, new - base);
            writeln!(out, "    {:<11}{before:>9} {after:>10} {difference:>10}", "blocks")?;
        }
        match (metric.whole_ratio, self.report.ratio_scale()) {
            (Some(whole), Some(scale)) => {
                let Estimate { base, .. } = metric.share.estimate;
                let value = |share: f64| scale.print_value(share * whole);
                print_change("ratio", &metric.share, "", value, |part| relative(part, base), out)
            }
            _ => Ok(()),
        }
    }

    /// Prints the rows that exceed the bounds of `--fail-on`.
    fn print_exceeding(&self, out: &mut impl Write) -> io::Result<()> {
        for bound in self.report.bounds {
            let rows = self.report.rows_beyond(bound);
            for row in rows.iter().take(self.report.row_limit) {
                let growth = min_growth(bound, row);
                writeln!(out, "beyond {bound}: {}{growth}", self.name(row, 40))?;
            }
            if rows.len() > self.report.row_limit {
                writeln!(out, "beyond {bound}: {} more", rows.len() - self.report.row_limit)?;
            }
        }
        Ok(())
    }

    fn name(&self, row: &Row, indentation: usize) -> String {
        row_name(self.report.keys, row.key, self.width, indentation)
    }
}

fn is_displaced(row: &Row) -> bool {
    row.change() == RowChange::Displaced
}

fn print_wrapped(text: &str, out: &mut impl Write) -> io::Result<()> {
    wrapped(text, WIDTH).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Returns a difference as a part of the base, with its sign.
fn relative(difference: f64, base: f64) -> String {
    if base > 0.0 { format!("{:+.1} %", 100.0 * difference / base) } else { "-".to_owned() }
}

fn print_change(
    label: &str,
    change: &Change,
    q: &str,
    value: impl Fn(f64) -> String,
    difference: impl Fn(f64) -> String,
    out: &mut impl Write,
) -> io::Result<()> {
    let estimate = &change.estimate;
    let interval = format!("{} .. {}", difference(estimate.low), difference(estimate.high));
    let line = format!(
        "    {label:<11}{:>9} {:>10} {:>10} {interval:>23} {q:>8}",
        value(estimate.base),
        value(estimate.new),
        difference(estimate.difference()),
    );
    writeln!(out, "{}", line.trim_end())
}
