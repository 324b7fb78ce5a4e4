//! `merge`: several streams as one segment.

use std::error::Error;
use std::path::Path;

use nprof_cli::stage::{self, Outcome};
use nprof_cli::step;
use nprof_stream::{Encoding, Writer};

use super::args::Merge;
use crate::merge::{Merged, merge};

pub(crate) fn run(args: &Merge) -> Result<Outcome, Box<dyn Error>> {
    let operands = args.inputs.operands();
    check(&operands, args.output.path())?;
    let mut inputs = Vec::with_capacity(operands.len());
    for operand in operands {
        let input = stage::open(operand)?;
        inputs.push((input.name().to_owned(), input));
    }
    let output = stage::output(args.output.path())?;
    // A merged stream is binary.
    output.refuse_terminal()?;
    // A step names the tool, so that a reader of the stream knows that it was merged.
    let step = step::this_process(super::args::TOOL);
    let mut writer = Writer::new(output, Encoding::Binary);
    let result = merge(inputs, &step, &mut writer);
    // Records before an error are written.
    writer.finish()?;
    let merged = result?;
    warn(&merged);
    let complete = merged.incomplete_inputs.is_empty() || args.tolerance.partial_ok;
    Ok(if complete { Outcome::Done } else { Outcome::Incomplete })
}

/// Refuses standard input as two streams, and an output that is also an input.
fn check(operands: &[Option<&Path>], output: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let is_stdin = |operand: &Option<&Path>| operand.is_none_or(|path| path.as_os_str() == "-");
    if operands.iter().filter(|operand| is_stdin(operand)).count() > 1 {
        return Err("standard input can be an operand only once".into());
    }
    Ok(stage::refuse_same_file(operands.iter().copied(), output)?)
}

fn warn(merged: &Merged) {
    for incomplete in &merged.incomplete_inputs {
        stage::warn(super::args::TOOL, &incomplete.to_string());
    }
    for run in &merged.repeated {
        let message =
            format!("run {run} is in the input more than once; its samples count as often");
        stage::warn(super::args::TOOL, &message);
    }
    if merged.unknown > 0 {
        let message = format!(
            "dropped {} records of unknown kinds, which may contain ids; use a newer nprof",
            merged.unknown
        );
        stage::warn(super::args::TOOL, &message);
    }
}
