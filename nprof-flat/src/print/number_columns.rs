//! The columns of a table, and which numbers fit on a terminal. Several events are side by side.
//! Pure.

use nprof_report::layout::{self, Scale};
use nprof_report::profile::{Blocks, ReportedEvent};

use crate::print::context::PrintContext;
use crate::print::ratio_columns;
use crate::print::table_cells::{NAME_WIDTH, TableCells};
use crate::select::{Metric, Sort};
use nprof_report::rows::flat::FlatRow;

/// Width reserved for all columns of names together, before numbers are added.
const NAMES_WIDTH: usize = 54;

/// The largest number of cells of a table with several events: 60 bytes each.
const MAX_CELLS: usize = 1 << 18;

/// The largest number of columns that an event takes.
const COLUMNS_OF_EVENT: usize = 10;

/// The numbers in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ColumnPlan {
    /// The weight in the event's unit.
    weight: bool,
    /// Of events in bytes: number, mean size, largest and mean age of the blocks.
    blocks: bool,
    samples: bool,
    margins: bool,
    /// Both self and total, not only the one by which rows are sorted.
    both_metrics: bool,
    /// Number of events.
    events: usize,
}

/// A share of a row: self or total, with or without its margin of error.
struct ShareColumn {
    metric: Metric,
    has_margin: bool,
}

/// Lays out the columns of a table.
pub(crate) struct TableColumns<'a> {
    pub(crate) context: &'a PrintContext<'a>,
    /// The names of each row; before them the names of their columns.
    pub(crate) names: &'a [Vec<String>],
}

impl TableColumns<'_> {
    /// Returns the numbers and names that fit into the width of the terminal.
    ///
    /// Numbers are left out in this order: those of blocks, but for the one by which rows are sorted; the
    /// weight, which a share expresses as well; samples; margins of error; self or total, if rows are not
    /// sorted by it; events. The weight of events in bytes is left out last, before events.
    pub(crate) fn fit(&self) -> TableCells {
        if let Some(per) = self.context.selected.per {
            return ratio_columns::fit(self.context, self.names, per);
        }
        let events = &self.context.selected.events;
        let are_bytes = self.context.measure_only_bytes();
        let mut plans = plans(events.len(), are_bytes);
        // A file or pipe has no width: only the numbers for which there is no memory are left out.
        let Some(width) = self.context.width else {
            let rows = self.names.len();
            let fits = |plan: &ColumnPlan| plan.events * COLUMNS_OF_EVENT * rows <= MAX_CELLS;
            let plan = plans.iter().find(|plan| fits(plan)).or(plans.last());
            return self.cells(*plan.expect("every table has a plan"));
        };
        // The smallest plan is used even if it does not fit: the layout then shortens the names.
        let smallest = plans.pop().expect("every table has a plan");
        let name = NAME_WIDTH.min(NAMES_WIDTH / self.names[0].len().max(1));
        for plan in plans {
            let table = self.cells(plan);
            // The weight repeats the share: it is shown only if names keep twice the width.
            let name = if plan.weight && !are_bytes { name * 2 } else { name };
            if layout::least_width(&table.cells, table.numbers, name) <= width {
                return table;
            }
        }
        self.cells(smallest)
    }

    /// Returns the cells of a plan.
    fn cells(&self, plan: ColumnPlan) -> TableCells {
        let selected = self.context.selected;
        let events = &selected.events[..plan.events];
        let has_one_event = selected.events.len() == 1;
        let (mut header, mut groups) = (Vec::new(), Vec::new());
        for event in events {
            let start = header.len();
            header.extend(self.header(plan, event));
            groups.push((start..header.len(), self.context.event_name(event)));
        }
        let numbers = header.len();
        let mut cells = vec![header];
        for row in &selected.rows {
            let mut line = Vec::with_capacity(numbers);
            events.iter().for_each(|event| line.extend(self.numbers(plan, event, row)));
            cells.push(line);
        }
        for (line, names) in cells.iter_mut().zip(self.names) {
            line.extend(names.iter().cloned());
        }
        // The name of a single event is in the heading.
        if has_one_event {
            groups.clear();
        }
        TableCells { cells, numbers, groups, left_out: self.left_out(plan) }
    }

    fn sort_metric(&self) -> Metric {
        self.context.args.sort().sort_metric()
    }

    /// Returns the shares of an event.
    fn shares(&self, plan: ColumnPlan, event: &ReportedEvent) -> Vec<ShareColumn> {
        let has_margins = self.context.summary.events[event.event].has_margins();
        let has_one_event = self.context.selected.events.len() == 1;
        let mut shares = Vec::new();
        for metric in [Metric::Self_, Metric::Total] {
            if plan.both_metrics || metric == self.sort_metric() {
                // With several events there is room for one margin each.
                let is_first = !plan.both_metrics || metric == Metric::Self_;
                let has_margin = plan.margins && has_margins && (has_one_event || is_first);
                shares.push(ShareColumn { metric, has_margin });
            }
        }
        shares
    }

    /// Returns the names of an event's columns.
    fn header(&self, plan: ColumnPlan, event: &ReportedEvent) -> Vec<String> {
        let mut header = Vec::new();
        for share in self.shares(plan, event) {
            header.push(format!("{} %", share.metric.name()));
            header.extend(share.has_margin.then(|| "±".to_owned()));
        }
        header.extend(plan.samples.then(|| "samples".to_owned()));
        if plan.weight {
            header.push(format!("{} {}", self.sort_metric().name(), self.scale(event).unit));
        }
        if self.context.measures_bytes(event) {
            header.extend(self.block_columns(plan).map(|column| BLOCK_COLUMNS[column].to_owned()));
        }
        header
    }

    /// Returns the numbers of a row in an event.
    fn numbers(&self, plan: ColumnPlan, event: &ReportedEvent, row: &FlatRow) -> Vec<String> {
        let tally = &row.tally(event.event);
        let mut numbers = Vec::new();
        for share in self.shares(plan, event) {
            let sum = share.metric.of(tally);
            numbers.push(format!("{:.2}", sum.percent_of(event.whole)));
            let margin = self.context.margin(sum, share.metric, event);
            let margin = margin.filter(|_| share.has_margin);
            numbers.extend(margin.map(|margin| format!("{:.2}", 100.0 * margin)));
        }
        let sum = self.sort_metric().of(tally);
        numbers.extend(plan.samples.then(|| sum.samples.to_string()));
        numbers.extend(plan.weight.then(|| self.scale(event).print(sum.weight)));
        if self.context.measures_bytes(event) {
            let blocks = row.blocks_of(event.event);
            let blocks = blocks.map(|tally| self.sort_metric().blocks_of(tally));
            let mut cells = block_cells(blocks.unwrap_or_default(), sum.weight);
            let shown = self.block_columns(plan);
            numbers.extend(shown.map(|column| std::mem::take(&mut cells[column])));
        }
        numbers
    }

    /// Returns the indices of the shown [`BLOCK_COLUMNS`]: that by which rows are sorted always is.
    fn block_columns(&self, plan: ColumnPlan) -> impl Iterator<Item = usize> + use<> {
        let is_sorted_by_max = self.context.args.sort() == Sort::Max;
        let is_shown =
            move |&column: &usize| plan.blocks || is_sorted_by_max && column == MAX_COLUMN;
        (0..BLOCK_COLUMNS.len()).filter(is_shown)
    }

    fn scale(&self, event: &ReportedEvent) -> Scale {
        Scale::of(&self.context.summary.events[event.event])
    }

    /// Returns the names of the numbers that a plan leaves out, without a weight that is not in bytes: the
    /// share expresses it as well. Tables of several events have no weight in any plan if not all are in bytes.
    fn left_out(&self, plan: ColumnPlan) -> Vec<String> {
        let other = match self.sort_metric() {
            Metric::Self_ => "total %",
            Metric::Total => "self %",
        };
        // A metric that is shown has its margin and its samples, so only the other can be missing.
        let mut left_out = Vec::new();
        let events = &self.context.selected.events;
        if let Some(event) = events.iter().find(|event| self.context.measures_bytes(event)) {
            let shown: Vec<usize> = self.block_columns(plan).collect();
            let columns = (0..BLOCK_COLUMNS.len()).filter(|column| !shown.contains(column));
            left_out.extend(columns.map(|column| BLOCK_COLUMNS[column].to_owned()));
            if self.context.measure_only_bytes() && !plan.weight {
                left_out.push(format!("{} {}", self.sort_metric().name(), self.scale(event).unit));
            }
        }
        for (is_shown, name) in
            [(plan.samples, "samples"), (plan.margins, "±"), (plan.both_metrics, other)]
        {
            if !is_shown {
                left_out.push(name.to_owned());
            }
        }
        for event in &self.context.selected.events[plan.events..] {
            left_out.push(self.context.event_name(event));
        }
        left_out
    }
}

/// The columns of blocks of memory.
const BLOCK_COLUMNS: [&str; 4] = ["blocks", "mean size", "max", "mean age"];
/// The index of the column of the largest block.
const MAX_COLUMN: usize = 2;

/// Returns the cells of blocks with a weight; `-` for an unknown number.
fn block_cells(blocks: Blocks, weight: u64) -> [String; 4] {
    let size = |bytes: Option<f64>| bytes.map_or("-".to_owned(), layout::bytes);
    [
        blocks.number().to_string(),
        size(blocks.mean_size(weight)),
        size(blocks.largest().map(|bytes| bytes as f64)),
        blocks.mean_age_ns().map_or("-".to_owned(), layout::nanoseconds),
    ]
}

/// Returns the plans for a table of `events` events, each with fewer numbers than the one before. If all
/// `are_bytes`, their weights matter more than their shares.
fn plans(events: usize, are_bytes: bool) -> Vec<ColumnPlan> {
    let has_one_event = events == 1;
    let mut plan = ColumnPlan {
        weight: has_one_event || are_bytes,
        blocks: true,
        samples: true,
        margins: true,
        both_metrics: true,
        events,
    };
    let mut plans = vec![plan];
    plan.blocks = false;
    plans.push(plan);
    if has_one_event && !are_bytes {
        plan.weight = false;
        plans.push(plan);
    }
    plan.samples = false;
    plans.push(plan);
    plan.margins = false;
    plans.push(plan);
    plan.both_metrics = false;
    plans.push(plan);
    if are_bytes {
        plan.weight = false;
        plans.push(plan);
    }
    // Events are in the order of the stream: the first one is kept longest.
    plans.extend((1..events).rev().map(|events| ColumnPlan { events, ..plan }));
    plans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_become_smaller() {
        let size = |plan: &ColumnPlan| {
            let columns = [plan.weight, plan.blocks, plan.samples, plan.margins, plan.both_metrics];
            plan.events * 10 + columns.iter().filter(|is_shown| **is_shown).count()
        };
        for (events, are_bytes, count) in
            [(1, false, 6), (2, false, 6), (4, false, 8), (1, true, 6), (4, true, 9)]
        {
            let plans = plans(events, are_bytes);
            assert_eq!(plans.len(), count);
            assert!(plans.is_sorted_by(|a, b| size(a) > size(b)));
            assert_eq!(plans[count - 1].events, 1);
        }
    }
}
