//! One run of nprof-diff, from its arguments to its exit status.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use nprof_cli::stage::{self, Outcome};
use nprof_cli::usage;

use crate::args::Args;
use crate::compare::comparison::Criteria;
use crate::compare::diff::{self, Diff};
use crate::compare::fail_on::{self, Bound, DiffVerdict};
use crate::compare::noise;
use crate::compare::rename_candidates;
use crate::compare::warnings;
use crate::input::event::{self, ComparedEvent};
use crate::input::load::{InputSides, Sources};
use crate::input::{load, preconditions};
use crate::print::{DiffReport, Format, NoiseReport};

const TOOL: &str = "nprof-diff";

/// Runs nprof-diff with the arguments of this process.
pub fn main() -> ExitCode {
    match usage::arguments(TOOL) {
        Ok(args) => stage::run(TOOL, || run(&args)),
        Err(end) => end,
    }
}

fn run(args: &Args) -> Result<Outcome> {
    let inputs = load(args)?;
    let clock = inputs.event.as_ref().is_some_and(ComparedEvent::measures_cpu_time);
    let criteria = Criteria { alpha: args.alpha(), clock, min_effect: args.min_effect };
    if args.noise { calibrate(args, &inputs, criteria) } else { compare(args, &inputs, criteria) }
}

/// Reads the streams, and refuses options that make no sense for them.
fn load(args: &Args) -> Result<InputSides> {
    let [base, new] = args.sides()?;
    let inputs = base.iter().chain(new).chain(&args.rename).map(|path| Some(path.as_path()));
    stage::refuse_same_file(inputs, args.output.as_deref())?;
    let inputs = load::load(&Sources {
        base,
        new,
        renames: args.rename.as_deref(),
        by: args.by()?,
        event: args.event.as_deref(),
        partial_ok: args.partial_ok,
    })?;
    if let (Some(event), Some(asked)) = (&inputs.event, args.time_option()) {
        preconditions::refuse_time(&inputs.base, &inputs.new, event, &asked)?;
    }
    if !args.fail_on.is_empty() {
        preconditions::refuse_shared(&inputs.base, &inputs.new)?;
    }
    Ok(inputs)
}

/// Compares both sides.
fn compare(args: &Args, inputs: &InputSides, criteria: Criteria) -> Result<Outcome> {
    let InputSides { base, new, keys, event, .. } = inputs;
    let (by, event) = (args.by()?, event.as_ref());
    let counts = |side| event::counts(side, event);
    let diff = diff::compare(&counts(base), &counts(new), keys.ids(), criteria);
    let mut warnings = warnings::warnings(base, new, event, by, &diff);
    warnings.extend(warnings::unmatched(&diff, keys, by));
    warnings.extend_from_slice(&inputs.warnings);
    let rename_candidates = rename_candidates::propose(&diff, keys, by);
    print(args, &warnings, |width, out| {
        let report = DiffReport {
            by,
            base,
            new,
            event,
            diff: &diff,
            keys,
            warnings: &warnings,
            bounds: &args.fail_on,
            sort: args.sort,
            row_limit: args.row_limit(),
            rename_candidates: &rename_candidates,
            width,
        };
        report.print(args.format, out)
    })?;
    Ok(outcome(&diff, &args.fail_on))
}

/// Compares the runs of the base with each other.
fn calibrate(args: &Args, inputs: &InputSides, criteria: Criteria) -> Result<Outcome> {
    let InputSides { base, keys, event, .. } = inputs;
    let runs = event::counts(base, event.as_ref());
    let Some(calibration) = noise::calibrate(&runs, keys, criteria) else {
        stage::warn(TOOL, "not enough runs: --noise needs at least two base runs with samples");
        return Ok(Outcome::Undecided);
    };
    let mut warnings = warnings::warnings_of_one(base, event.as_ref());
    warnings.extend_from_slice(&inputs.warnings);
    let by = args.by()?;
    print(args, &warnings, |width, out| {
        let report = NoiseReport {
            by,
            base,
            event: event.as_ref(),
            calibration: &calibration,
            keys,
            warnings: &warnings,
            row_limit: args.row_limit(),
            width,
        };
        report.print(args.format, out)
    })?;
    Ok(Outcome::Done)
}

/// Prints a report, which gets the width of the terminal. A reader that goes away does not change
/// the verdict. Where the report is for programs, warnings are for people.
fn print(
    args: &Args,
    warnings: &[String],
    report: impl FnOnce(Option<usize>, &mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    if !matches!(args.format, Format::Table | Format::Json) {
        warnings.iter().for_each(|warning| stage::warn(TOOL, &format!("warning: {warning}")));
    }
    let output = stage::output(args.output.as_deref())?;
    let width = output.width();
    let mut out = BufWriter::new(output);
    match report(width, &mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("writing the report"),
    }
}

/// The exit status, with a word on standard error on what it means.
fn outcome(diff: &Diff, bounds: &[Bound]) -> Outcome {
    match fail_on::verdict(diff, bounds) {
        DiffVerdict::Same | DiffVerdict::Changed => Outcome::Done,
        DiffVerdict::Failed => {
            let bounds: Vec<String> = bounds.iter().map(Bound::to_string).collect();
            stage::warn(TOOL, &format!("changed beyond {}", bounds.join(" or ")));
            Outcome::No
        }
        DiffVerdict::Undecided => {
            fail_on::missing(diff, bounds).iter().for_each(|line| stage::warn(TOOL, line));
            Outcome::Undecided
        }
    }
}
