//! Runs the tool: from the command line to the printed report.

use std::io::Write;
use std::process::ExitCode;

use nprof_cli::usage;
use nprof_report::args::TableFormat;
use nprof_report::legend;
use nprof_report::machine_formats::{csv, tsv};
use nprof_report::profile::{Context, GroupBy, GroupKey, Sum};
use nprof_report::ratio::{DivisorError, Per};
use nprof_report::report::{self, Failure, Report};
use nprof_report::summary::Summary;

use crate::args::{Args, TOOL};
use crate::print::context::PrintContext;
use crate::print::{delimited, json, table};
use crate::select::{Order, SelectedRows, select};
use nprof_report::rows::flat::Flat;

/// Runs nprof-flat with the arguments of the process; returns its exit status.
pub fn run() -> ExitCode {
    let args: Args = match usage::arguments(TOOL) {
        Ok(args) => args,
        Err(status) => return status,
    };
    let flat = Flat::new(args.columns(), args.time(), args.filter());
    let report = FlatReport { flat, args: &args };
    report::run(TOOL, &args.options, report, &|rows: &_, summary: &_, width, out: &mut _| {
        render(&args, rows, summary, width, out)
    })
}

/// The samples by row, and the options that select rows.
#[derive(Clone)]
struct FlatReport<'a> {
    flat: Flat,
    args: &'a Args,
}

impl Report for FlatReport<'_> {
    type Rows = SelectedRows;

    fn group_by(&self) -> GroupBy {
        self.flat.group_by()
    }

    fn add(&mut self, context: &Context<'_>, group: &GroupKey, sum: Sum) {
        self.flat.add(context, group, sum);
    }

    fn rows(&self, summary: &Summary) -> Result<SelectedRows, Failure> {
        let args = self.args;
        let order = Order { sort: args.sort(), groups: args.groups() };
        let mut per = match args.per.as_deref() {
            Some(name) => Per::named(summary, name)?,
            None => None,
        };
        if let Some(per) = &mut per {
            let exact_ns = summary.events[per.event].event.exact_ns;
            if per.counts_calls && exact_ns.is_some_and(|slice_ns| args.has_whole_leaves(slice_ns))
            {
                per.error = DivisorError::None;
            }
        }
        Ok(select(&self.flat, summary, order, &args.row_limits(), args.options.rebase, per))
    }

    fn notes(&self, summary: &Summary) -> Vec<String> {
        // A table has it in its heading.
        let is_table = self.args.format == TableFormat::Table;
        let events = (0..summary.events.len()).filter(|_| !is_table);
        let note = |event: usize| {
            let sums = self.flat.folded(event)?;
            let whole = summary.events[event].sum;
            let [other, bound] = [sums.other, sums.bound].map(|sum| sum.percent_of(whole));
            Some(legend::folded(&summary.event_name(event), other, "rows", bound))
        };
        self.flat.notes().into_iter().chain(events.filter_map(note)).collect()
    }
}

/// Prints the rows in the format of the command line.
fn render(
    args: &Args,
    selected: &SelectedRows,
    summary: &Summary,
    width: Option<usize>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let columns = &args.columns()[..];
    let context = PrintContext { columns, selected, summary, args, width };
    match args.format {
        TableFormat::Table => out.write_all(&table::print(&context))?,
        TableFormat::Tsv => tsv(delimited::lines(&context), out)?,
        TableFormat::Csv => csv(delimited::lines(&context), out)?,
        TableFormat::Json => json::print(&context, out)?,
    }
    Ok(())
}
