//! The options.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use nprof_cli::args::{OutputFile, PartialOk};
use nprof_cli::time;

/// Charge the waiting of threads to the functions of the threads that woke them.
///
/// Reads one stream with the events blocked and wakes, and writes the same stream with the event
/// blamed.
///
/// nprof-record -e wall -e wakes -o - -- ./prog | nprof-symbolize | nprof-blame | nprof-flat
#[derive(Clone, Debug, Parser)]
#[command(name = "nprof-blame", version, max_term_width = 100)]
pub(crate) struct Args {
    /// Follow a wait through at most N wakers
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) depth: u16,

    /// Keep the activity of threads for TIME: parts of waits that end later are not explained
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time::interval)]
    pub(crate) window: Duration,

    #[command(flatten)]
    pub(crate) output: OutputFile,

    #[command(flatten)]
    pub(crate) tolerance: PartialOk,

    /// The stream to read; standard input if absent or -
    #[arg(value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
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
