//! One run: from the options to the outcome.

use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use nprof_cli::progress::ProgressReader;
use nprof_cli::stage::{self, Input, Outcome};
use nprof_cli::{step, usage};
use nprof_stream::escape::escaped;
use nprof_stream::{Encoding, RunId, Writer};
use rustc_hash::FxHasher;

use super::args::Args;
use crate::unwind::{ImageFiles, Lacking};
use crate::{perf, profiles};

/// The name of the program.
const TOOL: &str = "nprof-import";

/// Records are small; the system call for each would take most of the time.
const BUFFER: usize = 1 << 18;

/// The bytes that show the format: some lines of folded stacks.
const START: u64 = 1 << 16;

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
        let imported =
            import(input, operand, args.symfs.clone(), writer).with_context(|| name.clone())?;
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

/// Imports one recording, of the format that its beginning shows.
fn import(
    input: Input,
    operand: Option<&Path>,
    symfs: Option<PathBuf>,
    writer: Writer<stage::Output>,
) -> anyhow::Result<(perf::Imported, Writer<stage::Output>)> {
    let (name, length) = (input.name().to_owned(), input.length());
    let input = ProgressReader::new(TOOL, &name, length, input);
    let mut input = BufReader::with_capacity(BUFFER, input);
    let mut start = Vec::new();
    input.by_ref().take(START).read_to_end(&mut start)?;
    let mut input = start.as_slice().chain(input);
    let step = step::this_process(TOOL);
    if start.starts_with(perf::MAGIC) || start.starts_with(b"2ELIFREP") {
        // The facts at the end of a file are read before its records.
        let path = operand.filter(|path| path.as_os_str() != "-");
        let path = path.unwrap_or(Path::new("/dev/stdin"));
        let file = length.and_then(|_| File::open(path).ok());
        return perf::import(input, file.as_ref(), ImageFiles::new(symfs), step, writer).map_err(
            |error| match error {
                // Transparent errors hide it from the search for a closed pipe.
                perf::Error::Io(error) => error.into(),
                error => error.into(),
            },
        );
    }
    let is_compressed = start.starts_with(&[0x1f, 0x8b]);
    let writer = if profiles::is_cpu_profile(&start) {
        profiles::import_gperftools(input, step, writer)?
    } else if !is_compressed && profiles::is_folded(&start) {
        // The same file is the same run. Equal counts at the beginning are no accident.
        let run = RunId(BuildHasherDefault::<FxHasher>::default().hash_one(&start));
        profiles::import_folded(&mut input, name.as_bytes(), run, step, writer)?
    } else {
        let (writer, left_out) = profiles::import_pprof(input, is_compressed, step, writer)?;
        if !left_out.is_empty() {
            let message = format!(
                "{name}: {} are estimates without a margin of error, and left out",
                left_out.join(", ")
            );
            stage::warn(TOOL, &message);
        }
        writer
    };
    Ok((perf::Imported::default(), writer))
}
