//! The command line of nprof-format.

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use nprof_cli::args::{Inputs, OutputFile, PartialOk};

/// The name of the tool in messages.
pub(crate) const TOOL: &str = "nprof-format";

/// Checks, converts, counts and merges nprof streams.
#[derive(Debug, Parser)]
#[command(name = "nprof-format", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check whether streams are complete, and locate damage; exit status 1 if one is not complete
    Check(Report),
    /// Write streams as text, one record a line
    Text(Convert),
    /// Write streams as binary
    Binary(Convert),
    /// Merge streams into one segment, ordered by time
    Merge(Merge),
    /// Count records and bytes by kind, samples, losses and tasks
    Stat(Report),
    /// List the images of streams: kind, build ID and path
    Images(Images),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Report {
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Convert {
    /// Drop the annotations of filters: steps, functions, files, locations, unknown records
    #[arg(long)]
    pub(crate) strip: bool,
    #[command(flatten)]
    pub(crate) output: OutputFile,
    #[command(flatten)]
    pub(crate) tolerance: PartialOk,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Images {
    /// Print only the paths of files, each ended by a zero byte, for tar --null -T - and xargs -0
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    #[command(flatten)]
    pub(crate) tolerance: PartialOk,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Merge {
    #[command(flatten)]
    pub(crate) output: OutputFile,
    #[command(flatten)]
    pub(crate) tolerance: PartialOk,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
}
