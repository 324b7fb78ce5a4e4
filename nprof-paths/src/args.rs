//! The command line of nprof-paths.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, Parser, ValueEnum};
use nprof_cli::usage;
use nprof_report::report::{Options, RowLimits};

use crate::tree::path_filter::{Kind, Pattern, Refinement};

/// What messages begin with.
pub(crate) const TOOL: &str = "nprof-paths";

/// Says how the programs of a recording got where they were.
///
/// 100 % is all samples of the event. Frames of one function count as one, whatever address
/// they were called from; functions of the same name in different images are different.
#[derive(Clone, Debug, Parser)]
#[command(name = "nprof-paths", version)]
pub(crate) struct Args {
    /// What to show
    #[arg(long, value_name = "VIEW", default_value = "paths")]
    pub(crate) view: View,
    /// How to print it; folded and flamegraph are of whole paths
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: Format,
    /// Only this event [default: all; the first one in folded and flamegraph]
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,
    /// Only paths with such a call; they begin with it. PATH is patterns, callers first, joined
    /// by `;`, `...` for any calls; may be given again, each works on what the one before left
    #[arg(long, value_name = "PATH")]
    focus: Vec<Pattern>,
    /// Only paths with such a call; may be given again
    #[arg(long, value_name = "PATH")]
    through: Vec<Pattern>,
    /// End paths at such a call: what it calls is its own; may be given again
    #[arg(long, value_name = "PATH")]
    until: Vec<Pattern>,
    /// Leaf first, in folded and flamegraph
    #[arg(long)]
    pub(crate) reverse: bool,
    #[command(flatten)]
    pub(crate) options: Options,
    /// What `--focus`, `--through` and `--until` ask for, in the order they were given.
    #[arg(skip)]
    pub(crate) refinements: Vec<Refinement>,
}

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Each distinct call path, the most frequent first, leaf first, with the lines hit
    Paths,
    /// The call tree from the roots down
    Tree,
    /// The call tree from where the samples are up to the roots
    Callers,
    /// Each function with its callers above and what it calls below
    Graph,
}

impl View {
    /// As the user names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            View::Paths => "paths",
            View::Tree => "tree",
            View::Callers => "callers",
            View::Graph => "graph",
        }
    }
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
    /// A path, node or edge a line, fields separated by tabs, after a line of column names
    Tsv,
    /// As tsv, in CSV (RFC 4180)
    Csv,
    /// One object, with what the heading of a table says
    Json,
}

impl Format {
    /// As the user names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Table => "table",
            Format::Folded => "folded",
            Format::Flamegraph => "flamegraph",
            Format::Tsv => "tsv",
            Format::Csv => "csv",
            Format::Json => "json",
        }
    }

    /// Whether it is a picture of stacks: paths begin with the command, and there is room for one
    /// event only.
    pub(crate) fn is_folded(self) -> bool {
        matches!(self, Format::Folded | Format::Flamegraph)
    }
}

/// How many paths of an event a table has when nothing is asked.
const TABLE_PATHS: usize = 20;

/// How many functions a table of the graph has of an event when nothing is asked.
const TABLE_FUNCTIONS: usize = 30;

/// The smallest share in a table of a tree or graph when nothing is asked.
const TREE_PERCENT: f64 = 1.0;

impl Args {
    /// What the user asked for.
    ///
    /// # Errors
    ///
    /// How the program ends when that is no report, or makes no sense.
    pub(crate) fn get(tool: &str) -> Result<Self, ExitCode> {
        let (mut args, matches) = usage::arguments_and_matches::<Self>(tool)?;
        let conflict = |what: &str| {
            let error = Self::command().error(ErrorKind::ArgumentConflict, what);
            Err(usage::end(tool, &error))
        };
        if args.has_tree() && args.options.rows().is_some() {
            return conflict("-n: a tree has no rows to count: use --min-percent");
        }
        if args.format.is_folded() && args.view != View::Paths {
            let (view, format) = (args.view.name(), args.format.name());
            return conflict(&format!(
                "--view {view}: {format} is of whole paths: leave it out, or use --reverse or another --format"
            ));
        }
        if args.reverse && !args.format.is_folded() {
            return conflict("--reverse: is for folded and flamegraph: use --view callers");
        }
        args.refinements = in_order(&args, &matches);
        Ok(args)
    }

    /// Whether a tree is to be shown.
    fn has_tree(&self) -> bool {
        matches!(self.view, View::Tree | View::Callers)
    }

    /// What to print.
    pub(crate) fn row_limits(&self) -> RowLimits {
        let usual = match (self.format, self.view) {
            (Format::Table, View::Paths) => (0.0, TABLE_PATHS),
            (Format::Table, View::Graph) => (TREE_PERCENT, TABLE_FUNCTIONS),
            (Format::Table, View::Tree | View::Callers) => (TREE_PERCENT, 0),
            _ => (0.0, 0),
        };
        self.options.row_limits(usual.0, usual.1)
    }

    /// Everything by which samples do not count, as the user spelled it.
    pub(crate) fn rules(&self) -> Vec<String> {
        let mut rules = self.options.sample_rules();
        rules.extend(self.options.filter().spelled(true));
        rules.extend(self.refinements.iter().map(Refinement::spelled));
        rules
    }
}

/// The refinements in the order of the command line.
fn in_order(args: &Args, matches: &ArgMatches) -> Vec<Refinement> {
    let mut all = Vec::new();
    let kinds =
        [(Kind::Focus, &args.focus), (Kind::Through, &args.through), (Kind::Until, &args.until)];
    for (kind, patterns) in kinds {
        let places = matches.indices_of(kind.option()).into_iter().flatten();
        all.extend(places.zip(patterns).map(|(place, pattern)| (place, kind, pattern.clone())));
    }
    all.sort_by_key(|(place, ..)| *place);
    all.into_iter().map(|(_, kind, pattern)| Refinement { kind, pattern }).collect()
}
