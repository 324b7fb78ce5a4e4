//! The command line of nprof-flat.

use clap::Parser;
use nprof_report::args::TableFormat;
use nprof_report::key::{By, Key};
use nprof_report::report::{Options, RowLimits};
use nprof_report::time::TimeSplit;

use crate::rows::columns::columns;
use crate::rows::select::Sort;

/// The tool's name, which begins its messages.
pub(crate) const TOOL: &str = "nprof-flat";

/// Prints where the time of a recording is: by function, line, address, image, thread, ...
///
/// `self` counts samples in the row itself, `total` also samples in its callees; a recursive
/// function counts once per sample. 100 % is all samples of the event.
#[derive(Clone, Debug, Parser)]
#[command(name = "nprof-flat", version)]
pub(crate) struct Args {
    /// Keys of a row, several combine: event, run, process, thread, command, cpu, slice=TIME,
    /// image, function, file, line, address
    #[arg(long, value_name = "KEY", value_delimiter = ',', default_value = "function")]
    by: Vec<By>,
    /// Order of rows; equal ones by name [default: self; name if the first key is slice]
    #[arg(long, value_name = "ORDER")]
    sort: Option<Sort>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: TableFormat,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Default number of rows in a table.
const TABLE_ROWS: usize = 40;

impl Args {
    /// Returns the columns that name a row.
    pub(crate) fn columns(&self) -> Vec<Key> {
        columns(&self.by)
    }

    /// Returns the order of rows. Time slices are in the order of time.
    pub(crate) fn sort(&self) -> Sort {
        // Sorted by share, a series of slices would be out of order.
        self.sort.unwrap_or(if self.is_by_time() { Sort::Name } else { Sort::Self_ })
    }

    fn is_by_time(&self) -> bool {
        self.by.first().is_some_and(|by| by.slice.is_some())
    }

    /// Returns the time slices; of several lengths the last one holds.
    pub(crate) fn time(&self) -> TimeSplit {
        // A profile is cut into slices of one length, so two lengths cannot be combined.
        let slice = self.by.iter().rev().find_map(|by| by.slice);
        TimeSplit { slice, span: self.options.time }
    }

    /// Returns the limits of the report's rows.
    pub(crate) fn row_limits(&self) -> RowLimits {
        // Rows of time slices are a time series, which has no gaps in a table either.
        let is_limited = self.format == TableFormat::Table && !self.is_by_time();
        self.options.row_limits(0.0, if is_limited { TABLE_ROWS } else { 0 })
    }

    /// Returns all options that filter samples or calls, as the user spelled them.
    pub(crate) fn rules(&self) -> Vec<String> {
        [self.options.sample_rules(), self.options.filter().spelled(true)].concat()
    }
}
