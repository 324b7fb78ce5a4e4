//! Arguments that several reports have.

use clap::ValueEnum;

pub use nprof_cli::args::{Inputs, OutputFile, PartialOk};

/// The formats of a report of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// For people
    Table,
    /// A row a line, fields separated by tabs, after a line of column names
    Tsv,
    /// As tsv, in CSV (RFC 4180)
    Csv,
    /// One object, with the facts of a table's heading
    Json,
}

/// The formats of a report that can be drawn as stacks, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StackFormat {
    /// For people
    Table,
    /// Folded stacks, a line per path, as flame graph programs read them
    Folded,
    /// A flame graph, SVG
    Flamegraph,
    /// A flame graph with the roots at the top
    Icicle,
    /// A page for browsers: flame graph, functions with callers and callees, timeline
    Html,
    /// A row a line, fields separated by tabs, after a line of column names
    Tsv,
    /// As tsv, in CSV (RFC 4180)
    Csv,
    /// One object, with the facts of a table's heading
    Json,
}

impl StackFormat {
    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            StackFormat::Table => "table",
            StackFormat::Folded => "folded",
            StackFormat::Flamegraph => "flamegraph",
            StackFormat::Icicle => "icicle",
            StackFormat::Html => "html",
            StackFormat::Tsv => "tsv",
            StackFormat::Csv => "csv",
            StackFormat::Json => "json",
        }
    }

    /// True if it draws stacks: paths begin with the command, and there is room for one event.
    pub fn is_stacks(self) -> bool {
        matches!(self, StackFormat::Folded | StackFormat::Flamegraph | StackFormat::Icicle)
    }
}
