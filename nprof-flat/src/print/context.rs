//! The input of every printer.

use nprof_report::key::Key;
use nprof_report::legend;
use nprof_report::profile::{ReportedEvent, Sum};
use nprof_report::ratio::{Per, Ratio};
use nprof_report::summary::Summary;
use nprof_stream::Measure;
use serde_json::Value;

use crate::args::Args;
use crate::select::{Metric, SelectedRows, in_events};
use nprof_report::rows::flat::{FlatRow, Tally};

/// The numbers of a row in machine formats.
const NUMBERS: [&str; 8] = [
    "self_samples",
    "total_samples",
    "self",
    "total",
    "self_percent",
    "self_margin",
    "total_percent",
    "total_margin",
];

/// The further numbers of a row with `--per`.
const RATIOS: [&str; 6] = [
    "self_per",
    "total_per",
    "self_ratio",
    "self_ratio_margin",
    "total_ratio",
    "total_ratio_margin",
];

/// The further numbers of a row if an event measures bytes.
const BLOCKS: [&str; 8] = [
    "self_blocks",
    "total_blocks",
    "self_mean_size",
    "total_mean_size",
    "self_max",
    "total_max",
    "self_mean_age_ns",
    "total_mean_age_ns",
];

/// The input of a printer.
#[derive(Clone, Copy)]
pub(crate) struct PrintContext<'a> {
    /// The columns that name a row.
    pub(crate) columns: &'a [Key],
    pub(crate) selected: &'a SelectedRows,
    pub(crate) summary: &'a Summary,
    pub(crate) args: &'a Args,
    /// The terminal's width; None if the report goes to a file or pipe.
    pub(crate) width: Option<usize>,
}

/// The sums of a row in one event.
#[derive(Clone, Copy)]
pub(crate) struct RowInEvent<'a> {
    pub(crate) row: &'a FlatRow,
    pub(crate) event: &'a ReportedEvent,
    pub(crate) tally: &'a Tally,
}

impl<'a> PrintContext<'a> {
    /// Returns the name of an event, escaped.
    pub(crate) fn event_name(&self, event: &ReportedEvent) -> String {
        self.summary.event_name(event.event)
    }

    /// Returns a line for each event with rows that were folded to bound memory.
    pub(crate) fn folded_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let selected = self.selected;
        for (event, sums) in selected.events.iter().zip(&selected.folded) {
            let Some(sums) = sums else { continue };
            // A single event is named in the heading.
            let name =
                if selected.events.len() > 1 { self.event_name(event) } else { String::new() };
            let other = sums.other.percent_of(event.whole);
            let bound = sums.bound.percent_of(event.whole);
            lines.push(legend::folded(&name, other, "rows", bound));
        }
        lines
    }

    /// Returns each row once for every event in which it has samples.
    pub(crate) fn rows_in_events(&self) -> impl Iterator<Item = RowInEvent<'a>> {
        let selected = self.selected;
        let of_row = |row: &'a FlatRow| {
            let found = in_events(&selected.events, row);
            found.map(move |(event, tally)| RowInEvent { row, event, tally })
        };
        selected.rows.iter().flat_map(of_row).filter(|found| found.tally.total.samples > 0)
    }

    /// Returns the names of a row's numbers.
    pub(crate) fn number_names(&self) -> Vec<&'static str> {
        let ratios = self.selected.per.map_or(&[][..], |_| &RATIOS);
        let blocks = if self.has_blocks() { &BLOCKS[..] } else { &[] };
        [&NUMBERS[..], ratios, blocks].concat()
    }

    /// True if an event measures bytes.
    fn has_blocks(&self) -> bool {
        self.selected.events.iter().any(|event| self.measures_bytes(event))
    }

    /// Returns the margin of error of a share as a fraction; 0 if the sum was counted. None if shares of the
    /// event have none.
    pub(crate) fn margin(&self, sum: Sum, metric: Metric, event: &ReportedEvent) -> Option<f64> {
        let summary = &self.summary.events[event.event];
        let margin = summary.margin(self.args.options.confidence(), sum, event.whole)?;
        let is_whole =
            summary.event.exact_ns.is_some_and(|slice_ns| self.args.has_whole_leaves(slice_ns));
        Some(if is_whole && metric == Metric::Self_ { 0.0 } else { margin })
    }

    /// True if the samples of an event represent blocks of memory.
    pub(crate) fn measures_bytes(&self, event: &ReportedEvent) -> bool {
        self.summary.events[event.event].event.measure == Measure::Bytes
    }

    /// True if the samples of all events represent blocks of memory.
    pub(crate) fn measure_only_bytes(&self) -> bool {
        self.selected.events.iter().all(|event| self.measures_bytes(event))
    }

    /// Returns a sum of a row in an event divided by that of `per`.
    pub(crate) fn ratio(&self, row: &FlatRow, event: usize, per: Per, metric: Metric) -> Ratio {
        let divisor = row.tally(per.event);
        let is_total = metric == Metric::Total;
        let denominator = per.of(divisor.self_, divisor.total, is_total);
        // The time of a probe is that of functions of the kernel, below the row.
        let has_overhead = is_total || !self.columns.iter().any(|key| matches!(key, Key::Call(_)));
        let overhead_ns = per.overhead_in(&self.summary.events[event]);
        let calls = if has_overhead { divisor.total.weight } else { 0 };
        let overhead = calls.saturating_mul(overhead_ns);
        let numerator = metric.of(&row.tally(event));
        Ratio { numerator, overhead, denominator, error: per.error }
    }

    /// Returns the numbers of a row in the order of [`PrintContext::number_names`].
    pub(crate) fn numbers(&self, found: RowInEvent<'_>) -> Vec<Value> {
        let mut numbers = self.shares(found).to_vec();
        if let Some(per) = self.selected.per {
            let ratios = [Metric::Self_, Metric::Total]
                .map(|metric| self.ratio(found.row, found.event.event, per, metric));
            numbers.extend(ratios.map(|ratio| ratio.denominator.weight.into()));
            let confidence = self.args.options.confidence();
            for ratio in ratios {
                numbers.extend([ratio.value().into(), ratio.margin(confidence).into()]);
            }
        }
        if self.has_blocks() {
            numbers.extend(blocks(found));
        }
        numbers
    }

    fn shares(&self, found: RowInEvent<'_>) -> [Value; 8] {
        let (self_, total, whole) = (found.tally.self_, found.tally.total, found.event.whole);
        // Machine formats have percentage points.
        let margin = |sum, metric| {
            Value::from(self.margin(sum, metric, found.event).map(|margin| 100.0 * margin))
        };
        [
            self_.samples.into(),
            total.samples.into(),
            self_.weight.into(),
            total.weight.into(),
            self_.percent_of(whole).into(),
            margin(self_, Metric::Self_),
            total.percent_of(whole).into(),
            margin(total, Metric::Total),
        ]
    }
}

/// Returns the numbers of the blocks of a row; null if the event has none.
fn blocks(found: RowInEvent<'_>) -> [Value; 8] {
    let Some(blocks) = found.row.blocks_of(found.event.event) else {
        return [const { Value::Null }; 8];
    };
    let (self_, total) = (blocks.self_, blocks.total);
    [
        self_.number().into(),
        total.number().into(),
        self_.mean_size(found.tally.self_.weight).into(),
        total.mean_size(found.tally.total.weight).into(),
        self_.largest().into(),
        total.largest().into(),
        self_.mean_age_ns().into(),
        total.mean_age_ns().into(),
    ]
}
