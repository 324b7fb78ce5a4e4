//! The command line of nprof-paths.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, Parser, ValueEnum};
use nprof_cli::usage;
use nprof_report::args::StackFormat;
use nprof_report::filter::Filter;
use nprof_report::flamegraph::MIN_PERCENT;
use nprof_report::legend;
use nprof_report::profile::{FoldedSums, Sum};
use nprof_report::report::{Options, RowLimits};

use crate::tree::path_filter::{PathFilter, PathFilterKind, PathPattern};

/// The tool's name, which begins its messages.
pub(crate) const TOOL: &str = "nprof-paths";

/// Prints the call paths of a recording: by which calls its programs came to each sample.
///
/// 100 % is all samples of the event. Calls of one function from different
/// addresses are one call; functions of the same name in different images are different.
#[derive(Clone, Debug, Parser)]
#[command(name = "nprof-paths", version)]
pub(crate) struct Args {
    /// View of the call paths
    #[arg(long, value_name = "VIEW", default_value = "paths")]
    pub(crate) view: View,
    /// Output format; folded, flamegraph and icicle print whole paths (--view paths or callers)
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: StackFormat,
    /// Report only this event [default: all; the first one in folded, flamegraph and icicle]
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,
    /// Divide the other events by this one on the same path, such as waiting by calls
    #[arg(long, value_name = "EVENT")]
    pub(crate) per: Option<String>,
    /// Keep only paths that match, from the match on. PATH is regular expressions, callers first,
    /// joined by `;`, with `...` for any calls. Repeatable; applied in the order given
    #[arg(long, value_name = "PATH")]
    focus: Vec<PathPattern>,
    /// Keep only paths that match, as they are; repeatable
    #[arg(long, value_name = "PATH")]
    through: Vec<PathPattern>,
    /// End paths at the match, with the samples of its callees; repeatable
    #[arg(long, value_name = "PATH")]
    until: Vec<PathPattern>,
    /// Show source lines from files below DIR, in --format html; repeatable
    #[arg(long, value_name = "DIR")]
    pub(crate) source_dir: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) options: Options,
    /// `--focus`, `--through` and `--until` in the order of the command line.
    #[arg(skip)]
    pub(crate) path_filters: Vec<PathFilter>,
}

/// A view of the call paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Each distinct call path, the most frequent first, leaf first, with the leaf's source lines
    Paths,
    /// The call tree from the outermost functions down
    Tree,
    /// The inverted call tree, from the leaves up to their callers
    Callers,
    /// Each function with its callers above and its callees below
    Graph,
}

impl View {
    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            View::Paths => "paths",
            View::Tree => "tree",
            View::Callers => "callers",
            View::Graph => "graph",
        }
    }
}

/// Default number of paths per event in a table.
const TABLE_PATHS: usize = 20;

/// Default number of functions per event in a table of the graph.
const TABLE_FUNCTIONS: usize = 30;

/// Default minimum share in a table of a tree or graph.
const TREE_PERCENT: f64 = 1.0;

impl Args {
    /// Parses the command line of the process.
    ///
    /// # Errors
    ///
    /// Returns the exit status if the options are wrong, or only ask for help or the version.
    pub(crate) fn get(tool: &str) -> Result<Self, ExitCode> {
        let (mut args, matches) = usage::arguments_and_matches::<Self>(tool)?;
        if let Some(conflict) = args.conflict() {
            let error = Self::command().error(ErrorKind::ArgumentConflict, conflict);
            return Err(usage::end(tool, &error));
        }
        args.path_filters = in_order(&args, &matches);
        Ok(args)
    }

    /// Returns the message for options that exclude each other. None if there are none.
    fn conflict(&self) -> Option<String> {
        let (view, format) = (self.view.name(), self.format.name());
        if self.format == StackFormat::Html {
            return self.conflict_with_page();
        }
        if !self.source_dir.is_empty() {
            return Some(format!("--source-dir is for --format html, not {format}"));
        }
        if self.format.is_stacks() && matches!(self.view, View::Tree | View::Graph) {
            return Some(format!(
                "--format {format} prints whole paths, not --view {view}; use --view paths or \
                 --view callers"
            ));
        }
        self.per.as_ref()?;
        if self.format.is_stacks() {
            return Some(format!("--format {format} has no room for the ratios of --per"));
        }
        matches!(self.view, View::Callers | View::Graph).then(|| {
            format!(
                "--per divides by path, not in --view {view}; use --view paths or --view tree, or \
                 nprof-flat --per, which divides by function"
            )
        })
    }

    /// Returns the message for an option that a page does not have. None if there is none.
    fn conflict_with_page(&self) -> Option<String> {
        let filters = [&self.focus, &self.through, &self.until];
        let option = match self {
            _ if self.view != View::Paths => "--view",
            _ if self.per.is_some() => "--per",
            _ if filters.iter().any(|filter| !filter.is_empty()) => {
                "--focus, --through and --until"
            }
            _ => return None,
        };
        Some(format!("--format html has all call paths, without {option}"))
    }

    /// Returns the filter; the divisor has no row that it could hide.
    pub(crate) fn filter(&self) -> Filter {
        self.options.filter().with_event(self.per.as_deref())
    }

    /// Returns the limits of the report's rows.
    pub(crate) fn row_limits(&self) -> RowLimits {
        // Machine formats omit nothing by default: filtering is up to their readers.
        let (percent, rows) = match (self.format, self.view) {
            (StackFormat::Table, View::Paths) => (0.0, TABLE_PATHS),
            (StackFormat::Table, View::Graph) => (TREE_PERCENT, TABLE_FUNCTIONS),
            (StackFormat::Table, View::Tree | View::Callers) => (TREE_PERCENT, 0),
            // Narrower frames are below the resolution of a screen.
            (StackFormat::Flamegraph | StackFormat::Icicle, _) => (MIN_PERCENT, 0),
            _ => (0.0, 0),
        };
        self.options.row_limits(percent, rows)
    }

    /// Returns the line about the calls of an event that were folded to bound memory.
    pub(crate) fn folded_line(&self, event: &str, sums: FoldedSums, whole: Sum) -> String {
        let other = sums.other.percent_of(whole);
        let (rows, bound) = match self.view {
            View::Paths | View::Tree => ("call paths", sums.bound.percent_of(whole).min(other)),
            // The calls of one function are on many paths, and all of them may be folded.
            View::Callers | View::Graph => ("call paths; by function", other),
        };
        legend::folded(event, other, rows, bound)
    }

    /// Returns all options that filter samples or paths, as the user spelled them.
    pub(crate) fn rules(&self) -> Vec<String> {
        let mut rules = self.options.sample_rules();
        rules.extend(self.options.filter().spelled(true));
        rules.extend(self.path_filters.iter().map(PathFilter::spelled));
        rules
    }
}

/// Returns the path filters in the order of the command line; clap keeps it only by index.
fn in_order(args: &Args, matches: &ArgMatches) -> Vec<PathFilter> {
    let mut found = Vec::new();
    for (kind, patterns) in [
        (PathFilterKind::Focus, &args.focus),
        (PathFilterKind::Through, &args.through),
        (PathFilterKind::Until, &args.until),
    ] {
        // Indices and values of an option are in the same order.
        let indices = matches.indices_of(kind.option()).into_iter().flatten();
        for (index, pattern) in indices.zip(patterns) {
            found.push((index, PathFilter { kind, pattern: pattern.clone() }));
        }
    }
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, filter)| filter).collect()
}
