//! The cells of a table: numbers with their margins of error, then names.

use nprof_report::layout;
use nprof_report::margin::Confidence;
use nprof_report::profile::Sum;
use nprof_report::rows::flat::FlatRow;
use nprof_stream::Measure;

use crate::model::facts::{EventFacts, Facts};
use crate::model::view::{Table, View};

/// The width below which only one share and the names are shown.
const NARROW: usize = 50;

/// The width from which on everything is shown.
const WIDE: usize = 70;

/// The width of an image's base name, as in nprof-flat: functions need the room.
const IMAGE_WIDTH: usize = 14;

/// The cells of a table. The first line has the names of the columns.
#[derive(Debug, Default)]
pub(super) struct Cells {
    pub(super) lines: Vec<Vec<String>>,
    /// The number of cells with numbers in a line.
    pub(super) numbers: usize,
}

/// The numbers of a table that are shown.
struct Numbers<'a> {
    view: View,
    table: &'a Table,
    facts: &'a Facts,
    event: usize,
    width: usize,
}

/// Returns the cells of rows, for a screen of this width.
pub(super) fn cells(
    view: View,
    table: &Table,
    facts: &Facts,
    event: usize,
    rows: &[&FlatRow],
    width: usize,
) -> Cells {
    let numbers = Numbers { view, table, facts, event, width };
    let mut header = numbers.header();
    let count = header.len();
    header.extend(view.columns().into_iter().map(|column| column.name().to_owned()));
    let mut lines = vec![header];
    for row in rows {
        let mut line = numbers.of(row);
        line.extend(row.names.iter().map(ToString::to_string));
        lines.push(line);
    }
    for line in &mut lines {
        match view {
            View::Functions => line[count + 1] = layout::cut(&line[count + 1], IMAGE_WIDTH),
            // The name of the thread says more than that of its process.
            View::Threads if width < NARROW => {
                line.remove(count);
            }
            View::Threads | View::Waits => {}
        }
    }
    Cells { lines, numbers: count }
}

impl Numbers<'_> {
    fn is_wide(&self) -> bool {
        self.width >= WIDE
    }

    fn is_narrow(&self) -> bool {
        self.width < NARROW
    }

    fn has_margins(&self) -> bool {
        self.facts.events[self.event].has_margins && !self.is_narrow()
    }

    /// Returns the events with a column of their part of the time: those of CPU time and of waiting.
    fn times(&self) -> impl Iterator<Item = (usize, &EventFacts)> {
        let is_time = |event: &EventFacts| {
            event.has_samples && matches!(event.measure, Measure::CpuTime | Measure::WaitTime)
        };
        // There is room for one: that of the first event.
        let most = if self.is_narrow() { 1 } else { usize::MAX };
        let is_shown = self.view == View::Threads;
        let events = self.facts.events.iter().enumerate();
        events.filter(move |(_, event)| is_shown && is_time(event)).take(most)
    }

    fn header(&self) -> Vec<String> {
        let mut header: Vec<String> = Vec::new();
        for (_, event) in self.times() {
            let name = if event.measure == Measure::CpuTime { "CPU" } else { &event.name };
            header.push(format!("{name} %"));
        }
        if self.view == View::Waits {
            header.push("threads".to_owned());
        }
        let margin = || self.has_margins().then(|| "±".to_owned());
        match self.view {
            View::Functions => {
                header.push("self %".to_owned());
                header.extend(margin());
                if !self.is_narrow() {
                    header.push("total %".to_owned());
                    header.extend(margin().filter(|_| self.is_wide()));
                }
            }
            // A thread has its part of the time already.
            View::Threads if self.is_narrow() && !header.is_empty() => {}
            View::Threads | View::Waits => {
                header.push("share %".to_owned());
                header.extend(margin());
            }
        }
        header.extend(self.is_wide().then(|| "samples".to_owned()));
        header
    }

    /// Returns the numbers of a row.
    fn of(&self, row: &FlatRow) -> Vec<String> {
        let tally = row.tally(self.event);
        let mut numbers: Vec<String> = Vec::new();
        for (event, _) in self.times() {
            let weight = row.tally(event).total.weight;
            numbers.push(format!("{:.1}", 100.0 * self.part_of_time(weight)));
        }
        if self.view == View::Waits {
            numbers.push(format!("{:.2}", self.part_of_time(tally.total.weight)));
        }
        match self.view {
            View::Functions => {
                self.push_share(&mut numbers, tally.self_, true);
                if !self.is_narrow() {
                    self.push_share(&mut numbers, tally.total, self.is_wide());
                }
            }
            View::Threads if self.is_narrow() && !numbers.is_empty() => {}
            View::Threads | View::Waits => self.push_share(&mut numbers, tally.total, true),
        }
        let samples = if self.view == View::Functions { tally.self_ } else { tally.total };
        numbers.extend(self.is_wide().then(|| samples.samples.to_string()));
        numbers
    }

    fn push_share(&self, numbers: &mut Vec<String>, sum: Sum, has_margin: bool) {
        let whole = self.table.whole(self.event);
        numbers.push(format!("{:.2}", sum.percent_of(whole)));
        if has_margin && self.has_margins() {
            let margin = Confidence::default().margin(sum, whole);
            numbers.push(format!("{:.2}", 100.0 * margin));
        }
    }

    /// Returns the part of the time that a weight in nanoseconds is.
    fn part_of_time(&self, weight_ns: u64) -> f64 {
        // Before the second sample, no time has passed.
        if self.table.length_ns == 0 { 0.0 } else { weight_ns as f64 / self.table.length_ns as f64 }
    }
}
