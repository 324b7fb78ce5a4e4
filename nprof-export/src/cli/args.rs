//! The options.

use clap::{Parser, ValueEnum};
use nprof_cli::args::{Inputs, OutputFile, PartialOk};

/// Write streams in the format of another program.
///
/// nprof-record -o - -- ./prog | nprof-symbolize | nprof-export --to pprof -o prog.pb.gz
#[derive(Clone, Debug, Parser)]
#[command(name = "nprof-export", version, max_term_width = 100)]
pub(crate) struct Args {
    /// The format to write
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) to: Format,

    #[command(flatten)]
    pub(crate) output: OutputFile,

    #[command(flatten)]
    pub(crate) tolerance: PartialOk,

    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For `go tool pprof`, Pyroscope, Parca, Perfetto and others
    Pprof,
    /// For profiler.firefox.com
    Firefox,
    /// For www.speedscope.app
    Speedscope,
    /// For kcachegrind and callgrind_annotate
    Callgrind,
}

impl Format {
    /// True if the format has the time of each sample.
    pub(crate) fn has_times(self) -> bool {
        matches!(self, Self::Firefox | Self::Speedscope)
    }

    /// True if its files are binary.
    pub(crate) fn is_binary(self) -> bool {
        self == Self::Pprof
    }
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
