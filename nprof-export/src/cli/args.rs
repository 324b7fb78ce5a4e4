//! The options.

#[cfg(feature = "parquet")]
use std::time::Duration;

use clap::{Parser, ValueEnum};
use nprof_cli::args::{Inputs, OutputFile, PartialOk};
#[cfg(feature = "parquet")]
use nprof_cli::time;

use crate::read::Sampling;

/// Write streams in the format of another program.
///
/// nprof-record -o - -- ./prog | nprof-symbolize | nprof-export --to pprof -o prog.pb.gz
#[derive(Clone, Debug, Parser)]
#[command(name = "nprof-export", version, max_term_width = 100)]
pub(crate) struct Args {
    /// The format to write
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) to: Format,

    /// With --to parquet, sum samples over this time
    #[cfg(feature = "parquet")]
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = time::interval)]
    pub(crate) window: Duration,

    #[command(flatten)]
    pub(crate) output: OutputFile,

    #[command(flatten)]
    pub(crate) tolerance: PartialOk,

    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

impl Args {
    /// Returns the samples that the format has.
    pub(crate) fn sampling(&self) -> Sampling {
        match self.to {
            Format::Firefox | Format::Speedscope => Sampling::Each,
            Format::Pprof | Format::Callgrind => Sampling::Sums,
            // At most 292 years, as the option's parser checks.
            #[cfg(feature = "parquet")]
            Format::Parquet => Sampling::Windows(self.window.as_nanos() as i64),
        }
    }
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
    /// For DuckDB, ClickHouse, Spark and others: a directory of files
    #[cfg(feature = "parquet")]
    Parquet,
}

impl Format {
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
