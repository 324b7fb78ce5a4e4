//! The command line of nprof-flat.

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use nprof_format::margin::Confidence;

use crate::key::Key;
use crate::select::{Choice, Sort};

/// Says where the time of a recording is: by function, line, address, image, thread, ...
///
/// `self` is what fell on the row itself, `total` also what it called; a function counts once
/// per sample however deep it recurses. 100 % is all samples of the event.
#[derive(Debug, Parser)]
#[command(name = "nprof-flat", version)]
pub(crate) struct Args {
    /// What a row is; several combine
    #[arg(long, value_name = "KEY", value_delimiter = ',', default_value = "function")]
    pub(crate) by: Vec<Key>,
    /// What rows are sorted by; equal ones by name
    #[arg(long, value_name = "ORDER", default_value = "self")]
    pub(crate) sort: Sort,
    /// Drop rows with N or fewer samples (of self; of total with --sort total)
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Drop rows with a share below P per cent (of self; of total with --sort total)
    #[arg(long, value_name = "P", value_parser = percent)]
    pub(crate) min_percent: Option<f64>,
    /// Print at most N rows of each event, 0 for all [default: 40 in a table, else all]
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) rows: Option<usize>,
    /// The confidence of the margins of error, per cent
    #[arg(long, value_name = "P", default_value = "95", value_parser = confidence)]
    pub(crate) confidence: Confidence,
    /// How to print the report
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: Format,
    /// Exit with status 0 even if a stream is truncated or damaged
    #[arg(long)]
    pub(crate) partial_ok: bool,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Streams to read, merged into one report; `-` or none is standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// A row a line, fields separated by tabs, after a line of column names
    Tsv,
    /// As tsv, in CSV (RFC 4180)
    Csv,
    /// One object, with what the heading of a table says
    Json,
}

/// How many rows of an event a table has when nothing is asked.
const TABLE_ROWS: usize = 40;

impl Args {
    /// The streams to read; `None` is standard input.
    pub(crate) fn operands(&self) -> Vec<Option<&Path>> {
        match &self.files[..] {
            [] => vec![None],
            files => files.iter().map(|file| Some(file.as_path())).collect(),
        }
    }

    /// Which rows to print, in which order.
    pub(crate) fn choice(&self) -> Choice {
        let usual = if self.format == Format::Table { TABLE_ROWS } else { 0 };
        Choice {
            sort: self.sort,
            limit: self.limit,
            min_percent: self.min_percent.unwrap_or(0.0),
            rows: Some(self.rows.unwrap_or(usual)).filter(|&rows| rows > 0),
        }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a number from 0 to 100".to_owned())
}

fn confidence(text: &str) -> Result<Confidence, String> {
    let confidence = text.parse().ok().and_then(Confidence::from_percent);
    confidence.ok_or_else(|| "expected a number above 0 and up to 99.9999".to_owned())
}
