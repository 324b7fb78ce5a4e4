//! The command line of nprof-annotate.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use nprof_report::args::TableFormat;
use nprof_report::report::{Options, RowLimits};

/// The tool's name, which begins its messages.
pub(crate) const TOOL: &str = "nprof-annotate";

/// Prints where the time of functions is: by instruction, source line, basic block or loop.
///
/// Needs a stream with code, of nprof-symbolize --code, and no other file. Addresses are those of
/// nprof-flat --by address. 100 % is all samples of the event.
#[derive(Clone, Debug, Parser)]
#[command(name = "nprof-annotate", version)]
pub(crate) struct Args {
    /// Parts of a function that are rows
    #[arg(long, value_name = "PART", default_value = "instruction")]
    pub(crate) by: By,
    /// Show source lines from files below DIR, with --by line; repeatable
    #[arg(long, value_name = "DIR")]
    pub(crate) source_dir: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: TableFormat,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// The parts of a function that are rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Instructions
    Instruction,
    /// Lines of the function, including the calls inlined there
    Line,
    /// Basic blocks: instructions that are executed equally often
    Block,
    /// Loops, including the loops in them
    Loop,
}

impl By {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Instruction => "instruction",
            Self::Line => "line",
            Self::Block => "block",
            Self::Loop => "loop",
        }
    }
}

/// Default number of functions in a table.
const TABLE_FUNCTIONS: usize = 3;

impl Args {
    /// Returns the limits of the functions that are printed.
    pub(crate) fn limits(&self) -> RowLimits {
        // A function takes a screen or more; programs want all.
        let functions = if self.format == TableFormat::Table { TABLE_FUNCTIONS } else { 0 };
        self.options.row_limits(0.0, functions)
    }

    /// Returns all options that filter samples or functions, as the user spelled them.
    pub(crate) fn rules(&self) -> Vec<String> {
        [self.options.sample_rules(), self.options.filter().spelled(true)].concat()
    }
}
