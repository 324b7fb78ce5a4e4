//! The command line of nprof-diff.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Parser;

use crate::compare::effect_size::EffectSize;
use crate::compare::fail_on::Bound;
use crate::input::key::By;
use crate::print::{Format, Sort};

/// Says what changed between two sets of recordings, and whether it is noise.
///
/// Compares the shares of the samples (and CPU time) that functions have on both sides, each
/// difference with its confidence interval. Two or more runs on both sides are judged by how runs
/// of the same side differ; single runs by counting alone, which takes too much for certain.
/// Exits with 0, 1 (beyond --fail-on), 2 (trouble, incomplete input) or 4 (not enough data to decide).
#[derive(Debug, Parser)]
#[command(
    name = "nprof-diff",
    version,
    override_usage = "nprof-diff [OPTIONS] BASE NEW\n       nprof-diff [OPTIONS] --base FILE... --new FILE..."
)]
pub(crate) struct Args {
    /// What a row is [default: function; path in the formats folded and flamegraph]
    #[arg(long, value_name = "KEY")]
    by: Option<By>,
    /// The event to compare by, where several were counted
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,
    /// Confidence of the intervals, per cent; at most 100 - P per cent of the reported changes are
    /// noise
    #[arg(long, value_name = "P", default_value = "95", value_parser = confidence)]
    confidence: f64,
    /// Exit with 1 if a row changed beyond this: any, self>+P%, total>+P%, self>+Nms, total>+Nms
    #[arg(long, value_name = "BOUND", value_delimiter = ',')]
    pub(crate) fail_on: Vec<Bound>,
    /// Call nothing a change that is smaller than this: P% (points of share) or a time, as 2ms
    #[arg(long, value_name = "SIZE")]
    pub(crate) min_effect: Option<EffectSize>,
    /// Names that are others on the new side: lines of OLD and NEW, or image, OLD and NEW,
    /// separated by tabs
    #[arg(long, value_name = "FILE")]
    pub(crate) rename: Option<PathBuf>,
    /// What rows are sorted by: the difference in self or in total, or the name
    #[arg(long, value_name = "ORDER", default_value = "self")]
    pub(crate) sort: Sort,
    /// Print at most N rows, 0 for all [default: 40 in a table, else all]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<usize>,
    /// How to print the report
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: Format,
    /// Compare what there is of streams that are truncated or damaged
    #[arg(long)]
    pub(crate) partial_ok: bool,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Split the runs of the base against each other: says how much of a difference is noise
    #[arg(long, requires = "base", conflicts_with_all = ["new", "operands", "fail_on"])]
    pub(crate) noise: bool,
    /// The streams of the base; every segment of them is a run
    #[arg(long, value_name = "FILE", num_args = 1..)]
    base: Vec<PathBuf>,
    /// The streams of the new side
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "base")]
    new: Vec<PathBuf>,
    /// The base's stream, then the new side's; `-` is standard input
    #[arg(value_name = "FILE", num_args = 2, conflicts_with_all = ["base", "new"],
          required_unless_present_any = ["base", "new"])]
    operands: Vec<PathBuf>,
}

/// How many rows a table has when nothing is asked.
const TABLE_ROWS: usize = 40;

impl Args {
    /// The streams of the base and of the new side.
    ///
    /// # Errors
    ///
    /// When standard input is named twice, or a side is missing.
    pub(crate) fn sides(&self) -> Result<[&[PathBuf]; 2]> {
        if self.operands.is_empty() && self.new.is_empty() && !self.noise {
            bail!(
                "--base: give the streams of the other side with --new, or --noise to compare the runs of the base with each other"
            );
        }
        let sides = match &self.operands[..] {
            [base, new] => [std::slice::from_ref(base), std::slice::from_ref(new)],
            _ => [&self.base[..], &self.new[..]],
        };
        let stdin = |path: &&PathBuf| path.as_path() == Path::new("-");
        if sides.into_iter().flatten().filter(stdin).count() > 1 {
            bail!("standard input (-) can be read once: give a file for the other streams");
        }
        Ok(sides)
    }

    /// The first option that is about CPU time, as it was given.
    pub(crate) fn time_option(&self) -> Option<String> {
        let bound = self.fail_on.iter().find(|bound| bound.is_time());
        let bound = bound.map(|bound| format!("--fail-on {bound}"));
        let is_time = matches!(self.min_effect, Some(EffectSize::Time(_)));
        bound.or_else(|| is_time.then(|| "--min-effect".to_owned()))
    }

    /// What a row is.
    ///
    /// # Errors
    ///
    /// When the format is one of call paths and something else is asked for.
    pub(crate) fn by(&self) -> Result<By> {
        let of_paths = matches!(self.format, Format::Folded | Format::Flamegraph);
        match self.by {
            Some(By::Path) if of_paths => Ok(By::Path),
            Some(by) if of_paths => {
                bail!("--by {}: folded stacks and flame graphs are by call path", by.name())
            }
            None if of_paths && self.noise => {
                bail!("--noise: there is a noise floor in table, tsv, csv and json only")
            }
            None if of_paths => Ok(By::Path),
            by => Ok(by.unwrap_or(By::Function)),
        }
    }

    /// Returns the probability that an interval misses the true value.
    pub(crate) fn alpha(&self) -> f64 {
        // Rounded, so that 95 per cent is 0.05 and 99.9 is 0.001 to the last digit.
        ((100.0 - self.confidence) * 1e10).round() / 1e12
    }

    /// How many rows are printed.
    pub(crate) fn row_limit(&self) -> usize {
        let usual = if self.format == Format::Table { TABLE_ROWS } else { 0 };
        match self.rows.unwrap_or(usual) {
            0 => usize::MAX,
            rows => rows,
        }
    }
}

/// Parses a confidence in per cent.
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
    fn what_cannot_be_a_level_is_refused() {
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
