//! The command line of nprof-flat.

use clap::Parser;
use nprof_report::args::TableFormat;
use nprof_report::filter::Filter;
use nprof_report::key::{By, Key};
use nprof_report::report::{Options, RowLimits};
use nprof_report::time::TimeSplit;

use crate::select::{Groups, Sort};
use nprof_report::rows::columns::{columns, group_columns};

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
    /// call, state, on, image, function, file, line, address
    #[arg(long, value_name = "KEY", value_delimiter = ',', default_value = "function")]
    by: Vec<By>,
    /// Order of rows; equal ones by name [default: self; total with --per; name for slices alone]
    #[arg(long, value_name = "ORDER")]
    sort: Option<Sort>,
    /// Divide the other events by this one, such as waiting by calls
    #[arg(long, value_name = "EVENT")]
    pub(crate) per: Option<String>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: TableFormat,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Default number of rows in a table.
const TABLE_ROWS: usize = 40;

/// Default number of rows in each group of a table.
const GROUP_ROWS: usize = 10;

impl Args {
    /// Returns the columns that name a row.
    pub(crate) fn columns(&self) -> Vec<Key> {
        columns(&self.by)
    }

    /// Returns the filter; the divisor has no row that it could hide.
    pub(crate) fn filter(&self) -> Filter {
        self.options.filter().with_event(self.per.as_deref())
    }

    /// Returns the order of rows.
    pub(crate) fn sort(&self) -> Sort {
        // Sorted by share, a series of slices would be out of order.
        self.sort.unwrap_or(match self.per {
            _ if self.is_time_series() => Sort::Name,
            // The cost of a call includes its callees.
            Some(_) => Sort::Total,
            None => Sort::Self_,
        })
    }

    /// Returns the groups of rows.
    pub(crate) fn groups(&self) -> Groups {
        let columns = self.columns();
        Groups {
            columns: group_columns(&columns),
            in_time: columns.first() == Some(&Key::Slice),
            per_event: self.by.iter().any(|by| by.key == Key::Event),
        }
    }

    /// True if the rows are time slices alone.
    fn is_time_series(&self) -> bool {
        self.columns() == [Key::Slice]
    }

    /// Returns the time slices; of several lengths the last one holds.
    pub(crate) fn time(&self) -> TimeSplit {
        // A profile is cut into slices of one length, so two lengths cannot be combined.
        let slice = self.by.iter().rev().find_map(|by| by.slice);
        TimeSplit { slice, span: self.options.time }
    }

    /// True if the self of each row has the samples of whole threads and of whole slices of
    /// `slice_ns` nanoseconds with certain functions at the leaf.
    pub(crate) fn has_whole_leaves(&self, slice_ns: u64) -> bool {
        let is_of_part =
            |key: &Key| matches!(key, Key::Cpu | Key::Command | Key::Extra(_) | Key::Path);
        // The samples with a row may depend on their callers.
        !self.options.rebase
            && !self.columns().iter().any(is_of_part)
            && self.time().keeps_whole(slice_ns)
            && self.options.filter().keeps_leaves_whole()
    }

    /// Returns the limits of the report's rows.
    pub(crate) fn row_limits(&self) -> RowLimits {
        let rows = match self.format {
            // A time series has no gaps in a table either.
            TableFormat::Table if self.is_time_series() => 0,
            TableFormat::Table if self.groups().columns > 0 => GROUP_ROWS,
            TableFormat::Table => TABLE_ROWS,
            _ => 0,
        };
        self.options.row_limits(0.0, rows)
    }

    /// Returns all options that filter samples or calls, as the user spelled them.
    pub(crate) fn rules(&self) -> Vec<String> {
        [self.options.sample_rules(), self.options.filter().spelled(true)].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_by_function_thread_and_slice_have_whole_leaves() {
        let is_whole = |words: &[&str]| {
            let args = Args::try_parse_from([&["nprof-flat"], words].concat()).unwrap();
            args.has_whole_leaves(1_000_000_000)
        };
        assert!(is_whole(&[]) && is_whole(&["--by", "function,thread,slice=2s"]));
        assert!(is_whole(&["--by", "line,process", "--match", "thread=x", "--time", "1s.."]));
        for part in [
            &["--by", "cpu"][..],
            &["--by", "slice=100ms"],
            &["--time", "500ms.."],
            &["--exclude", "function=main"],
            &["--match", "command=x"],
            &["--match", "function=x", "--rebase"],
        ] {
            assert!(!is_whole(part), "{part:?}");
        }
    }
}
