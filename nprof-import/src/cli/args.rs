//! The options.

use std::path::PathBuf;

use clap::Parser;
use nprof_cli::args::{Inputs, OutputFile, PartialOk};

/// Read recordings of other profilers as a stream.
///
/// nprof-import perf.data | nprof-symbolize | nprof-flat
#[derive(Clone, Debug, Parser)]
#[command(name = "nprof-import", version, max_term_width = 100)]
pub(crate) struct Args {
    /// Find the files of images below ROOT, to unwind stacks that were recorded on another system
    #[arg(long, value_name = "ROOT", value_hint = clap::ValueHint::DirPath)]
    pub(crate) symfs: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputFile,

    #[command(flatten)]
    pub(crate) tolerance: PartialOk,

    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
