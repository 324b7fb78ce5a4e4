//! nprof-flat: where the time of a recording is, by function, line, address, image, thread, ...
//! Reads streams, writes a table.
//!
//!     nprof-record -o - -- ./prog | nprof-symbolize | nprof-flat

mod args;
mod columns;
mod flat;
mod key;
mod machine;
mod select;
mod table;

use std::process::ExitCode;

use nprof_format::machine::{csv, tsv};
use nprof_format::profile::{Cell, Context, Split, Sum};
use nprof_format::report::{self, Failure, Report};
use nprof_format::summary::Summary;
use nprof_format::usage;

use args::{Args, Format};
use flat::Flat;

/// What messages begin with.
const TOOL: &str = "nprof-flat";

fn main() -> ExitCode {
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
        let lines = || machine::lines(columns, &selected, summary, args);
        Ok(match args.format {
            Format::Table => table::print(columns, &selected, summary, args, width),
            Format::Tsv => tsv(&lines()),
            Format::Csv => csv(&lines())?,
            Format::Json => machine::json(columns, &selected, summary, args)?,
        })
    }
}
