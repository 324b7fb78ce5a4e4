//! The formats and orders of a report.

use clap::ValueEnum;

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The largest difference in self first
    #[value(name = "self")]
    Own,
    /// The largest difference in total first
    Total,
    /// Name, then image
    Name,
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// What changed, for people
    Table,
    /// A row a line, fields separated by tabs, after a line of column names
    Tsv,
    /// As tsv, in CSV (RFC 4180)
    Csv,
    /// One object, with what the heading of a table says
    Json,
    /// Folded stacks with two counts, of base and new, as difffolded.pl writes them
    Folded,
    /// A differential flame graph, SVG
    Flamegraph,
}
