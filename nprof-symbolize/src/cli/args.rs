//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

use crate::names::demangle::NameStyle;

/// Give the frames of an nprof stream their functions, files, lines and inlined calls.
///
/// Reads one stream, and writes the same stream with annotations:
/// nprof-record -o - -- ./prog | nprof-symbolize | nprof-flat
#[derive(Clone, Debug, Parser)]
#[command(name = "nprof-symbolize", version, max_term_width = 100)]
pub(crate) struct Args {
    /// Look for debug files in DIR first, as in /usr/lib/debug; may be given again
    #[arg(long, value_name = "DIR")]
    pub(crate) debug_dir: Vec<PathBuf>,

    /// Look for images under ROOT, the root of the profiled system
    #[arg(long, value_name = "ROOT")]
    pub(crate) symfs: Option<PathBuf>,

    /// Ask the servers of DEBUGINFOD_URLS for what is not here, the most sampled images first
    #[arg(long)]
    pub(crate) debuginfod: bool,

    /// Use a file of another build where the recorded one is not found, and mark the frames
    #[arg(long)]
    pub(crate) allow_mismatch: bool,

    /// Name only the function a frame is in, not the calls inlined there
    #[arg(long)]
    pub(crate) no_inlines: bool,

    /// Leave out files and lines
    #[arg(long)]
    pub(crate) no_lines: bool,

    /// How much of a name to show; the linkage name stays in the stream
    #[arg(long, value_name = "STYLE", default_value = "full")]
    pub(crate) names: NameStyle,

    /// Tell which files are tried for IMAGE (a path, file name or build ID) and what they hold;
    /// may be given again
    #[arg(long, value_name = "IMAGE")]
    pub(crate) explain: Vec<OsString>,

    /// Tell at the end how naming went for each image, and what to do about the rest
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Write text; what a terminal gets anyway
    #[arg(long)]
    pub(crate) text: bool,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Exit with 0 even when the input was incomplete
    #[arg(long)]
    pub(crate) partial_ok: bool,

    /// The stream to read; - or none is standard input
    #[arg(value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
