//! The command line of nprof-paths.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};

/// Says how the programs of a recording got where they were.
///
/// 100 % is all samples of the event. Frames of one function count as one, whatever address
/// they were called from; functions of the same name in different images are different.
#[derive(Debug, Parser)]
#[command(name = "nprof-paths", version)]
pub(crate) struct Args {
    /// What to show
    #[arg(long, value_name = "VIEW", default_value = "paths")]
    pub(crate) view: View,
    /// How to print it; folded and flamegraph have no views
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: Format,
    /// Only this event [default: all; the first one in folded and flamegraph]
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,
    /// Drop paths, fold subtrees, of N or fewer samples
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Drop paths, fold subtrees, below P per cent [default: 1 in a table of --view tree, else 0]
    #[arg(long, value_name = "P", value_parser = percent)]
    pub(crate) min_percent: Option<f64>,
    /// Print at most N paths of each event, 0 for all [default: 20 in a table, else all]
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) paths: Option<usize>,
    /// Exit with status 0 even if a stream is truncated or damaged
    #[arg(long)]
    pub(crate) partial_ok: bool,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Streams to read, merged into one report; `-` or none is standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Each distinct call path, the most frequent first, leaf first, with the lines hit
    Paths,
    /// The call tree from the roots down
    Tree,
}

/// How it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// A line per path, `command;root;...;leaf samples`, as flame graph programs read it
    Folded,
    /// A flame graph, SVG
    Flamegraph,
    /// A path or node a line, fields separated by tabs, after a line of column names
    Tsv,
    /// As tsv, in CSV (RFC 4180)
    Csv,
    /// One object, with what the heading of a table says
    Json,
}

impl Format {
    /// Whether paths begin with the command.
    pub(crate) fn has_commands(self) -> bool {
        self.has_one_event()
    }

    /// Whether it has room for one event only.
    pub(crate) fn has_one_event(self) -> bool {
        matches!(self, Format::Folded | Format::Flamegraph)
    }
}

/// What is printed of all there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// What has this many samples or fewer is left out.
    pub(crate) limit: Option<u64>,
    /// What has a smaller share is left out.
    pub(crate) min_percent: f64,
    /// No more paths than this are printed of an event.
    pub(crate) paths: Option<usize>,
}

impl Choice {
    /// The options that leave something out, as the user would spell them.
    pub(crate) fn why(&self) -> String {
        let limit = self.limit.map(|limit| format!("--limit {limit}"));
        let least = (self.min_percent > 0.0).then(|| format!("--min-percent {}", self.min_percent));
        limit.into_iter().chain(least).collect::<Vec<_>>().join(" ")
    }
}

/// How many paths of an event a table has when nothing is asked.
const TABLE_PATHS: usize = 20;

/// The smallest share of a node in a table of the tree when nothing is asked.
const TREE_PERCENT: f64 = 1.0;

impl Args {
    /// What the user asked for; ends the program when it makes no sense.
    pub(crate) fn get() -> Self {
        let args = Self::parse();
        if args.has_tree() && args.paths.is_some() {
            let what = "-n counts paths and --view tree has none: use --min-percent";
            Self::command().error(ErrorKind::ArgumentConflict, what).exit();
        }
        args
    }

    /// Whether the tree is to be shown.
    pub(crate) fn has_tree(&self) -> bool {
        self.view == View::Tree && !self.format.has_one_event()
    }

    /// The streams to read; `None` is standard input.
    pub(crate) fn operands(&self) -> Vec<Option<&Path>> {
        match &self.files[..] {
            [] => vec![None],
            files => files.iter().map(|file| Some(file.as_path())).collect(),
        }
    }

    /// What to print.
    pub(crate) fn choice(&self) -> Choice {
        let table = self.format == Format::Table;
        let usual_paths = if table { TABLE_PATHS } else { 0 };
        let usual_percent = if table && self.has_tree() { TREE_PERCENT } else { 0.0 };
        Choice {
            limit: self.limit,
            min_percent: self.min_percent.unwrap_or(usual_percent),
            paths: Some(self.paths.unwrap_or(usual_paths)).filter(|&paths| paths > 0),
        }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a number from 0 to 100".to_owned())
}
