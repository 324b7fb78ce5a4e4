//! One run: from the options to the outcome.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use nprof_cli::stage::{self, Input, Outcome};
use nprof_cli::{step, time, usage};
use nprof_stream::{Encoding, IncompleteInput, Reader, Verdict, Writer};

use super::args::Args;
use crate::charge::Limits;
use crate::stream::Filter;

/// The name of the program.
const TOOL: &str = "nprof-blame";

/// The most observations in memory: about 250 MB.
const ACTIVITIES: usize = 1 << 21;

/// Runs the tool with the arguments of the process.
pub fn main() -> ExitCode {
    let args: Args = match usage::arguments(TOOL) {
        Ok(args) => args,
        Err(end) => return end,
    };
    stage::run(TOOL, || run(&args))
}

fn run(args: &Args) -> anyhow::Result<Outcome> {
    let input = stage::open(args.input.as_deref())?;
    // Opening the output would truncate the input.
    stage::refuse_same_file([args.input.as_deref()], args.output.path())?;
    let output = stage::output(args.output.path())?;
    // A binary stream would garble a terminal.
    let encoding = if output.is_terminal() { Encoding::Text } else { Encoding::Binary };
    let limits = Limits {
        depth: usize::from(args.depth),
        // At most 292 years, as the option's parser checks.
        window_ns: args.window.as_nanos() as u64,
        activities: ACTIVITIES,
    };
    let mut filter = Filter::new(Writer::new(output, encoding), step::this_process(TOOL), limits);
    let name = input.name().to_owned();
    let mut reader = Reader::new(input);
    if let Err(error) = copy(&mut reader, &mut filter) {
        // The records before the error are valid.
        filter.flush()?;
        return Err(error.context(name));
    }
    // Open waits of a truncated stream are charged, too.
    let charger = filter.finish().with_context(|| name.clone())?;
    if let Some(window_ns) = charger.shortened_window_ns() {
        let window = time::rounded(Duration::from_nanos(window_ns));
        let message = format!(
            "{name}: kept the activity of threads for {window} only, to save memory; waits that \
             lasted longer are not fully explained"
        );
        stage::warn(TOOL, &message);
    }
    if reader.verdict() == Verdict::Complete {
        return Ok(Outcome::Done);
    }
    stage::warn(TOOL, &IncompleteInput::of(&name, &reader).to_string());
    Ok(if args.tolerance.partial_ok { Outcome::Done } else { Outcome::Incomplete })
}

/// Copies the stream. Flushes the output before waiting for input.
fn copy<W: Write>(reader: &mut Reader<Input>, filter: &mut Filter<W>) -> anyhow::Result<()> {
    loop {
        // The next read may block: a live stream must not wait in a buffer.
        if reader.would_block() {
            filter.flush()?;
        }
        let Some(record) = reader.next()? else { return Ok(()) };
        filter.process(&record)?;
    }
}
