//! One run: from the options to the outcome.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context;
use nprof_cli::progress::ProgressReader;
use nprof_cli::stage::{self, Outcome};
use nprof_cli::usage;
use nprof_stream::IncompleteInput;

use super::args::{Args, Format};
#[cfg(feature = "parquet")]
use crate::fleet;
use crate::model::Profile;
use crate::read::ProfileReader;
use crate::write;

/// The name of the program.
const TOOL: &str = "nprof-export";

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
    #[cfg(feature = "parquet")]
    if args.to == Format::Parquet && args.output.path().is_none_or(|path| path.as_os_str() == "-") {
        anyhow::bail!("--to parquet writes a directory; name it with -o");
    }
    // Opening the output would truncate an input before it is read.
    stage::refuse_same_file(operands.iter().copied(), args.output.path())?;
    let mut reader = ProfileReader::new(args.sampling());
    let mut incomplete = Vec::new();
    for operand in operands {
        let input = stage::open(operand)?;
        let name = input.name().to_owned();
        let input = ProgressReader::new(TOOL, &name, input.length(), input);
        let verdict = reader.read(&name, input).with_context(|| name.clone())?;
        incomplete.extend(verdict);
    }
    let profile = reader.finish();
    write(args, &profile).context("writing the profile")?;
    report(args, &profile, &incomplete);
    let is_whole = incomplete.is_empty() || args.tolerance.partial_ok;
    Ok(if is_whole { Outcome::Done } else { Outcome::Incomplete })
}

fn write(args: &Args, profile: &Profile) -> anyhow::Result<()> {
    #[cfg(feature = "parquet")]
    if let (Format::Parquet, Some(directory)) = (args.to, args.output.path()) {
        return fleet::write(profile, directory);
    }
    // Opened last: an error of the input leaves an existing file unchanged.
    let output = stage::output(args.output.path())?;
    if args.to.is_binary() {
        output.refuse_terminal()?;
    }
    let mut out = BufWriter::new(output);
    write_to(args.to, profile, &mut out)?;
    Ok(out.flush()?)
}

fn write_to(format: Format, profile: &Profile, out: &mut impl Write) -> std::io::Result<()> {
    match format {
        Format::Pprof => write::pprof::write(profile, out),
        Format::Firefox => write::firefox::write(profile, out),
        Format::Speedscope => write::speedscope::write(profile, out),
        Format::Callgrind => write::callgrind::write(profile, out),
        // Several files.
        #[cfg(feature = "parquet")]
        Format::Parquet => Ok(()),
    }
}

/// Prints the facts that the file does not have.
fn report(args: &Args, profile: &Profile, incomplete: &[IncompleteInput]) {
    // The name of the input is escaped already.
    for input in incomplete {
        stage::warn_escaped(TOOL, &input.to_string());
    }
    if !profile.facts.has_names && !profile.samples.is_empty() {
        stage::warn(TOOL, "frames have no names; pipe the stream through nprof-symbolize");
    }
    if profile.facts.folded > 0 {
        let message = format!(
            "{} samples are (other): the streams have more stacks than are kept in memory",
            profile.facts.folded
        );
        stage::warn(TOOL, &message);
    }
    let lost = profile.facts.lost;
    let lost = if lost == 0 { String::new() } else { format!(", the {lost} lost samples") };
    let format = match args.to {
        Format::Pprof => "times, CPUs, margins of error",
        Format::Firefox => "CPUs, margins of error",
        Format::Speedscope => "idle time, CPUs, source lines, margins of error",
        Format::Callgrind => "threads, times, CPUs, margins of error; calls are samples, not calls",
        #[cfg(feature = "parquet")]
        Format::Parquet => "threads, CPUs, the times of samples",
    };
    // The Firefox Profiler has a marker for them, pprof a comment, Parquet a column.
    let has_lost = !matches!(args.to, Format::Speedscope | Format::Callgrind);
    let lost = if has_lost { "" } else { &lost };
    stage::warn(TOOL, &format!("not in the file: {format}{lost}"));
}
