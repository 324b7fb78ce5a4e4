//! The command line of nprof-format.

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use nprof_cli::args::{Inputs, OutputFile, PartialOk};

/// Looks into nprof streams: checks them, counts what is in them, converts their spelling.
#[derive(Debug, Parser)]
#[command(name = "nprof-format", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say whether streams are complete, and where they are damaged; exit status 1 if one is not
    Check(Report),
    /// Write streams as text, one record a line
    Text(Convert),
    /// Write streams as binary
    Binary(Convert),
    /// Write streams as one segment: one order of time, one space of ids
    Merge(Merge),
    /// Count what is in streams: records and bytes by kind, samples, lost, stacks
    Stat(Report),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Report {
    /// How to print the answer
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
    /// Leave out what filters added: steps, functions, files, locations, unknown records
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
pub(crate) struct Merge {
    #[command(flatten)]
    pub(crate) output: OutputFile,
    #[command(flatten)]
    pub(crate) tolerance: PartialOk,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
}
