//! Which rows are printed, in which order, and what is left out.

use std::cmp::Ordering;

use clap::ValueEnum;
use nprof_report::profile::Sum;
use nprof_report::report::RowLimits;
use nprof_report::summary::Summary;

use crate::rows::flat::{Flat, Row, Tally};

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Largest self first; of several events, the mean of the shares
    #[value(name = "self")]
    Own,
    /// Largest total first; of several events, the mean of the shares
    Total,
    /// As total
    Weight,
    /// By name
    Name,
}

impl Sort {
    /// The name of the sum of a row that decides on it.
    pub(crate) fn what_decides(self) -> &'static str {
        match self {
            Sort::Own | Sort::Name => "self",
            Sort::Total | Sort::Weight => "total",
        }
    }

    /// The sum of a row that decides on it.
    pub(crate) fn decisive(self, tally: &Tally) -> Sum {
        match self {
            Sort::Own | Sort::Name => tally.own,
            Sort::Total | Sort::Weight => tally.total,
        }
    }
}

/// Rows that are not printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) rows: usize,
    /// What fell on the rows themselves, by event.
    pub(crate) own: Vec<Sum>,
}

impl Hidden {
    fn add(&mut self, row: &Row) {
        self.rows += 1;
        self.own.resize(row.tallies.len().max(self.own.len()), Sum::default());
        for (own, tally) in self.own.iter_mut().zip(&row.tallies) {
            own.add(tally.own);
        }
    }
}

/// An event that is reported on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Index into the summary's events, and into tallies.
    pub(crate) event: usize,
    /// What 100 % is.
    pub(crate) whole: Sum,
    /// What the rules about samples, or about all calls of a stack, took away.
    pub(crate) uncounted: Sum,
}

/// What is printed, and what not.
#[derive(Debug, Default)]
pub(crate) struct Selected {
    /// The events that have samples.
    pub(crate) all: Vec<Shown>,
    /// Those of them that have samples that count.
    pub(crate) events: Vec<Shown>,
    /// What is printed, in order.
    pub(crate) rows: Vec<Row>,
    /// Calls that the rules about calls took away.
    pub(crate) uncounted: Hidden,
    /// What `--min-percent` dropped.
    pub(crate) dropped: Hidden,
    /// What is past the last row to print.
    pub(crate) more: Hidden,
}

impl Selected {
    /// uProfiler's weight: the mean of a row's shares (total) in all events, per cent.
    pub(crate) fn weight(&self, row: &Row) -> f64 {
        mean(&self.events, row, |tally| tally.total)
    }
}

/// The rows to print.
pub(crate) fn select(
    flat: &Flat,
    summary: &Summary,
    sort: Sort,
    choice: &RowLimits,
    rebase: bool,
) -> Selected {
    let events = summary.events.iter().enumerate().filter(|(_, event)| event.sum.samples > 0);
    let events = events.map(|(event, all)| {
        let kept = flat.kept(event);
        let whole = if rebase { kept } else { all.sum };
        Shown { event, whole, uncounted: kept.rest_of(all.sum) }
    });
    let all: Vec<Shown> = events.collect();
    let has_any = |shown: &&Shown| flat.kept(shown.event).samples > 0;
    let events = all.iter().filter(has_any).copied().collect();
    let mut selected = Selected { all, events, ..Selected::default() };
    let count = summary.events.len();
    flat.rows(count, false).iter().for_each(|row| selected.uncounted.add(row));
    choose(&mut selected, flat.rows(count, true), sort, choice);
    selected
}

fn choose(selected: &mut Selected, rows: Vec<Row>, sort: Sort, choice: &RowLimits) {
    let events = &selected.events;
    let is_small = |row: &Row| {
        let sum = |shown: &Shown| sort.decisive(&row.tallies[shown.event]);
        events.iter().all(|shown| choice.is_small(sum(shown), shown.whole))
    };
    let (small, kept): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(is_small);
    small.iter().for_each(|row| selected.dropped.add(row));
    let score = |row: &Row| mean(events, row, |tally| sort.decisive(tally));
    let mut kept: Vec<(f64, Row)> = kept.into_iter().map(|row| (score(&row), row)).collect();
    kept.sort_by(|(a_score, a), (b_score, b)| match sort {
        Sort::Name => by_names(a, b),
        _ => b_score
            .total_cmp(a_score)
            .then_with(|| by_sums(a, b, sort))
            .then_with(|| by_names(a, b)),
    });
    let shown = choice.rows.unwrap_or(kept.len()).min(kept.len());
    kept.drain(shown..).for_each(|(_, row)| selected.more.add(&row));
    selected.rows = kept.into_iter().map(|(_, row)| row).collect();
}

/// The mean of a row's shares, per cent.
fn mean(events: &[Shown], row: &Row, sum: impl Fn(&Tally) -> Sum) -> f64 {
    let shares = events.iter().map(|shown| sum(&row.tallies[shown.event]).percent_of(shown.whole));
    shares.sum::<f64>() / events.len().max(1) as f64
}

/// The larger sums first, those that decide before the others.
fn by_sums(a: &Row, b: &Row, sort: Sort) -> Ordering {
    let compare = |sum: &dyn Fn(&Tally) -> Sum| {
        let sizes = |row: &Row, event: usize| {
            let sum = sum(&row.tallies[event]);
            (sum.weight, sum.samples)
        };
        (0..a.tallies.len()).map(|i| sizes(b, i)).cmp((0..a.tallies.len()).map(|i| sizes(a, i)))
    };
    compare(&|tally| sort.decisive(tally))
        .then_with(|| compare(&|tally| tally.own))
        .then_with(|| compare(&|tally| tally.total))
}

fn by_names(a: &Row, b: &Row) -> Ordering {
    a.names.iter().map(|name| name_order(name)).cmp(b.names.iter().map(|name| name_order(name)))
}

/// Names are in the order of their bytes; numbers, before them, by value. The numbers of one
/// column have all as many decimals.
fn name_order(name: &str) -> (bool, usize, &str) {
    let (whole, decimals) = name.split_once('.').unwrap_or((name, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_digits(whole) && is_digits(decimals) {
        (false, name.len(), name)
    } else {
        (true, 0, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(samples: u64) -> Sum {
        Sum { samples, weight: samples * 10 }
    }

    fn row(name: &str, own: u64, total: u64) -> Row {
        let tally = Tally { own: sum(own), total: sum(total) };
        Row { names: vec![name.to_owned()], tallies: vec![tally] }
    }

    fn shown(event: usize, samples: u64) -> Shown {
        Shown { event, whole: sum(samples), uncounted: Sum::default() }
    }

    fn chosen(sort: Sort, choice: RowLimits) -> (Vec<String>, Hidden, Hidden) {
        let rows = vec![
            row("b", 5, 5),
            row("main", 0, 10),
            row("a", 5, 5),
            row("10", 0, 1),
            row("9", 0, 1),
        ];
        let mut selected = Selected { events: vec![shown(0, 10)], ..Selected::default() };
        choose(&mut selected, rows, sort, &choice);
        let names = selected.rows.into_iter().flat_map(|row| row.names).collect();
        (names, selected.dropped, selected.more)
    }

    const ALL: RowLimits = RowLimits { min_percent: 0.0, rows: None };

    #[test]
    fn ties_are_in_the_order_of_names_and_numbers() {
        assert_eq!(chosen(Sort::Own, ALL).0, ["a", "b", "main", "9", "10"]);
        assert_eq!(chosen(Sort::Name, ALL).0, ["9", "10", "a", "b", "main"]);
        assert_eq!(chosen(Sort::Total, ALL).0, ["main", "a", "b", "9", "10"]);
        assert!(name_order("9.50") < name_order("10.25"));
        assert!(name_order("10.25") < name_order("1.2.3"));
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let (names, dropped, more) =
            chosen(Sort::Own, RowLimits { min_percent: 10.0, rows: Some(1) });
        assert_eq!(names, ["a"]);
        assert_eq!(dropped.rows, 3);
        assert_eq!(more, Hidden { rows: 1, own: vec![sum(5)] });
    }

    #[test]
    fn what_decides_is_what_is_sorted_by() {
        let choice = RowLimits { min_percent: 60.0, ..ALL };
        assert_eq!(chosen(Sort::Total, choice).0, ["main"]);
        assert_eq!(chosen(Sort::Own, RowLimits { min_percent: 50.0, ..ALL }).0, ["a", "b"]);
    }

    /// The example of uProfiler, section 8.1: 13 % of one event and 24 % of the other are a
    /// weight of 18.5.
    #[test]
    fn a_weight_is_the_mean_of_the_shares() {
        let mut foo = row("foo", 0, 13);
        foo.tallies.push(Tally { own: sum(48), total: sum(48) });
        let mut bar = row("bar", 17, 17);
        bar.tallies.push(Tally { own: sum(30), total: sum(30) });
        let events = vec![shown(0, 100), shown(1, 200)];
        let mut selected = Selected { events, ..Selected::default() };
        choose(&mut selected, vec![bar, foo], Sort::Weight, &ALL);
        assert_eq!(selected.rows[0].names, ["foo"]);
        assert!((selected.weight(&selected.rows[0]) - 18.5).abs() < 1e-12);
        assert!((selected.weight(&selected.rows[1]) - 16.0).abs() < 1e-12);
    }
}
