//! The sub-commands of nprof-format.

mod args;
mod books;
mod check;
mod convert;
mod image_list;
mod images;
mod merge;
mod stat;
mod tasks;

use std::error::Error;
use std::process::ExitCode;

use nprof_cli::stage::{self, Outcome};
use nprof_cli::usage;
use nprof_stream::Encoding;

use args::{Args, Command, TOOL};

/// Runs the tool with the arguments of the process.
pub fn main() -> ExitCode {
    let args: Args = match usage::arguments(TOOL) {
        Ok(args) => args,
        Err(end) => return end,
    };
    stage::run(TOOL, || run(args))
}

fn run(args: Args) -> Result<Outcome, Box<dyn Error>> {
    match args.command {
        Command::Check(args) => check::run(&args),
        Command::Text(args) => convert::run(&args, Encoding::Text),
        Command::Binary(args) => convert::run(&args, Encoding::Binary),
        Command::Merge(args) => merge::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Images(args) => image_list::run(&args),
    }
}
