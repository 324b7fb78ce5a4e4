//! The command line of nprof-diff.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Parser;
use nprof_report::args::{OutputFile, PartialOk};
use nprof_report::join::Join;

use crate::compare::effect_size::EffectSize;
use crate::compare::fail_on::Bound;
use crate::input::event::AmountUnit;
use crate::input::row_kind::RowKind;
use crate::print::{DiffFormat, Sort};

/// Reports the changes between two sets of recordings, and whether they are noise.
///
/// Compares the shares of the samples (and the CPU time) of functions on both sides, with the
/// confidence interval of each difference. With two or more runs on both sides, differences are
/// judged by the variance between runs; with single runs by counts alone, which gives too narrow
/// intervals. Exits with 0, 1 (a row exceeds --fail-on), 2 (error, incomplete input) or 4 (not enough
/// data to decide).
#[derive(Debug, Parser)]
#[command(
    name = "nprof-diff",
    version,
    override_usage = "nprof-diff [OPTIONS] BASE NEW\n       nprof-diff [OPTIONS] --base FILE... --new FILE...",
    mut_arg("partial_ok", |arg| arg.help("Compare truncated and damaged streams as far as they go"))
)]
pub(crate) struct Args {
    /// Kind of the rows: function, file, line, image, command (thread name) or path (call path)
    /// [default: function; path in the formats folded and flamegraph]
    #[arg(long, value_name = "KEY")]
    by: Option<RowKind>,
    /// Event to compare by, if several were recorded
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,
    /// Add events of one unit into one, such as cpu-clock,runnable,blocked=wall; repeatable
    #[arg(long, value_name = "EVENT,EVENT,..[=NAME]")]
    pub(crate) join: Vec<Join>,
    /// Compare the event divided by this one, such as waiting per call
    #[arg(long, value_name = "EVENT", conflicts_with = "noise")]
    pub(crate) per: Option<String>,
    /// Confidence of the intervals, per cent; at most 100 - P per cent of the reported changes are
    /// noise
    #[arg(long, value_name = "P", default_value = "95", value_parser = confidence)]
    confidence: f64,
    /// Exit with 1 if a row changed beyond a bound: any, self>+SIZE or total>+SIZE, in P%, Nms, NMiB or N
    #[arg(long, value_name = "BOUND", value_delimiter = ',')]
    pub(crate) fail_on: Vec<Bound>,
    /// Do not report changes smaller than SIZE: P% (points of share), or an amount such as 2ms, 1MiB or 1000
    #[arg(long, value_name = "SIZE")]
    pub(crate) min_effect: Option<EffectSize>,
    /// File of names that differ on the new side: lines of OLD and NEW, or of image, OLD and NEW,
    /// separated by tabs
    #[arg(long, value_name = "FILE")]
    pub(crate) rename: Option<PathBuf>,
    /// Sort rows by the difference in self or in total, or by name
    #[arg(long, value_name = "ORDER", default_value = "self")]
    pub(crate) sort: Sort,
    /// Print at most N rows, 0 for all [default: 40 in a table and in markdown, else all]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<usize>,
    /// Print all facts about both sides above a table
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Format of the report
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: DiffFormat,
    #[command(flatten)]
    pub(crate) tolerance: PartialOk,
    #[command(flatten)]
    pub(crate) output: OutputFile,
    /// Compare the runs of the base with each other: reports the size of differences by chance
    #[arg(long, requires = "base", conflicts_with_all = ["new", "operands", "fail_on"])]
    pub(crate) noise: bool,
    /// Streams of the base; every segment of a stream is a run
    #[arg(long, value_name = "FILE", num_args = 1..)]
    base: Vec<PathBuf>,
    /// Streams of the new side
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "base")]
    new: Vec<PathBuf>,
    /// Stream of the base, then stream of the new side; `-` is standard input
    #[arg(value_name = "FILE", num_args = 2, conflicts_with_all = ["base", "new"],
          required_unless_present_any = ["base", "new"])]
    operands: Vec<PathBuf>,
}

/// The number of rows of a table without `--rows`.
const TABLE_ROWS: usize = 40;

impl Args {
    /// Returns the streams of the base and of the new side.
    ///
    /// # Errors
    ///
    /// If standard input is named twice, a side is missing, or an event is divided by itself.
    pub(crate) fn sides(&self) -> Result<[&[PathBuf]; 2]> {
        if let Some(per) = self.per.as_ref().filter(|_| self.per == self.event) {
            bail!(
                "--per {per}: it is the event that would be divided; choose another with --event"
            );
        }
        if self.operands.is_empty() && self.new.is_empty() && !self.noise {
            bail!(
                "--base: give the other side with --new, or --noise to compare the runs of the base with each other"
            );
        }
        // clap has checked that there are two operands, or --base.
        let sides = match &self.operands[..] {
            [base, new] => [std::slice::from_ref(base), std::slice::from_ref(new)],
            _ => [&self.base[..], &self.new[..]],
        };
        // A second reader of standard input would find its end.
        let is_stdin = |path: &&PathBuf| path.as_path() == Path::new("-");
        if sides.into_iter().flatten().filter(is_stdin).count() > 1 {
            bail!("standard input (-) can be read only once; give files for the other streams");
        }
        Ok(sides)
    }

    /// Returns the units of options in time, bytes or counts, with the spellings of the options.
    pub(crate) fn amount_options(&self) -> Vec<(AmountUnit, String)> {
        let bounds = self.fail_on.iter();
        let bounds = bounds.filter_map(|bound| Some((bound.unit()?, format!("--fail-on {bound}"))));
        let min_effect = match self.min_effect {
            // The value is left out: an EffectSize does not keep its spelling.
            Some(EffectSize::Amount(unit, _)) => Some((unit, "--min-effect".to_owned())),
            _ => None,
        };
        bounds.chain(min_effect).collect()
    }

    /// Returns the kind of the rows.
    ///
    /// # Errors
    ///
    /// If the format draws call paths, and another kind of rows or a noise report is requested.
    pub(crate) fn row_kind(&self) -> Result<RowKind> {
        let is_for_two_sides =
            matches!(self.format, DiffFormat::Markdown | DiffFormat::Junit | DiffFormat::Html);
        if (self.noise || self.per.is_some()) && (is_for_two_sides || self.format.is_stacks()) {
            let option = if self.noise { "--noise" } else { "--per" };
            bail!("{option}: the formats are table, tsv, csv and json");
        }
        let is_function = |kind: RowKind| kind == RowKind::Function;
        if let Some(by) = self.by.filter(|&by| self.format.is_page() && !is_function(by)) {
            bail!("--by {}: a page has functions and their call paths; omit --by", by.name());
        }
        if !self.format.is_stacks() {
            return Ok(self.by.unwrap_or(RowKind::Function));
        }
        match self.by {
            None | Some(RowKind::Path) => Ok(RowKind::Path),
            Some(kind) => {
                bail!("--by {}: folded stacks and flame graphs need --by path", kind.name())
            }
        }
    }

    /// Returns the probability that an interval misses the true value.
    pub(crate) fn alpha(&self) -> f64 {
        // Rounded, so that 95 per cent is 0.05 and 99.9 is 0.001 to the last digit.
        ((100.0 - self.confidence) * 1e10).round() / 1e12
    }

    /// Returns the largest number of rows to print.
    pub(crate) fn row_limit(&self) -> usize {
        // A program that reads the report needs every row.
        let default = if self.format.is_list_of_changes() { TABLE_ROWS } else { 0 };
        match self.rows.unwrap_or(default) {
            0 => usize::MAX,
            rows => rows,
        }
    }
}

/// Parses a confidence in per cent. Below 50 an interval is meaningless; the quantiles were checked
/// against scipy up to 99.9999999.
fn confidence(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (50.0..=99.9999999).contains(percent));
    percent.ok_or_else(|| "expected a number from 50 to 99.9999999".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split(' '))
    }

    fn sides(line: &str) -> String {
        let args = parse(line).unwrap();
        let [base, new] = args.sides().unwrap();
        format!("{base:?} {new:?}")
    }

    #[test]
    fn sides_are_two_operands_or_two_sets() {
        assert_eq!(sides("nprof-diff a b"), r#"["a"] ["b"]"#);
        assert_eq!(sides("nprof-diff --base a b --new c"), r#"["a", "b"] ["c"]"#);
        assert_eq!(sides("nprof-diff --base a --base b --new -"), r#"["a", "b"] ["-"]"#);
        assert!(parse("nprof-diff - -").unwrap().sides().is_err());
        assert!(parse("nprof-diff --base a").unwrap().sides().is_err());
        for wrong in ["", " a", " a b c", " --noise", " --new a", " a b --base c --new d"] {
            assert!(parse(&format!("nprof-diff{wrong}")).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn rejects_confidence_outside_50_to_100_per_cent() {
        for wrong in ["0", "1", "49.9", "100", "nan", "95%", "-95", "inf"] {
            assert!(parse(&format!("nprof-diff --confidence={wrong} a b")).is_err(), "{wrong}");
        }
        assert!(parse("nprof-diff --fail-on self>+2%,any a b").is_ok());
    }

    #[test]
    fn confidence_gives_exact_alpha() {
        let alpha = |options: &str| parse(&format!("nprof-diff{options} a b")).unwrap().alpha();
        assert_eq!(alpha(""), 0.05);
        assert_eq!(alpha(" --confidence 99.9"), 0.001);
        assert_eq!(alpha(" --confidence 99.9999999"), 1e-9);
        assert_eq!(alpha(" --confidence 50"), 0.5);
    }
}
