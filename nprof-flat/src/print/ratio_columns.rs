//! The columns of a table of ratios (`--per`): for each event the sum of a row, the sum that it is
//! divided by, their ratio and its margin of error. Pure.

use nprof_report::layout::{self, Scale};
use nprof_report::ratio::{Per, Ratio};
use nprof_report::ratio_scale::RatioScale;

use crate::print::context::PrintContext;
use crate::print::table_cells::{NAME_WIDTH, TableCells};

/// The numbers in a table of ratios.
#[derive(Clone, Copy)]
struct Plan {
    /// Both sums, not only their ratio.
    sums: bool,
    events: usize,
}

/// Returns the numbers and names that fit into the width of the terminal. The sums are left out first,
/// then events from the last one on.
pub(crate) fn fit(context: &PrintContext<'_>, names: &[Vec<String>], per: Per) -> TableCells {
    let count = context.selected.events.len();
    let mut plans = vec![Plan { sums: true, events: count }];
    plans.extend((1..=count).rev().map(|events| Plan { sums: false, events }));
    let fits = |table: &TableCells| {
        let width = |width| layout::least_width(&table.cells, table.numbers, NAME_WIDTH) <= width;
        context.width.is_none_or(width)
    };
    let mut tables = plans.into_iter().map(|plan| cells(context, names, per, plan));
    let mut table = tables.next().unwrap_or_default();
    // The smallest one is used even if it does not fit: the layout then shortens the names.
    while !fits(&table) {
        let Some(smaller) = tables.next() else { break };
        table = smaller;
    }
    table
}

fn cells(context: &PrintContext<'_>, names: &[Vec<String>], per: Per, plan: Plan) -> TableCells {
    let (selected, summary) = (context.selected, context.summary);
    let metric = context.args.sort().sort_metric();
    let confidence = context.args.options.confidence();
    let divisor = &summary.events[per.event];
    let divisor_scale = Scale::of(divisor);
    let events = &selected.events[..plan.events];
    let (mut header, mut groups) = (Vec::new(), Vec::new());
    for event in events {
        let start = header.len();
        let dividend = &summary.events[event.event];
        if plan.sums {
            header.push(format!("{} {}", metric.name(), Scale::of(dividend).unit));
            header.push(match per.counts_calls {
                true => summary.event_name(per.event),
                false => format!("{} {}", summary.event_name(per.event), divisor_scale.unit),
            });
        }
        header.extend([RatioScale::of(dividend, divisor).unit, "±".to_owned()]);
        groups.push((start..header.len(), context.event_name(event)));
    }
    let numbers = header.len();
    let mut cells = vec![header];
    for row in &selected.rows {
        let mut line = Vec::with_capacity(numbers);
        for event in events {
            let dividend = &summary.events[event.event];
            let ratio = context.ratio(row, event.event, per, metric);
            let Ratio { numerator, denominator, .. } = ratio;
            if plan.sums {
                line.push(Scale::of(dividend).print(numerator.weight));
                line.push(divisor_scale.print(denominator.weight));
            }
            line.extend(RatioScale::of(dividend, divisor).print(&ratio, confidence));
        }
        cells.push(line);
    }
    for (line, names) in cells.iter_mut().zip(names) {
        line.extend(names.iter().cloned());
    }
    // The name of a single event is in the heading.
    if selected.events.len() == 1 {
        groups.clear();
    }
    let mut left_out: Vec<String> = Vec::new();
    if !plan.sums {
        left_out.extend([metric.name().to_owned(), summary.event_name(per.event)]);
    }
    left_out.extend(selected.events[plan.events..].iter().map(|event| context.event_name(event)));
    TableCells { cells, numbers, groups, left_out }
}

/// Returns the line above a table on the meaning of the ratio.
pub(crate) fn legend(context: &PrintContext<'_>, per: Per) -> String {
    let name = context.summary.event_name(per.event);
    let metric = context.args.sort().sort_metric();
    let of = match (per.counts_calls, metric) {
        (true, _) => "the calls of the row".to_owned(),
        (false, metric) => format!("{} of {name}", metric.name()),
    };
    let overhead = per.legend(context.summary, context.selected.events.iter().map(|it| it.event));
    format!("{} is divided by {of} (--per {name}){overhead}", metric.name())
}
