//! nprof-format: looks into a stream. Checks it, counts what is in it, and converts between its
//! two spellings.
//!
//!     nprof-record -o - -- ./prog | nprof-format text | grep '^S'

mod args;
mod command {
    pub(crate) mod check;
    pub(crate) mod convert;
    pub(crate) mod images;
    pub(crate) mod merge;
    pub(crate) mod stat;
    pub(crate) mod tasks;
}

use std::error::Error;
use std::process::ExitCode;

use args::{Args, Command};
use nprof_format::Spelling;
use nprof_format::stage::{self, Outcome};
use nprof_format::usage;

/// What messages begin with.
const TOOL: &str = "nprof-format";

fn main() -> ExitCode {
    let args: Args = match usage::arguments(TOOL) {
        Ok(args) => args,
        Err(end) => return end,
    };
    stage::run(TOOL, || run(args))
}

fn run(args: Args) -> Result<Outcome, Box<dyn Error>> {
    match args.command {
        Command::Check(args) => command::check::run(&args),
        Command::Text(args) => command::convert::run(&args, Spelling::Text),
        Command::Binary(args) => command::convert::run(&args, Spelling::Binary),
        Command::Merge(args) => command::merge::run(&args),
        Command::Stat(args) => command::stat::run(&args),
    }
}
