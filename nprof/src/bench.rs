//! `nprof bench`: records two programs in turn and compares them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};
use clap::Args;
use nprof_cli::stage::{self, Outcome};

use crate::new_name;
use crate::programs::NPROF;
use crate::programs::{self, not_started, tool};

/// Compare two programs, recorded in turn several times each
///
/// Words of CMD are separated as by a shell, with its quotes and backslashes, and nothing else of a
/// shell: use `sh -c '...'` for more. Exits with the status of nprof-diff; with 2 if a program fails.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The program to compare with, and its arguments
    #[arg(long, value_name = "CMD")]
    base: OsString,

    /// The new program, and its arguments
    #[arg(long, value_name = "CMD")]
    new: OsString,

    /// Record each program N times
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    /// Keep the recordings in DIR, which must be new [default: nprof-bench-DATE-TIME]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Options of nprof-diff, after `--`
    #[arg(last = true, value_name = "options")]
    options: Vec<OsString>,
}

/// Separates the words of a command line, at least one.
fn words(line: &OsStr) -> anyhow::Result<Vec<OsString>> {
    let words = shlex::bytes::split(line.as_bytes()).filter(|words| !words.is_empty());
    let shown = line.to_string_lossy();
    let words = words.with_context(|| format!("'{shown}': no command, or an open quote"))?;
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

/// Records, then executes nprof-diff.
///
/// # Errors
///
/// If a program cannot be recorded, or fails.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<Outcome> {
    let sides = [("base", words(&args.base)?), ("new", words(&args.new)?)];
    let directory = match &args.output {
        Some(path) => {
            fs::create_dir(path).map_err(|error| new_name::refused(path, &error))?;
            path.clone()
        }
        None => new_name::create(&format!("{NPROF}-bench"), "", |path| fs::create_dir(path))?.0,
    };
    let recorded = record_all(args.runs, sides.each_ref(), &directory);
    // Only an empty one can be removed.
    if recorded.is_ok() || fs::remove_dir(&directory).is_err() {
        stage::warn(NPROF, &format!("the recordings are in {}", directory.display()));
    }
    recorded?;
    let mut words = args.options.clone();
    for (name, _) in sides {
        words.push(format!("--{name}").into());
        words.extend((1..=args.runs).map(|run| stream(&directory, name, run).into_os_string()));
    }
    programs::execute("nprof-diff", words)
}

/// Records all runs of both sides.
fn record_all(
    runs: u32,
    sides: [&(&str, Vec<OsString>); 2],
    directory: &Path,
) -> anyhow::Result<()> {
    for run in 1..=runs {
        stage::warn(NPROF, &format!("run {run} of {runs}"));
        for (name, command) in in_turn(run, sides) {
            record(command, frequency(run), &stream(directory, name, run))
                .with_context(|| format!("{name}, run {run}"))?;
        }
    }
    Ok(())
}

/// Returns both sides in the order of a run. It alternates, so that a machine that becomes slower at a
/// constant rate slows down both sides alike.
fn in_turn<T>(run: u32, [base, new]: [T; 2]) -> [T; 2] {
    if run % 2 == 1 { [base, new] } else { [new, base] }
}

/// Returns the samples per second of a run. Each pair of runs has its own rate: programs that repeat
/// the same work may run in step with the sampling clock.
fn frequency(run: u32) -> u32 {
    3990 + 7 * run
}

fn stream(directory: &Path, side: &str, run: u32) -> PathBuf {
    // Not an option, even if the name of the directory begins with a hyphen.
    std::path::absolute(directory)
        .unwrap_or_else(|_| directory.into())
        .join(format!("{side}-{run}.nprof"))
}

/// Records a run of a program, and symbolizes it after its end.
fn record(command: &[OsString], frequency: u32, stream: &Path) -> anyhow::Result<()> {
    let raw = stream.with_extension("raw");
    let status = tool("nprof-record")
        .args(["-q", "-F", &frequency.to_string(), "-o"])
        .arg(&raw)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| not_started("nprof-record"))?;
    if !status.success() {
        bail!("the program did not succeed: {status}");
    }
    let status = tool("nprof-symbolize")
        .arg("-o")
        .arg(stream)
        .arg(&raw)
        .status()
        .with_context(|| not_started("nprof-symbolize"))?;
    if !status.success() {
        bail!("nprof-symbolize did not succeed: {status}");
    }
    fs::remove_file(&raw).with_context(|| raw.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_has_no_part_in_the_difference() {
        // The sum of the positions of both sides over two runs is equal.
        assert_eq!(
            [in_turn(1, ["base", "new"]), in_turn(2, ["base", "new"])].concat(),
            ["base", "new", "new", "base"]
        );
    }

    #[test]
    fn words_are_separated_as_by_a_shell() {
        let words = |line: &str| words(line.as_ref());
        let command = words(r#"./prog "a b" 'c"d' e\ f ''"#).expect("words");
        assert_eq!(command, ["./prog", "a b", "c\"d", "e f", ""]);
        assert!(words("a 'b").is_err() && words("  ").is_err());
    }
}
