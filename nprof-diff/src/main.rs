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
mod key;
mod observed;
mod print;
mod side;
mod stats;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use nprof_format::stage::{self, Outcome};

use crate::args::{Args, Format};
use crate::bound::{Answer, Bound};
use crate::diff::Question;
use crate::event::Chosen;
use crate::key::{By, Keys};
use crate::print::Report;
use crate::side::{Recording, Side};

const TOOL: &str = "nprof-diff";

fn main() -> ExitCode {
    let args = Args::parse();
    stage::run(TOOL, || run(&args))
}

fn run(args: &Args) -> Result<Outcome> {
    let mut keys = Keys::default();
    let [base, new] = args.sides()?;
    let base = read("base", base, args.by, &mut keys)?;
    let new = read("new", new, args.by, &mut keys)?;
    doubt::refuse(&base, &new, args.by, args.partial_ok)?;
    let event = event::choose(&base, &new, args.event.as_deref())?;
    let clock = event.as_ref().is_some_and(Chosen::is_clock);
    let time_bound = args.fail_on.iter().find(|bound| bound.is_time() && !clock);
    if let Some((bound, event)) = time_bound.zip(event.as_ref()) {
        bail!(
            "--fail-on {bound}: not CPU time was sampled, but {}: give a share (+P%)",
            event.label()
        );
    }
    let counts = |side| side::counts(side, event.as_ref());
    let question = Question { alpha: args.alpha, clock };
    let diff = diff::compare(&counts(&base), &counts(&new), keys.ids(), question);
    let warnings = doubt::warnings(&base, &new, event.as_ref(), args.by, &diff);
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
    };
    print(args, &report)?;
    Ok(outcome(bound::answer(&diff, &args.fail_on), &args.fail_on))
}

fn read(name: &'static str, paths: &[PathBuf], by: By, keys: &mut Keys) -> Result<Side> {
    let mut recordings = Vec::new();
    for path in paths {
        let input = stage::open(Some(path))?;
        let input_name = input.name().to_owned();
        let recording = Recording::read(&input_name, input, by, keys);
        recordings.push(recording.with_context(|| format!("{name}: {input_name}"))?);
    }
    Ok(Side { name, recordings })
}

/// A reader that goes away does not change the verdict.
fn print(args: &Args, report: &Report<'_>) -> Result<()> {
    if matches!(args.format, Format::Tsv | Format::Csv) {
        report
            .warnings
            .iter()
            .for_each(|warning| stage::warn(TOOL, &format!("warning: {warning}")));
    }
    let mut out = BufWriter::new(stage::output(args.output.as_deref())?);
    match report.print(args.format, &mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("writing the report"),
    }
}

/// The exit status, with a word on standard error on what it means.
fn outcome(answer: Answer, bounds: &[Bound]) -> Outcome {
    match answer {
        Answer::Same | Answer::Changed => Outcome::Done,
        Answer::Failed => {
            let bounds: Vec<String> = bounds.iter().map(Bound::to_string).collect();
            stage::warn(TOOL, &format!("changed beyond {}", bounds.join(" or ")));
            Outcome::No
        }
        Answer::Undecided => {
            stage::warn(
                TOOL,
                "not enough samples to decide: record for longer, or sample more often (-F)",
            );
            Outcome::Undecided
        }
    }
}
