//! From the command line to the report.

use std::process::ExitCode;

use nprof_cli::usage;
use nprof_report::machine::{csv, tsv};
use nprof_report::profile::{Cell, Context, Split, Sum};
use nprof_report::report::{self, Failure, Renderer, Report};
use nprof_report::summary::Summary;

use crate::args::{Args, Format, TOOL};
use crate::print::{delimited, table};
use crate::rows::flat::Flat;
use crate::rows::select::{self, Selected};

/// Runs the tool on the process's arguments.
pub fn run() -> ExitCode {
    let args: Args = match usage::arguments(TOOL) {
        Ok(args) => args,
        Err(end) => return end,
    };
    let flat = Flat::new(args.columns(), args.time(), args.options.filter());
    report::run(
        TOOL,
        &args.options,
        FlatReport { flat, args: &args },
        &FlatRenderer { args: &args },
    )
}

/// The samples by row, and the options that select rows.
#[derive(Clone)]
struct FlatReport<'a> {
    flat: Flat,
    args: &'a Args,
}

impl Report for FlatReport<'_> {
    type Rows = Selected;

    fn split(&self) -> Split {
        self.flat.split()
    }

    fn add(&mut self, context: &Context<'_>, cell: &Cell, sum: Sum) {
        self.flat.add(context, cell, sum);
    }

    fn rows(&self, summary: &Summary) -> Result<Selected, Failure> {
        let args = self.args;
        let (sort, limits) = (args.sort(), args.row_limits());
        Ok(select::select(&self.flat, summary, sort, &limits, args.options.rebase))
    }
}

/// Prints the selected rows.
struct FlatRenderer<'a> {
    args: &'a Args,
}

impl Renderer<Selected> for FlatRenderer<'_> {
    fn render(
        &self,
        selected: &Selected,
        summary: &Summary,
        width: Option<usize>,
    ) -> Result<Vec<u8>, Failure> {
        let (args, columns) = (self.args, &self.args.columns()[..]);
        Ok(match args.format {
            Format::Table => table::print(columns, selected, summary, args, width),
            Format::Tsv => tsv(&delimited::lines(columns, selected, summary, args)),
            Format::Csv => csv(&delimited::lines(columns, selected, summary, args))?,
            Format::Json => delimited::json(columns, selected, summary, args)?,
        })
    }
}
