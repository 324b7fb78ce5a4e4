//! From the command line to the report.

use std::process::ExitCode;

use nprof_cli::usage;
use nprof_report::machine::{csv, tsv};
use nprof_report::profile::{Cell, Context, Split, Sum};
use nprof_report::report::{self, Failure, Report};
use nprof_report::summary::Summary;

use crate::args::{Args, Format, TOOL};
use crate::print::{delimited, table};
use crate::rows::flat::Flat;
use crate::rows::select;

/// Runs the tool on the process's arguments.
pub fn run() -> ExitCode {
    let args: Args = match usage::arguments(TOOL) {
        Ok(args) => args,
        Err(end) => return end,
    };
    let flat = Flat::new(args.columns(), args.time(), args.options.filter());
    report::run(TOOL, &args.options, Printed { flat, args: &args })
}

/// The rows, and how they are to be printed.
#[derive(Clone)]
struct Printed<'a> {
    flat: Flat,
    args: &'a Args,
}

impl Report for Printed<'_> {
    fn split(&self) -> Split {
        self.flat.split()
    }

    fn add(&mut self, context: &Context<'_>, cell: &Cell, sum: Sum) {
        self.flat.add(context, cell, sum);
    }

    fn print(&self, summary: &Summary, width: Option<usize>) -> Result<Vec<u8>, Failure> {
        let (args, columns) = (self.args, self.flat.columns());
        let selected =
            select::select(&self.flat, summary, args.sort(), &args.choice(), args.options.rebase);
        let lines = || delimited::lines(columns, &selected, summary, args);
        Ok(match args.format {
            Format::Table => table::print(columns, &selected, summary, args, width),
            Format::Tsv => tsv(&lines()),
            Format::Csv => csv(&lines())?,
            Format::Json => delimited::json(columns, &selected, summary, args)?,
        })
    }
}
