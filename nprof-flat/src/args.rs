//! The command line of nprof-flat.

use clap::{Parser, ValueEnum};
use nprof_report::key::{By, Key};
use nprof_report::report::{self, Options};
use nprof_report::time::TimeSplit;

use crate::rows::columns::columns;
use crate::rows::select::Sort;

/// What messages begin with.
pub(crate) const TOOL: &str = "nprof-flat";

/// Says where the time of a recording is: by function, line, address, image, thread, ...
///
/// `self` is what fell on the row itself, `total` also what it called; a function counts once
/// per sample however deep it recurses. 100 % is all samples of the event.
#[derive(Clone, Debug, Parser)]
#[command(name = "nprof-flat", version)]
pub(crate) struct Args {
    /// What a row is; several combine: event, run, process, thread, command, cpu, slice=TIME,
    /// image, function, file, line, address
    #[arg(long, value_name = "KEY", value_delimiter = ',', default_value = "function")]
    by: Vec<By>,
    /// What rows are sorted by; equal ones by name [default: self; by slice first: name]
    #[arg(long, value_name = "ORDER")]
    sort: Option<Sort>,
    /// How to print the report
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// A row a line, fields separated by tabs, after a line of column names
    Tsv,
    /// As tsv, in CSV (RFC 4180)
    Csv,
    /// One object, with what the heading of a table says
    Json,
}

/// How many rows a table has when nothing is asked.
const TABLE_ROWS: usize = 40;

impl Args {
    /// What names a row.
    pub(crate) fn columns(&self) -> Vec<Key> {
        columns(&self.by)
    }

    /// What rows are sorted by. Slices follow each other as they do in time.
    pub(crate) fn sort(&self) -> Sort {
        self.sort.unwrap_or(if self.is_by_time() { Sort::Name } else { Sort::Own })
    }

    fn is_by_time(&self) -> bool {
        self.by.first().is_some_and(|by| by.slice.is_some())
    }

    /// How times are told apart: slices are as long as was asked for last.
    pub(crate) fn time(&self) -> TimeSplit {
        let slice = self.by.iter().rev().find_map(|by| by.slice);
        TimeSplit { slice, span: self.options.time }
    }

    /// Which rows to print.
    pub(crate) fn row_limits(&self) -> report::RowLimits {
        let is_table = self.format == Format::Table && !self.is_by_time();
        self.options.row_limits(0.0, if is_table { TABLE_ROWS } else { 0 })
    }
}
