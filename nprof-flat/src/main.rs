//! nprof-flat: where the time of a recording is, by function, line, address, image, thread, ...
//! Reads streams, writes a table.
//!
//!     nprof-record -o - -- ./prog | nprof-symbolize | nprof-flat

mod args;
mod flat;
mod json;
mod key;
mod select;
mod separated;
mod table;
#[cfg(test)]
mod test_stream;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use nprof_format::profile::Profile;
use nprof_format::stage::{self, Outcome};

use args::{Args, Format};
use flat::Flat;

/// What messages begin with.
const TOOL: &str = "nprof-flat";

fn main() -> ExitCode {
    let args = Args::parse();
    stage::run(TOOL, || run(&args))
}

fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut flat = Flat::new(key::columns(&args.by));
    let mut profile = Profile::new(flat.split());
    for operand in args.operands() {
        let input = stage::open(operand)?;
        let name = input.name().to_owned();
        let sink = |tables: &_, cell: &_, sum| flat.add(tables, cell, sum);
        profile.read(&name, input, sink).with_context(|| name.clone())?;
    }
    let summary = &profile.summary;
    let mut output = stage::output(args.output.as_deref())?;
    let sections = select::sections(flat.rows(), summary, &args.choice());
    let report = match args.format {
        Format::Table => table::print(flat.columns(), &sections, summary, args, output.width()),
        Format::Tsv => separated::tsv(flat.columns(), &sections, summary, args.confidence),
        Format::Csv => separated::csv(flat.columns(), &sections, summary, args.confidence)?,
        Format::Json => json::print(flat.columns(), &sections, summary, args.confidence)?,
    };
    output.write_all(&report).context("writing the report")?;
    for trouble in &summary.troubles {
        stage::warn(TOOL, &trouble.to_string());
    }
    if !summary.symbolized && summary.samples() > 0 {
        stage::warn(TOOL, "frames have no names yet: pipe the stream through nprof-symbolize");
    }
    let whole = summary.is_complete() || args.partial_ok;
    Ok(if whole { Outcome::Done } else { Outcome::Incomplete })
}
