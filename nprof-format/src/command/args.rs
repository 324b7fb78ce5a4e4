//! The command line of nprof-format.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

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
    /// Streams to read; `-` or none is standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
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
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Exit with status 0 even if a stream is truncated or damaged
    #[arg(long)]
    pub(crate) partial_ok: bool,
    /// Streams to read, one after another; `-` or none is standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Merge {
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Exit with status 0 even if a stream is truncated or damaged
    #[arg(long)]
    pub(crate) partial_ok: bool,
    /// Streams to merge; `-` or none is standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// The operands; standard input when there are none.
pub(crate) fn operands(files: &[PathBuf]) -> Vec<Option<&Path>> {
    match files {
        [] => vec![None],
        files => files.iter().map(|file| Some(file.as_path())).collect(),
    }
}
