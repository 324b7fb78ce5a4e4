//! Selects and sorts the rows of a report.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use clap::ValueEnum;
use nprof_report::profile::{Blocks, FoldedSums, OmittedRows, ReportedEvent, Sum};
use nprof_report::ratio::Per;
use nprof_report::report::RowLimits;
use nprof_report::summary::Summary;
use rustc_hash::FxHashMap;

use nprof_report::rows::flat::{BlockTally, Flat, FlatRow, Tally};

/// One of the two sums of a tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Samples in the row itself.
    Self_,
    /// Samples in the row or in its callees.
    Total,
}

impl Metric {
    /// Returns the name in column headings.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Self_ => "self",
            Metric::Total => "total",
        }
    }

    /// Returns the sum of a tally.
    pub fn of(self, tally: &Tally) -> Sum {
        match self {
            Metric::Self_ => tally.self_,
            Metric::Total => tally.total,
        }
    }

    /// Returns the blocks of a tally.
    pub fn blocks_of(self, blocks: &BlockTally) -> Blocks {
        match self {
            Metric::Self_ => blocks.self_,
            Metric::Total => blocks.total,
        }
    }
}

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Largest self first; of several events, by the first one, or by the sum if all measure time
    #[value(name = "self")]
    Self_,
    /// Largest total first; of several events, by the first one, or by the sum if all measure time
    Total,
    /// Largest block of memory first; of several events, by the first one in bytes
    Max,
    /// By name
    Name,
}

impl Sort {
    /// Returns the metric that decides on the order, and on which rows are too small.
    pub fn sort_metric(self) -> Metric {
        match self {
            Sort::Self_ | Sort::Max | Sort::Name => Metric::Self_,
            Sort::Total => Metric::Total,
        }
    }
}

/// The groups of rows that are sorted and limited by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Number of leading columns that are equal in a group; 0 if all rows are one group.
    pub columns: usize,
    /// True if groups are in the order of their names, as time slices are. Others are in the order
    /// of their self, the largest first.
    pub in_time: bool,
    /// True if the largest rows of each event are reported, not only those of the first one.
    pub per_event: bool,
}

/// The order of rows, and the groups that it holds in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The order within a group.
    pub sort: Sort,
    /// The groups.
    pub groups: Groups,
}

/// The rows of a report, and the sums of omitted rows.
#[derive(Debug, Default)]
pub struct SelectedRows {
    /// The events that have samples.
    pub all_events: Vec<ReportedEvent>,
    /// The events that have samples that count.
    pub events: Vec<ReportedEvent>,
    /// By event of `events`, the samples of rows that were folded to bound memory.
    pub folded: Vec<Option<FoldedSums>>,
    /// True if all events measure time, of which a thread spends each part in one of them: rows are in
    /// the order of their sums over all events.
    pub adds_up: bool,
    /// The event that the others are divided by. It is not among `events`.
    pub per: Option<Per>,
    /// The reported rows in order.
    pub rows: Vec<FlatRow>,
    /// Rows of calls that the filter does not match.
    pub uncounted: OmittedRows,
    /// Rows below the minimum share.
    pub dropped: OmittedRows,
    /// Rows beyond the maximum number of rows.
    pub not_shown: OmittedRows,
}

impl SelectedRows {
    /// Returns the mean of a row's total shares in all events, in per cent: uProfiler calls it
    /// weight.
    pub fn mean_total_percent(&self, row: &FlatRow) -> f64 {
        let mut sum = 0.0;
        for (event, tally) in in_events(&self.events, row) {
            sum += tally.total.percent_of(event.whole);
        }
        // No events: 0 instead of NaN.
        sum / self.events.len().max(1) as f64
    }
}

/// Returns the rows of a report within the limits. If `rebase` is true, 100 % is the samples that
/// count.
pub fn select(
    flat: &Flat,
    summary: &Summary,
    order: Order,
    limits: &RowLimits,
    rebase: bool,
    per: Option<Per>,
) -> SelectedRows {
    let mut all_events = Vec::new();
    for (event, all) in summary.events.iter().enumerate() {
        if all.sum.samples > 0 {
            let counted = flat.counted(event);
            let whole = if rebase { counted } else { all.sum };
            all_events.push(ReportedEvent { event, whole, counted });
        }
    }
    // A filter can leave an event without samples: it gets no columns.
    let mut events = all_events.clone();
    let is_divisor = |event: usize| per.is_some_and(|per| per.event == event);
    events.retain(|event| event.counted.samples > 0 && !is_divisor(event.event));
    let folded = events.iter().map(|event| flat.folded(event.event)).collect();
    let measures_time = |event: &ReportedEvent| summary.events[event.event].event.measure.is_time();
    let adds_up = events.iter().all(measures_time);
    let mut selected =
        SelectedRows { all_events, events, folded, adds_up, per, ..SelectedRows::default() };
    for row in flat.rows(false) {
        omit(&mut selected.uncounted, &row);
    }
    let mut rows = flat.rows(true);
    // A row without samples of the others has nothing to divide.
    rows.retain(|row| row.tallies.iter().any(|(event, _)| !is_divisor(*event)));
    select_kept(&mut selected, rows, order, limits);
    selected
}

/// Adds the self of a row to the omitted rows.
fn omit(omitted: &mut OmittedRows, row: &FlatRow) {
    // Totals of several rows overlap, so only their self can be added up.
    let rows = omitted.rows + 1;
    for (event, tally) in &row.tallies {
        omitted.add_row(*event, tally.self_);
    }
    // One row, of however many events.
    omitted.rows = rows;
}

/// Sorts the rows that the filter keeps, and omits those beyond the limits.
fn select_kept(
    selected: &mut SelectedRows,
    mut rows: Vec<FlatRow>,
    order: Order,
    limits: &RowLimits,
) {
    let Order { sort, groups } = order;
    let events: Vec<usize> = selected.events.iter().map(|event| event.event).collect();
    let metric = sort.sort_metric();
    rows.retain(|row| {
        let is_small = is_small(&selected.events, row, metric, limits);
        if is_small {
            omit(&mut selected.dropped, row);
        }
        !is_small
    });
    let added = selected.adds_up.then_some(&selected.events[..]);
    // Groups are sorted by the self of the first event, or of all.
    let mut sums: FxHashMap<Vec<Arc<str>>, u64> = FxHashMap::default();
    let first = events.first().filter(|_| groups.columns > 0 && !groups.in_time);
    if let Some(&event) = first.filter(|_| sort != Sort::Name) {
        for row in &rows {
            let sum = sums.entry(row.names[..groups.columns].to_vec()).or_default();
            let self_ = row.tally(event).self_.weight;
            let added = added.map(|added| in_all(added, row, Metric::Self_));
            *sum = sum.saturating_add(added.unwrap_or(self_));
        }
    }
    let group = |row: &FlatRow| sums.get(&row.names[..groups.columns]);
    rows.sort_by(|a, b| {
        let of_groups = group(b)
            .cmp(&group(a))
            .then_with(|| by_names(&a.names[..groups.columns], &b.names[..groups.columns]));
        of_groups.then_with(|| in_group(a, b, sort, &selected.events, added))
    });
    let Some(count) = limits.rows else {
        selected.rows = rows;
        return;
    };
    for group in rows.chunk_by(|a, b| a.names[..groups.columns] == b.names[..groups.columns]) {
        let mut is_reported: Vec<bool> = (0..group.len()).map(|i| i < count).collect();
        if groups.per_event && sort != Sort::Name {
            for &event in &events {
                let mut largest: Vec<usize> = (0..group.len()).collect();
                largest.retain(|&i| group[i].tally(event).total.samples > 0);
                // The sort is stable: equal rows stay in the order of the first event.
                largest.sort_by_key(|&i| Reverse(size(metric.of(&group[i].tally(event)))));
                largest.into_iter().take(count).for_each(|i| is_reported[i] = true);
            }
        }
        for (row, is_reported) in group.iter().zip(is_reported) {
            if is_reported {
                selected.rows.push(row.clone());
            } else {
                omit(&mut selected.not_shown, row);
            }
        }
    }
}

/// Orders the rows of a group: by the sum of the events in `added`, if there are any, then by each event.
fn in_group(
    a: &FlatRow,
    b: &FlatRow,
    sort: Sort,
    events: &[ReportedEvent],
    added: Option<&[ReportedEvent]>,
) -> Ordering {
    let names = || by_names(&a.names, &b.names);
    let by_sums = |metric| by_sums(events, a, b, metric);
    let in_all = |row| added.map(|added| in_all(added, row, sort.sort_metric()));
    match sort {
        Sort::Name => names(),
        Sort::Self_ | Sort::Total => {
            let order = in_all(b).cmp(&in_all(a));
            order.then_with(|| by_sums(sort.sort_metric())).then_with(names)
        }
        Sort::Max => {
            let largest = |row: &FlatRow| row.blocks.first().map(|(_, it)| it.self_.largest());
            let order = largest(b).cmp(&largest(a));
            order.then_with(|| by_sums(Metric::Self_)).then_with(names)
        }
    }
}

/// True if a row is too small to be printed in every event.
fn is_small(events: &[ReportedEvent], row: &FlatRow, metric: Metric, limits: &RowLimits) -> bool {
    // Of most events a row has no samples: only the others are looked up.
    let is_small =
        |(event, tally): (&ReportedEvent, &Tally)| limits.is_small(metric.of(tally), event.whole);
    let nothing_is_small = limits.min_percent == 0.0 && !events.is_empty();
    !nothing_is_small && in_events(events, row).all(is_small)
}

/// Returns the sums of a row in those of the events that it has samples of.
pub(crate) fn in_events<'a>(
    events: &'a [ReportedEvent],
    row: &'a FlatRow,
) -> impl Iterator<Item = (&'a ReportedEvent, &'a Tally)> {
    row.tallies.iter().filter_map(move |(event, tally)| {
        let found = events.binary_search_by_key(event, |event| event.event).ok()?;
        Some((&events[found], tally))
    })
}

/// Returns the weight of a row in these events together.
fn in_all(events: &[ReportedEvent], row: &FlatRow, metric: Metric) -> u64 {
    let weights = in_events(events, row).map(|(_, tally)| metric.of(tally).weight);
    weights.fold(0, u64::saturating_add)
}

/// Orders rows by their sums in these events, the larger first: by `metric`, then by self, then by total.
fn by_sums(events: &[ReportedEvent], a: &FlatRow, b: &FlatRow, metric: Metric) -> Ordering {
    [metric, Metric::Self_, Metric::Total]
        .into_iter()
        .map(|metric| sizes(events, b, metric).cmp(sizes(events, a, metric)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// Returns weight and samples of a row by event. Sums of an earlier event are the larger ones: a row
/// without it has none.
fn sizes<'a>(
    events: &'a [ReportedEvent],
    row: &'a FlatRow,
    metric: Metric,
) -> impl Iterator<Item = (Reverse<usize>, u64, u64)> + 'a {
    // The event that the others are divided by decides on nothing.
    in_events(events, row).filter_map(move |(event, tally)| {
        let sum = metric.of(tally);
        (sum != Sum::default()).then_some((Reverse(event.event), sum.weight, sum.samples))
    })
}

/// Returns weight and samples.
fn size(sum: Sum) -> (u64, u64) {
    (sum.weight, sum.samples)
}

fn by_names(a: &[Arc<str>], b: &[Arc<str>]) -> Ordering {
    a.iter().map(|name| name_order(name)).cmp(b.iter().map(|name| name_order(name)))
}

/// Returns a key by which names are sorted: numbers first, by value, then other names by their
/// bytes.
///
/// Numbers of one column have equally many decimals and no leading zeros, so the longer one is the
/// larger one.
fn name_order(name: &str) -> (bool, usize, &str) {
    let (whole, decimals) = name.split_once('.').unwrap_or((name, "0"));
    if is_digits(whole) && is_digits(decimals) {
        (false, name.len(), name)
    } else {
        (true, 0, name)
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(samples: u64) -> Sum {
        Sum::of(samples, samples * 10)
    }

    fn row(name: &str, self_: u64, total: u64) -> FlatRow {
        let tally = Tally { self_: sum(self_), total: sum(total) };
        FlatRow { names: vec![name.into()], tallies: vec![(0, tally)], blocks: Vec::new() }
    }

    fn reported(event: usize, samples: u64) -> ReportedEvent {
        ReportedEvent { event, whole: sum(samples), counted: sum(samples) }
    }

    fn selected(sort: Sort, limits: RowLimits) -> SelectedRows {
        let rows = vec![
            row("b", 5, 5),
            row("main", 0, 10),
            row("a", 5, 5),
            row("10", 0, 1),
            row("9", 0, 1),
        ];
        let events = vec![reported(0, 10)];
        let mut selected = SelectedRows { events, ..SelectedRows::default() };
        select_kept(&mut selected, rows, Order { sort, groups: Groups::default() }, &limits);
        selected
    }

    fn names(sort: Sort, limits: RowLimits) -> Vec<String> {
        let names = selected(sort, limits).rows.into_iter().flat_map(|row| row.names);
        names.map(|name| name.to_string()).collect()
    }

    const ALL: RowLimits = RowLimits { min_percent: 0.0, rows: None };

    #[test]
    fn equal_rows_are_in_the_order_of_names_and_numbers() {
        assert_eq!(names(Sort::Self_, ALL), ["a", "b", "main", "9", "10"]);
        assert_eq!(names(Sort::Name, ALL), ["9", "10", "a", "b", "main"]);
        assert_eq!(names(Sort::Total, ALL), ["main", "a", "b", "9", "10"]);
        assert!(name_order("9.50") < name_order("10.25"));
        assert!(name_order("10.25") < name_order("1.2.3"));
    }

    #[test]
    fn omitted_rows_are_counted() {
        let selected = selected(Sort::Self_, RowLimits { min_percent: 10.0, rows: Some(1) });
        assert_eq!(selected.rows.len(), 1);
        assert_eq!(selected.rows[0].names, ["a".into()]);
        assert_eq!(selected.dropped.rows, 3);
        assert_eq!(selected.not_shown, OmittedRows { rows: 1, sums: [(0, sum(5))].into() });
    }

    #[test]
    fn minimum_share_applies_to_the_sort_metric() {
        assert_eq!(names(Sort::Total, RowLimits { min_percent: 60.0, ..ALL }), ["main"]);
        assert_eq!(names(Sort::Self_, RowLimits { min_percent: 50.0, ..ALL }), ["a", "b"]);
    }

    /// The example of uProfiler, section 8.1: 13 % of one event and 24 % of the other are a
    /// mean of 18.5.
    #[test]
    fn first_event_decides_on_the_order() {
        let mut foo = row("foo", 0, 13);
        foo.tallies.push((1, Tally { self_: sum(48), total: sum(48) }));
        let mut bar = row("bar", 17, 17);
        bar.tallies.push((1, Tally { self_: sum(30), total: sum(30) }));
        let events = vec![reported(0, 100), reported(1, 200)];
        let mut selected = SelectedRows { events, ..SelectedRows::default() };
        let order = Order { sort: Sort::Total, groups: Groups::default() };
        select_kept(&mut selected, vec![foo.clone(), bar.clone()], order, &ALL);
        assert_eq!(selected.rows[0].names, ["bar".into()]);
        assert!((selected.mean_total_percent(&selected.rows[1]) - 18.5).abs() < 1e-12);
        assert!((selected.mean_total_percent(&selected.rows[0]) - 16.0).abs() < 1e-12);

        // The largest row of each event.
        let one = RowLimits { rows: Some(1), ..ALL };
        let names = |per_event| {
            let mut part = SelectedRows { events: selected.events.clone(), ..Default::default() };
            let groups = Groups { per_event, ..Groups::default() };
            let order = Order { groups, ..order };
            select_kept(&mut part, vec![foo.clone(), bar.clone(), row("none", 0, 0)], order, &one);
            part.rows.iter().map(|row| row.names[0].to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["bar"]);
        assert_eq!(names(true), ["bar", "foo"]);
    }

    #[test]
    fn sum_of_events_that_measure_time_decides_on_the_order() {
        let with = |name: &str, first: u64, second: u64| {
            let mut row = row(name, first, first);
            row.tallies.push((1, Tally { self_: sum(second), total: sum(second) }));
            // The event that others are divided by is not among the events.
            row.tallies.push((2, Tally { self_: sum(500 * first), total: sum(500 * first) }));
            row
        };
        let rows = vec![with("busy", 10, 0), with("lock", 1, 90), with("read", 0, 20)];
        let events = vec![reported(0, 11), reported(1, 110)];
        let names = |adds_up| {
            let events = events.clone();
            let mut selected = SelectedRows { events, adds_up, ..SelectedRows::default() };
            let order = Order { sort: Sort::Self_, groups: Groups::default() };
            select_kept(&mut selected, rows.clone(), order, &ALL);
            selected.rows.iter().map(|row| row.names[0].to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(true), ["lock", "read", "busy"]);
        assert_eq!(names(false), ["busy", "lock", "read"]);
    }

    #[test]
    fn divisor_does_not_order_rows_of_equal_sums() {
        // The divisor is the first event of the stream.
        let with = |name: &str, calls: u64, first: u64| {
            let mut row = row(name, calls, calls);
            row.tallies.push((1, Tally { self_: sum(first), total: sum(first) }));
            row
        };
        let rows = vec![with("often", 900, 4), with("a", 1, 4), with("slow", 2, 9)];
        for adds_up in [true, false] {
            let events = vec![reported(1, 17)];
            let mut selected = SelectedRows { events, adds_up, ..SelectedRows::default() };
            let order = Order { sort: Sort::Self_, groups: Groups::default() };
            select_kept(&mut selected, rows.clone(), order, &ALL);
            let names: Vec<&str> = selected.rows.iter().map(|row| &*row.names[0]).collect();
            assert_eq!(names, ["slow", "a", "often"], "{adds_up}");
        }
    }

    #[test]
    fn each_group_has_its_largest_rows() {
        let row = |group: &str, name: &str, samples| {
            let mut row = row(name, samples, samples);
            row.names.insert(0, group.into());
            row
        };
        let rows = vec![row("10", "a", 1), row("10", "b", 7), row("10", "c", 9), row("9", "a", 3)];
        let selected = |groups, sort, count| {
            let mut selected =
                SelectedRows { events: vec![reported(0, 20)], ..SelectedRows::default() };
            let limits = RowLimits { rows: count, ..ALL };
            select_kept(&mut selected, rows.clone(), Order { sort, groups }, &limits);
            selected
        };
        let names = |groups, sort, count| {
            let rows = selected(groups, sort, count).rows;
            rows.into_iter().map(|row| row.names.join(" ")).collect::<Vec<_>>()
        };
        let slices = Groups { columns: 1, in_time: true, per_event: false };
        assert_eq!(names(slices, Sort::Self_, Some(2)), ["9 a", "10 c", "10 b"]);
        assert_eq!(selected(slices, Sort::Self_, Some(2)).not_shown.rows, 1);
        assert_eq!(names(slices, Sort::Name, Some(1)), ["9 a", "10 a"]);
        // Of threads, the one with most samples comes first.
        let threads = Groups { in_time: false, ..slices };
        assert_eq!(names(threads, Sort::Self_, Some(1)), ["10 c", "9 a"]);
        assert_eq!(names(threads, Sort::Self_, None), ["10 c", "10 b", "10 a", "9 a"]);
        assert_eq!(names(Groups::default(), Sort::Self_, Some(2)), ["10 c", "10 b"]);
    }
}
