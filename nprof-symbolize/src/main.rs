//! nprof-symbolize: gives the frames of an nprof stream their functions, files, lines and
//! inlined calls.
//!
//! Reads one stream and writes the same stream, annotated:
//!
//!     nprof-record -o - -- ./prog | nprof-symbolize | nprof-flat

mod ahead;
mod args;
mod background;
mod catalog;
mod clock;
mod crew;
mod demangle;
mod detail;
mod dwarf;
mod earlier;
mod elf;
mod epoch_names;
mod extents;
mod filter;
mod frames;
#[cfg(fuzzing)]
#[path = "../fuzz/image.rs"]
pub mod fuzz;
mod heat;
mod host;
mod images;
mod kernel;
mod late;
mod links;
mod named;
mod names;
mod packages;
mod plt;
mod pool;
mod resolve;
mod run;
mod simplify;
mod sites;
mod slot;
mod summary;
mod symbols;
mod theirs;
mod waiting;

use std::process::ExitCode;

use nprof_cli::{stage, usage};

/// How much stack each thread gets, bytes: debug information and mangled names nest, and their
/// parsers recurse, as deeply as `dwarf` and `demangle` let them. Only what is used takes memory.
const STACK: usize = 128 << 20;

fn main() -> ExitCode {
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
