//! The entry point: parses the command line and runs the tool on a thread of its own.

use std::process::ExitCode;

use nprof_cli::{stage, usage};

use super::{args, run};
use crate::lookup::parallel::STACK;

/// Runs the tool with the arguments of the process; returns its exit status.
pub fn main() -> ExitCode {
    let args: args::Args = match usage::arguments(run::TOOL) {
        Ok(args) => args,
        Err(end) => return end,
    };
    stage::run(run::TOOL, move || {
        let worker = std::thread::Builder::new().stack_size(STACK).spawn(move || run::run(&args));
        let result = worker.map(std::thread::JoinHandle::join);
        match result {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => Err(anyhow::Error::new(error).context("cannot start a thread")),
        }
    })
}
