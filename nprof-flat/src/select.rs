//! Which rows are printed, in which order, and what is left out.

use std::cmp::Ordering;

use clap::ValueEnum;
use nprof_format::profile::Sum;
use nprof_format::summary::Summary;

use crate::flat::Row;

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Largest self first
    #[value(name = "self")]
    Own,
    /// Largest total first
    Total,
    /// By name
    Name,
}

/// Which rows to print.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) sort: Sort,
    /// Rows with this many samples or fewer are dropped.
    pub(crate) limit: Option<u64>,
    /// Rows with a smaller share are dropped.
    pub(crate) min_percent: f64,
    /// No more rows than this are printed of an event.
    pub(crate) rows: Option<usize>,
}

impl Choice {
    /// The options that drop rows, as the user would spell them.
    pub(crate) fn why(&self) -> String {
        let limit = self.limit.map(|limit| format!("--limit {limit}"));
        let least = (self.min_percent > 0.0).then(|| format!("--min-percent {}", self.min_percent));
        limit.into_iter().chain(least).collect::<Vec<_>>().join(" ")
    }

    /// The sum that decides on a row.
    pub(crate) fn decisive(&self, row: &Row) -> Sum {
        match self.sort {
            Sort::Own | Sort::Name => row.own,
            Sort::Total => row.total,
        }
    }
}

/// Rows that are not printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) rows: usize,
    /// What fell on the rows themselves.
    pub(crate) own: Sum,
}

impl Hidden {
    fn add(&mut self, row: &Row) {
        self.rows += 1;
        self.own.add(row.own);
    }
}

/// The rows of one event.
#[derive(Debug)]
pub(crate) struct Section {
    /// Index into the summary's events.
    pub(crate) event: usize,
    /// What is printed, in order.
    pub(crate) rows: Vec<Row>,
    /// What `--limit` and `--min-percent` dropped.
    pub(crate) dropped: Hidden,
    /// What is past the last row to print.
    pub(crate) more: Hidden,
}

/// Sorts rows by event and, within an event, as asked; leaves out what is not to be printed.
/// Events without samples have no section.
pub(crate) fn sections(rows: Vec<Row>, summary: &Summary, choice: &Choice) -> Vec<Section> {
    let mut by_event: Vec<Vec<Row>> = summary.events.iter().map(|_| Vec::new()).collect();
    for row in rows {
        by_event[row.event].push(row);
    }
    let sections = by_event.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty());
    sections.map(|(event, rows)| section(event, rows, summary.events[event].sum, choice)).collect()
}

fn section(event: usize, rows: Vec<Row>, whole: Sum, choice: &Choice) -> Section {
    let mut dropped = Hidden::default();
    let mut kept = Vec::new();
    for row in rows {
        let sum = choice.decisive(&row);
        let few = choice.limit.is_some_and(|limit| sum.samples <= limit);
        if few || percent(sum, whole) < choice.min_percent {
            dropped.add(&row);
        } else {
            kept.push(row);
        }
    }
    kept.sort_by(|a, b| compare(a, b, choice));
    let mut more = Hidden::default();
    if let Some(count) = choice.rows.filter(|&count| count < kept.len()) {
        kept.drain(count..).for_each(|row| more.add(&row));
    }
    Section { event, rows: kept, dropped, more }
}

/// A share of the event, per cent.
pub(crate) fn percent(part: Sum, whole: Sum) -> f64 {
    if whole.weight == 0 { 0.0 } else { 100.0 * part.weight as f64 / whole.weight as f64 }
}

fn compare(a: &Row, b: &Row, choice: &Choice) -> Ordering {
    let by_sum = |a: Sum, b: Sum| (b.weight, b.samples).cmp(&(a.weight, a.samples));
    let by_names = || {
        let each = a.names.iter().zip(&b.names);
        each.map(|(a, b)| name_order(a).cmp(&name_order(b)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    };
    if choice.sort == Sort::Name {
        return by_names();
    }
    by_sum(choice.decisive(a), choice.decisive(b))
        .then_with(|| by_sum(a.own, b.own))
        .then_with(|| by_sum(a.total, b.total))
        .then_with(by_names)
}

/// Names are in the order of their bytes; numbers, before them, by value.
fn name_order(name: &str) -> (bool, usize, &str) {
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { (false, name.len(), name) } else { (true, 0, name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_format::summary::EventSummary;

    fn row(name: &str, own: u64, total: u64) -> Row {
        let sum = |samples| Sum { samples, weight: samples * 10 };
        Row { event: 0, names: vec![name.to_owned()], own: sum(own), total: sum(total) }
    }

    fn chosen(choice: Choice) -> (Vec<String>, Hidden, Hidden) {
        let rows = vec![
            row("b", 5, 5),
            row("main", 0, 10),
            row("a", 5, 5),
            row("10", 0, 1),
            row("9", 0, 1),
        ];
        let event =
            EventSummary { sum: Sum { samples: 10, weight: 100 }, ..EventSummary::default() };
        let summary =
            Summary { events: vec![EventSummary::default(), event], ..Summary::default() };
        let rows = rows.into_iter().map(|row| Row { event: 1, ..row }).collect();
        let mut sections = sections(rows, &summary, &choice);
        assert_eq!(sections.len(), 1, "an event without rows has no section");
        let section = sections.remove(0);
        let names = section.rows.into_iter().flat_map(|row| row.names).collect();
        (names, section.dropped, section.more)
    }

    const ALL: Choice = Choice { sort: Sort::Own, limit: None, min_percent: 0.0, rows: None };

    #[test]
    fn ties_are_in_the_order_of_names_and_numbers() {
        assert_eq!(chosen(ALL).0, ["a", "b", "main", "9", "10"]);
        assert_eq!(chosen(Choice { sort: Sort::Name, ..ALL }).0, ["9", "10", "a", "b", "main"]);
        assert_eq!(chosen(Choice { sort: Sort::Total, ..ALL }).0, ["main", "a", "b", "9", "10"]);
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let (names, dropped, more) = chosen(Choice { limit: Some(0), rows: Some(1), ..ALL });
        assert_eq!(names, ["a"]);
        assert_eq!(dropped.rows, 3);
        assert_eq!(more, Hidden { rows: 1, own: Sum { samples: 5, weight: 50 } });
    }

    #[test]
    fn what_decides_is_what_is_sorted_by() {
        let total = Choice { sort: Sort::Total, limit: Some(1), min_percent: 60.0, ..ALL };
        assert_eq!(chosen(total).0, ["main"]);
        assert_eq!(chosen(Choice { min_percent: 50.0, ..ALL }).0, ["a", "b"]);
    }
}
