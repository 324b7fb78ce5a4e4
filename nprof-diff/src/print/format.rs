//! `--format`: the format of the report.

use clap::ValueEnum;

/// The formats of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// For people
    Table,
    /// For comments in GitHub and GitLab
    Markdown,
    /// A test case for each bound of --fail-on, as CI servers read them
    Junit,
    /// Folded stacks, a line per path, as flame graph programs read them
    Folded,
    /// A flame graph, SVG
    Flamegraph,
    /// A flame graph with the roots at the top
    Icicle,
    /// A page for browsers: the functions, and a flame graph of both sides with callers and callees
    Html,
    /// A row a line, fields separated by tabs, after a line of column names
    Tsv,
    /// As tsv, in CSV (RFC 4180)
    Csv,
    /// One object, with the facts of a table's heading
    Json,
}

impl DiffFormat {
    /// True if it draws call paths.
    pub(crate) fn is_stacks(self) -> bool {
        matches!(self, Self::Folded | Self::Flamegraph | Self::Icicle)
    }

    /// True if it has functions and their call paths.
    pub(crate) fn is_page(self) -> bool {
        self == Self::Html
    }

    /// True if it is a list of the changes for people, of limited length.
    pub(crate) fn is_list_of_changes(self) -> bool {
        matches!(self, Self::Table | Self::Markdown)
    }

    /// True if the report contains the warnings.
    pub(crate) fn has_warnings(self) -> bool {
        matches!(self, Self::Table | Self::Markdown | Self::Html | Self::Json)
    }
}
