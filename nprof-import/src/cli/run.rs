//! One run: from the options to the outcome.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use nprof_cli::progress::ProgressReader;
use nprof_cli::stage::{self, Outcome};
use nprof_cli::{step, usage};
use nprof_stream::escape::escaped;
use nprof_stream::{Encoding, Writer};

use super::args::Args;
use crate::any;
use crate::unwind::Lacking;

/// The name of the program.
const TOOL: &str = "nprof-import";

/// The most files of a message.
const LACKING_MAX: usize = 4;

/// Runs the tool with the arguments of the process.
pub fn main() -> ExitCode {
    let args: Args = match usage::arguments(TOOL) {
        Ok(args) => args,
        Err(end) => return end,
    };
    stage::run(TOOL, || run(&args))
}

fn run(args: &Args) -> anyhow::Result<Outcome> {
    let operands = args.inputs.operands();
    // Opening the output would truncate an input before it is read.
    stage::refuse_same_file(operands.iter().copied(), args.output.path())?;
    // A wrong first input leaves an existing output unchanged.
    let mut inputs = Vec::new();
    for &operand in &operands {
        inputs.push((stage::open(operand)?, operand));
    }
    let output = stage::output(args.output.path())?;
    // A binary stream would garble a terminal.
    let encoding = if output.is_terminal() { Encoding::Text } else { Encoding::Binary };
    let mut writer = Writer::new(output, encoding);
    let mut is_whole = true;
    for (input, operand) in inputs {
        let name = input.name().to_owned();
        // The facts at the end of a file of perf are read before its records.
        let path = operand.filter(|path| path.as_os_str() != "-");
        let path = path.unwrap_or(Path::new("/dev/stdin"));
        let length = input.length();
        let file = length.and_then(|_| File::open(path).ok());
        let input = ProgressReader::new(TOOL, &name, length, input);
        let (step, symfs) = (step::this_process(TOOL), args.symfs.clone());
        let imported = any::import(input, &name, file.as_ref(), symfs, step, writer);
        let imported = imported.with_context(|| name.clone())?;
        writer = imported.1;
        if let Some(error) = imported.0.incomplete {
            is_whole = false;
            let message = format!("{name}: {error}; the stream has all records before that");
            stage::warn(TOOL, &message);
        }
        if let Some(machine) = imported.0.unknown_machine {
            let message = format!(
                "{name}: copies of user stacks of {} are not unwound, and incomplete; record with \
                 perf record --call-graph fp",
                escaped(&machine)
            );
            stage::warn(TOOL, &message);
        }
        if !imported.0.lacking.is_empty() {
            stage::warn(TOOL, &message_of_lacking(&name, &imported.0.lacking));
        }
    }
    Ok(if is_whole || args.tolerance.partial_ok { Outcome::Done } else { Outcome::Incomplete })
}

/// Returns the message about files without which stacks are incomplete.
fn message_of_lacking(name: &str, lacking: &[(Vec<u8>, Lacking)]) -> String {
    let describe = |(path, reason): &(Vec<u8>, Lacking)| {
        let reason = match reason {
            Lacking::NotFound => "not found",
            Lacking::OtherBuild => "of another build",
        };
        format!("{} ({reason})", escaped(path))
    };
    let mut files: Vec<String> = lacking.iter().take(LACKING_MAX).map(describe).collect();
    if lacking.len() > LACKING_MAX {
        files.push(format!("{} more", lacking.len() - LACKING_MAX));
    }
    format!(
        "{name}: stacks that need these files are incomplete: {}; pass --symfs with the root of the \
         recorded system",
        files.join(", ")
    )
}
