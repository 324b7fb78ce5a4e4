//! nprof-paths: how the programs of a recording got where they were. Reads streams, writes call
//! paths, call trees, folded stacks or a flame graph.
//!
//!     nprof-record -o - -- ./prog | nprof-symbolize | nprof-paths --view tree

mod args;
mod builder;
mod flamegraph;
mod folded;
mod json;
mod outline;
mod paths;
mod select;
mod separated;
mod tree;
mod view;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use nprof_format::profile::Profile;
use nprof_format::stage::{self, Outcome};

use args::Args;
use builder::Builder;

/// What messages begin with.
const TOOL: &str = "nprof-paths";

fn main() -> ExitCode {
    let args = Args::get();
    stage::run(TOOL, || run(&args))
}

fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut builder = Builder::new(args.format.has_commands());
    let mut profile = Profile::new(builder.split());
    for operand in args.operands() {
        let input = stage::open(operand)?;
        let name = input.name().to_owned();
        profile
            .read(&name, input, |context, cell, sum| builder.add(context, cell, sum))
            .with_context(|| name.clone())?;
    }
    let summary = &profile.summary;
    let events = select::events(summary, args.event.as_deref(), args.format.has_one_event())?;
    let mut output = stage::output(args.output.as_deref())?;
    let report = view::report(&builder.finish(), &events.chosen, summary, args, output.width())?;
    output.write_all(&report).context("writing the report")?;
    for trouble in &summary.troubles {
        stage::warn(TOOL, &trouble.to_string());
    }
    if !summary.symbolized && summary.samples() > 0 {
        stage::warn(TOOL, "frames have no names yet: pipe the stream through nprof-symbolize");
    }
    if let Some(note) = events.note {
        stage::warn(TOOL, &note);
    }
    let whole = summary.is_complete() || args.partial_ok;
    Ok(if whole { Outcome::Done } else { Outcome::Incomplete })
}
