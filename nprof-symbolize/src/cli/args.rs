//! The options.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use nprof_cli::args::{OutputFile, PartialOk};
use regex::bytes::Regex;

use crate::names::demangle::NameStyle;

/// The name of the program.
pub(crate) const TOOL: &str = "nprof-symbolize";

/// Add functions, files, lines and inlined calls to the frames of an nprof stream.
///
/// Reads one stream and writes the same stream with annotations:
/// nprof-record -o - -- ./prog | nprof-symbolize | nprof-flat
#[derive(Clone, Debug, Parser)]
#[command(name = "nprof-symbolize", version, max_term_width = 100)]
pub(crate) struct Args {
    /// Search DIR for debug files before /usr/lib/debug; may be repeated
    #[arg(long, value_name = "DIR")]
    pub(crate) debug_dir: Vec<PathBuf>,

    /// Search images below ROOT, the root of the profiled system
    #[arg(long, value_name = "ROOT")]
    pub(crate) symfs: Option<PathBuf>,

    /// Fetch missing files from the servers in DEBUGINFOD_URLS, those of the most sampled images
    /// first
    #[arg(long)]
    #[cfg_attr(
        not(feature = "debuginfod"),
        arg(help = "Not available: this build lacks the cargo feature debuginfod")
    )]
    pub(crate) debuginfod: bool,

    /// Use a file of another build if the recorded one is not found, and mark its frames
    #[arg(long)]
    pub(crate) allow_mismatch: bool,

    /// Omit inlined calls: name the function of a frame only
    #[arg(long)]
    pub(crate) no_inlines: bool,

    /// Omit files and lines
    #[arg(long)]
    pub(crate) no_lines: bool,

    /// Add the code of functions that have samples, for nprof-annotate
    #[arg(long)]
    pub(crate) code: bool,

    /// Style of names; the stream keeps the linkage name, too
    #[arg(long, value_name = "STYLE", default_value = "full")]
    pub(crate) names: NameStyle,

    /// Print the search for the files of IMAGE (a path, file name or build ID) and their contents;
    /// may be repeated
    #[arg(long, value_name = "IMAGE")]
    pub(crate) explain: Vec<OsString>,

    /// Print the places at which nprof-record --calls counts the calls of the functions of an image
    /// whose names match REGEX; FILE is the image
    #[arg(long, value_name = "REGEX", conflicts_with_all = ["explain", "text", "partial_ok"])]
    pub(crate) entries: Option<Regex>,

    /// Print a summary at the end: named frames of each image, and remedies for the others
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Write text, the default for a terminal
    #[arg(long)]
    pub(crate) text: bool,

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
