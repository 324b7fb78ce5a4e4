//! The entry point.

use std::process::ExitCode;

use nprof_cli::{stage, usage};

use super::{args, run};
use crate::lookup::parallel::STACK_BYTES;

/// Runs the tool with the arguments of the process; returns its exit status.
pub fn main() -> ExitCode {
    let args: args::Args = match usage::arguments(args::TOOL) {
        Ok(args) => args,
        Err(end) => return end,
    };
    // The main thread's stack is too small for the parsers.
    stage::run(args::TOOL, move || {
        let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
        let thread = builder.spawn(move || run::run(&args));
        match thread.map(std::thread::JoinHandle::join) {
            Ok(Ok(outcome)) => outcome,
            // A bug: the process exits with the status of a panic, 101.
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => Err(anyhow::Error::new(error).context("cannot start a thread")),
        }
    })
}
