//! One run of nprof-diff, from its arguments to its exit status.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use nprof_cli::stage::{self, Outcome};
use nprof_cli::usage;
use nprof_report::join::Joins;

use crate::args::Args;
use crate::compare::comparison::Criteria;
use crate::compare::diff::{self, Diff};
use crate::compare::fail_on::{self, Bound, DiffResult};
use crate::compare::ratio::Divisor;
use crate::compare::{noise, rename_candidates, warnings};
use crate::input::event::{self, ComparedEvent};
use crate::input::load::{InputSides, Sources};
use crate::input::row_kind::RowKind;
use crate::input::{load, preconditions};
use crate::print::{self, DiffReport, DiffRows, NoiseReport};

const TOOL: &str = "nprof-diff";

/// Runs nprof-diff with the arguments of this process.
pub fn main() -> ExitCode {
    match usage::arguments(TOOL) {
        Ok(args) => stage::run(TOOL, || run(&args)),
        // Help, version, or a usage error; already printed.
        Err(status) => status,
    }
}

fn run(args: &Args) -> Result<Outcome> {
    let mut inputs = load_inputs(args)?.into_iter();
    // A page has call paths and source lines, too.
    let Some(rows) = inputs.next() else { return Ok(Outcome::Undecided) };
    let (inputs, paths, lines) = (rows, inputs.next(), inputs.next());
    let amount = inputs.event.as_ref().and_then(ComparedEvent::amount_unit);
    // The runs of one side that are compared with each other are in no other order than all runs.
    let is_in_turn = args.noise || preconditions::times_are_comparable(&inputs.base, &inputs.new);
    let criteria =
        Criteria { alpha: args.alpha(), amount, is_in_turn, min_effect: args.min_effect };
    if args.noise {
        calibrate(args, &inputs, criteria)
    } else {
        compare(args, &inputs, [paths.as_ref(), lines.as_ref()], criteria)
    }
}

/// Reads the streams, and refuses options that do not apply to them. Returns both sides with the counts of
/// the rows, and of call paths and source lines if the format has them.
fn load_inputs(args: &Args) -> Result<Vec<InputSides>> {
    let [base, new] = args.sides()?;
    let paths = base.iter().chain(new).chain(&args.rename).map(|path| Some(path.as_path()));
    stage::refuse_same_file(paths, args.output.path())?;
    let mut row_kinds = vec![args.row_kind()?];
    if args.format.is_page() {
        row_kinds.extend([RowKind::Path, RowKind::Line]);
    }
    let sides = load::load(&Sources {
        base,
        new,
        renames: args.rename.as_deref(),
        row_kinds: &row_kinds,
        event: args.event.as_deref(),
        per: args.per.as_deref(),
        joins: Joins::new(&args.join).map_err(anyhow::Error::msg)?,
        partial_ok: args.tolerance.partial_ok,
    })?;
    for inputs in &sides {
        for (unit, option) in args.amount_options() {
            let Some(event) = &inputs.event else { break };
            preconditions::refuse_amount(&inputs.base, &inputs.new, event, unit, &option)?;
        }
        // Without a gate it is only a warning.
        if !args.fail_on.is_empty() {
            preconditions::refuse_shared(&inputs.base, &inputs.new)?;
        }
    }
    Ok(sides)
}

/// Compares both sides and prints the report, with call paths and source lines if there are any.
fn compare(
    args: &Args,
    inputs: &InputSides,
    [paths, lines]: [Option<&InputSides>; 2],
    criteria: Criteria,
) -> Result<Outcome> {
    let InputSides { base, new, keys, event, per, .. } = inputs;
    let (row_kind, event, per) = (args.row_kind()?, event.as_ref(), per.as_ref());
    let diff = difference(inputs, criteria);
    let of_others =
        [paths, lines].map(|rows| rows.map(|rows| (difference(rows, criteria), &rows.keys)));
    let [of_paths, of_lines] =
        of_others.each_ref().map(|rows| rows.as_ref().map(|(diff, keys)| DiffRows { diff, keys }));
    let mut warnings = warnings::of_comparison(base, new, event, row_kind, &diff);
    warnings.extend(warnings::of_unmatched_keys(&diff, keys, row_kind));
    warnings.extend_from_slice(&inputs.warnings);
    for (rows, kind) in [(paths, "call paths"), (lines, "lines")] {
        let others = rows.iter().flat_map(|rows| &rows.warnings);
        let others = others.filter(|warning| !inputs.warnings.contains(warning));
        warnings.extend(others.map(|warning| format!("{kind}: {warning}")));
    }
    let rename_candidates = rename_candidates::propose(&diff, keys, row_kind);
    let report = DiffReport {
        row_kind,
        base,
        new,
        event,
        per,
        diff: &diff,
        keys,
        // Functions have no files.
        moved_directories: &lines.unwrap_or(inputs).moved_directories,
        warnings: &warnings,
        bounds: &args.fail_on,
        sort: args.sort,
        row_limit: args.row_limit(),
        is_verbose: args.verbose,
        rename_candidates: &rename_candidates,
        paths: of_paths,
        lines: of_lines,
    };
    write_report(args, &warnings, |width, out| {
        print::print_diff(&report, args.format, width, out)
    })?;
    Ok(outcome(&diff, &args.fail_on))
}

/// Compares the rows of both sides.
fn difference(inputs: &InputSides, criteria: Criteria) -> Diff {
    let InputSides { base, new, keys, event, per, .. } = inputs;
    match (event, per) {
        (Some(event), Some(per)) => {
            let sides = [base, new].map(|side| event::paired_runs(side, event, per));
            let [base, new] = &sides;
            let runs = [&base.per[..], &new.per[..]];
            let (counts_calls, is_counted) = (per.counts_calls(), per.is_counted());
            let divisor = Divisor { runs, counts_calls, is_counted };
            diff::compare(&base.event, &new.event, Some(divisor), keys.ids(), criteria)
        }
        _ => {
            let [base, new] = [base, new].map(|side| event::runs(side, event.as_ref()));
            diff::compare(&base, &new, None, keys.ids(), criteria)
        }
    }
}

/// Compares the runs of the base with each other and prints the report.
fn calibrate(args: &Args, inputs: &InputSides, criteria: Criteria) -> Result<Outcome> {
    let InputSides { base, keys, event, .. } = inputs;
    let event = event.as_ref();
    let Some(calibration) = noise::calibrate(&event::runs(base, event), keys, criteria) else {
        stage::warn(TOOL, "not enough runs: --noise needs at least two base runs with samples");
        return Ok(Outcome::Undecided);
    };
    let mut warnings = warnings::of_side(base, event);
    warnings.extend_from_slice(&inputs.warnings);
    let report = NoiseReport {
        row_kind: args.row_kind()?,
        base,
        event,
        calibration: &calibration,
        keys,
        warnings: &warnings,
        row_limit: args.row_limit(),
    };
    write_report(args, &warnings, |width, out| {
        print::print_noise(&report, args.format, width, out)
    })?;
    Ok(Outcome::Done)
}

/// Opens the output and writes a report with `print`, which receives the width of the terminal.
fn write_report(
    args: &Args,
    warnings: &[String],
    print: impl FnOnce(Option<usize>, &mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    if !args.format.has_warnings() {
        warnings.iter().for_each(|warning| stage::warn(TOOL, &format!("warning: {warning}")));
    }
    let output = stage::output(args.output.path())?;
    let width = output.width();
    let mut out = BufWriter::new(output);
    match print(width, &mut out).and_then(|()| out.flush()) {
        // A closed pipe (`| head`) does not change the result.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("writing the report"),
    }
}

/// Returns the exit status, and prints its reason on standard error.
fn outcome(diff: &Diff, bounds: &[Bound]) -> Outcome {
    match fail_on::result(diff, bounds) {
        DiffResult::Same | DiffResult::Changed => Outcome::Done,
        DiffResult::Failed => {
            let bounds: Vec<String> =
                fail_on::exceeded(diff, bounds).map(Bound::to_string).collect();
            stage::warn(TOOL, &format!("changed beyond {}", bounds.join(" and ")));
            Outcome::No
        }
        DiffResult::Undecided => {
            fail_on::missing(diff, bounds).iter().for_each(|line| stage::warn(TOOL, line));
            Outcome::Undecided
        }
    }
}
