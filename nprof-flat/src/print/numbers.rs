//! The numbers of a table: which of them a terminal has room for, and what they are. Several
//! events stand side by side. Pure.

use std::ops::Range;

use nprof_report::layout::{self, Scale};
use nprof_report::profile::Sum;
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;

use crate::args::Args;
use crate::rows::flat::Row;
use crate::rows::select::{Selected, Shown};

/// Columns of names are given so much room before numbers are, all together and each.
const NAMES: usize = 54;
const NAME: usize = 18;

/// Which numbers a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// The weight in the event's unit, of one event.
    amount: bool,
    samples: bool,
    margins: bool,
    /// Self and total, and not only the one that rows are sorted by.
    both: bool,
    /// How many events there are.
    events: usize,
}

/// What a table has, and what it has no room for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    /// Lines of cells, the first one the names of the columns.
    pub(crate) cells: Vec<Vec<String>>,
    /// How many cells of a line are numbers.
    pub(crate) numbers: usize,
    /// Names of groups of columns, and which ones.
    pub(crate) groups: Vec<(Range<usize>, String)>,
    /// What was left out, if anything.
    pub(crate) left_out: Vec<String>,
}

/// All that is known of a table.
pub(crate) struct Table<'a> {
    pub(crate) selected: &'a Selected,
    pub(crate) summary: &'a Summary,
    pub(crate) args: &'a Args,
    /// The names of rows, after those of the columns.
    pub(crate) names: &'a [Vec<String>],
}

impl Table<'_> {
    /// The numbers and names that fit. What a share tells as well goes first (the weight of an
    /// event), then samples, then margins of error, then the lesser one of self and total, and
    /// only then events.
    pub(crate) fn fitting(&self, width: Option<usize>) -> Columns {
        let mut plans = plans(self.selected.events.len());
        let Some(width) = width else { return self.columns(plans[0]) };
        let last = plans.pop().expect("there is a plan for every table");
        let name = NAME.min(NAMES / self.names[0].len().max(1));
        let fits = |(plan, columns): &(Plan, Columns)| {
            // The weight is worth less than a good part of the names.
            let roomy = if plan.amount { name * 2 } else { name };
            layout::least_width(&columns.cells, columns.numbers, roomy) <= width
        };
        let mut plans = plans.into_iter().map(|plan| (plan, self.columns(plan)));
        plans.find(fits).map_or_else(|| self.columns(last), |(_, columns)| columns)
    }

    fn columns(&self, plan: Plan) -> Columns {
        let shown = &self.selected.events[..plan.events];
        let (mut head, mut groups) = (Vec::new(), Vec::new());
        let is_one = self.selected.events.len() == 1;
        if !is_one {
            head.push("weight".to_owned());
        }
        for shown in shown {
            let start = head.len();
            head.extend(self.head(plan, shown));
            groups.push((start..head.len(), self.event(shown)));
        }
        let numbers = head.len();
        let rows = self.selected.rows.iter().map(|row| {
            let mut line = Vec::with_capacity(numbers);
            if !is_one {
                line.push(format!("{:.2}", self.selected.weight(row)));
            }
            shown.iter().for_each(|shown| line.extend(self.line(plan, shown, row)));
            line
        });
        let mut cells: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
        for (line, names) in cells.iter_mut().zip(self.names) {
            line.extend(names.iter().cloned());
        }
        if is_one {
            groups.clear();
        }
        Columns { cells, numbers, groups, left_out: self.left_out(plan) }
    }

    fn event(&self, shown: &Shown) -> String {
        escaped(&self.summary.events[shown.event].event.name)
    }

    /// The shares an event has, and which have their margin.
    fn metrics(&self, plan: Plan) -> impl Iterator<Item = (&'static str, bool)> {
        let is_one = self.selected.events.len() == 1;
        let decisive = self.args.sort().what_decides();
        let shown = move |metric: &&str| plan.both || *metric == decisive;
        // Of several events there is room for one margin each.
        let has_margin = move |metric| plan.margins && (is_one || !plan.both || metric == "self");
        ["self", "total"].into_iter().filter(shown).map(move |metric| (metric, has_margin(metric)))
    }

    /// The names of the columns of an event.
    fn head(&self, plan: Plan, shown: &Shown) -> Vec<String> {
        let decisive = self.args.sort().what_decides();
        let mut head = Vec::new();
        for (metric, has_margin) in self.metrics(plan) {
            head.push(format!("{metric} %"));
            head.extend(has_margin.then(|| "±".to_owned()));
        }
        head.extend(plan.samples.then(|| "samples".to_owned()));
        let unit = || Scale::of(&self.summary.events[shown.event]).unit;
        head.extend(plan.amount.then(|| format!("{decisive} {}", unit())));
        head
    }

    /// What a row has in them.
    fn line(&self, plan: Plan, shown: &Shown, row: &Row) -> Vec<String> {
        let tally = &row.tallies[shown.event];
        let decisive = self.args.sort().decisive(tally);
        let margin = |sum: Sum| {
            let margin = self.args.options.confidence().margin(sum.samples, shown.whole.samples);
            format!("{:.2}", 100.0 * margin)
        };
        let mut line = Vec::new();
        for (metric, has_margin) in self.metrics(plan) {
            let sum = if metric == "self" { tally.own } else { tally.total };
            line.push(format!("{:.2}", sum.percent_of(shown.whole)));
            line.extend(has_margin.then(|| margin(sum)));
        }
        line.extend(plan.samples.then(|| decisive.samples.to_string()));
        let scale = || Scale::of(&self.summary.events[shown.event]);
        line.extend(plan.amount.then(|| scale().print(decisive.weight)));
        line
    }

    /// What a plan is without. The share tells the weight as well: that is not missed.
    fn left_out(&self, plan: Plan) -> Vec<String> {
        let decides_self = self.args.sort().what_decides() == "self";
        let other = if decides_self { "total %" } else { "self %" };
        let columns = [(plan.samples, "samples"), (plan.margins, "±"), (plan.both, other)];
        let mut left_out: Vec<String> = columns
            .iter()
            .filter(|(has, _)| !has)
            .map(|(_, column)| (*column).to_owned())
            .collect();
        left_out.extend(self.selected.events[plan.events..].iter().map(|shown| self.event(shown)));
        left_out
    }
}

/// What a table of so many events may have, the most first; each has less than the one before.
fn plans(events: usize) -> Vec<Plan> {
    let is_one = events == 1;
    let mut plan = Plan { amount: is_one, samples: true, margins: true, both: true, events };
    let mut plans = vec![plan];
    if is_one {
        plan.amount = false;
        plans.push(plan);
    }
    plan.samples = false;
    plans.push(plan);
    plan.margins = false;
    plans.push(plan);
    plan.both = false;
    plans.push(plan);
    plans.extend((1..events).rev().map(|events| Plan { events, ..plan }));
    plans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_has_less_than_the_one_before() {
        let size = |plan: &Plan| {
            let columns = [plan.amount, plan.samples, plan.margins, plan.both];
            plan.events * 10 + columns.iter().filter(|has| **has).count()
        };
        for (events, count) in [(1, 5), (2, 5), (4, 7)] {
            let plans = plans(events);
            assert_eq!(plans.len(), count);
            assert!(plans.is_sorted_by(|a, b| size(a) > size(b)));
            assert_eq!(plans[count - 1].events, 1);
        }
    }
}
