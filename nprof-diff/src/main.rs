//! nprof-diff: what changed between two sets of recordings, and whether it is noise.
//!
//! Reads streams, prints a comparison, and says with its exit status whether a bound was broken:
//!
//! ```text
//! nprof-diff --fail-on 'self>+2%' --base a1.nprof a2.nprof --new b1.nprof b2.nprof
//! ```

mod args;
mod bound;
mod diff;
mod doubt;
mod event;
mod judge;
mod key;
mod need;
mod observed;
mod pair;
mod print;
mod rename;
mod side;
mod size;
mod stats;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use nprof_format::stage::{self, Outcome, Output};
use nprof_format::usage;

use crate::args::{Args, Format};
use crate::bound::{Answer, Bound};
use crate::diff::{Diff, Question};
use crate::event::Chosen;
use crate::key::{By, Keys};
use crate::print::Report;
use crate::rename::Renames;
use crate::side::{Recording, Side};

const TOOL: &str = "nprof-diff";

fn main() -> ExitCode {
    match usage::arguments(TOOL) {
        Ok(args) => stage::run(TOOL, || run(&args)),
        Err(end) => end,
    }
}

fn run(args: &Args) -> Result<Outcome> {
    let mut keys = Keys::default();
    let [base, new] = args.sides()?;
    let inputs = base.iter().chain(new).map(|path| Some(path.as_path()));
    stage::refuse_same_file(inputs, args.output.as_deref())?;
    let mut renames = renames(args)?;
    let base = read("base", base, args.by, &mut keys, &mut renames)?;
    let new = read("new", new, args.by, &mut keys, &mut Renames::default())?;
    doubt::refuse(&base, &new, args.by, args.partial_ok)?;
    let event = event::choose(&base, &new, args.event.as_deref())?;
    let clock = event.as_ref().is_some_and(Chosen::is_clock);
    if let (Some(event), Some(asked)) = (&event, args.asked_in_time()) {
        doubt::refuse_time(&base, &new, event, &asked)?;
    }
    let counts = |side| side::counts(side, event.as_ref());
    let question = Question { alpha: args.alpha, clock, min_effect: args.min_effect };
    let diff = diff::compare(&counts(&base), &counts(&new), keys.ids(), question);
    let mut warnings = doubt::warnings(&base, &new, event.as_ref(), args.by, &diff);
    warnings.extend(doubt::unmatched(&diff, &keys, args.by));
    warnings.extend(unused(args, &renames));
    let output = stage::output(args.output.as_deref())?;
    let report = Report {
        by: args.by,
        base: &base,
        new: &new,
        event: event.as_ref(),
        diff: &diff,
        keys: &keys,
        warnings: &warnings,
        bounds: &args.fail_on,
        sort: args.sort,
        row_limit: args.row_limit(),
        pairs: &pair::propose(&diff, &keys, args.by),
        width: output.width(),
    };
    print(args, &report, output)?;
    Ok(outcome(&diff, &args.fail_on))
}

/// Lines of `--rename` that are about nothing.
fn unused(args: &Args, renames: &Renames) -> Vec<String> {
    let Some(path) = &args.rename else { return Vec::new() };
    let told = |(line, old): (usize, String)| {
        format!("{}: line {line}: nothing on base is called {old}", path.display())
    };
    renames.unused().into_iter().map(told).collect()
}

/// What `--rename` says.
fn renames(args: &Args) -> Result<Renames> {
    let Some(path) = &args.rename else { return Ok(Renames::default()) };
    let name = || format!("--rename {}", path.display());
    let text = std::fs::read(path).with_context(name)?;
    Renames::parse(&text).with_context(name)
}

fn read(
    name: &'static str,
    paths: &[PathBuf],
    by: By,
    keys: &mut Keys,
    renames: &mut Renames,
) -> Result<Side> {
    let mut recordings = Vec::new();
    for path in paths {
        let input = stage::open(Some(path))?;
        let input_name = input.name().to_owned();
        let recording = Recording::read(&input_name, input, by, keys, renames);
        recordings.push(recording.with_context(|| format!("{name}: {input_name}"))?);
    }
    Ok(Side { name, recordings })
}

/// A reader that goes away does not change the verdict.
fn print(args: &Args, report: &Report<'_>, output: Output) -> Result<()> {
    if matches!(args.format, Format::Tsv | Format::Csv) {
        report
            .warnings
            .iter()
            .for_each(|warning| stage::warn(TOOL, &format!("warning: {warning}")));
    }
    let mut out = BufWriter::new(output);
    match report.print(args.format, &mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("writing the report"),
    }
}

/// The exit status, with a word on standard error on what it means.
fn outcome(diff: &Diff, bounds: &[Bound]) -> Outcome {
    match bound::answer(diff, bounds) {
        Answer::Same | Answer::Changed => Outcome::Done,
        Answer::Failed => {
            let bounds: Vec<String> = bounds.iter().map(Bound::to_string).collect();
            stage::warn(TOOL, &format!("changed beyond {}", bounds.join(" or ")));
            Outcome::No
        }
        Answer::Undecided => {
            bound::missing(diff, bounds).iter().for_each(|line| stage::warn(TOOL, line));
            Outcome::Undecided
        }
    }
}
