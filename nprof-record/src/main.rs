//! Samples programs, or the whole system, with perf_event_open(2), and writes an nprof stream:
//!
//!     nprof-record -o - -- ./prog | nprof-symbolize | nprof-flat
//!
//! The command's exit status is passed on.

mod arch;
mod args;
mod assembler;
mod attr;
mod cfi;
mod cgroup;
mod child;
mod convert;
mod copy;
mod elf;
mod event;
mod extender;
mod extension;
mod follow;
mod functions;
mod growing;
mod head;
mod host;
mod images;
mod intern;
mod jit;
mod jitdump;
mod kallsyms;
mod kernel;
mod map_file;
mod mapped_file;
mod maps;
mod meter;
mod order;
mod outer;
mod output;
mod perf_map;
mod plt;
mod process;
mod procfs;
mod record;
mod refusal;
mod report;
mod resolve;
mod ring;
mod row;
mod sentinel;
mod serial;
mod session;
mod sources;
mod stack;
mod subject;
mod summary;
mod sys;
mod target;
mod text;
mod trail;
mod unwind;
mod watcher;

use std::process::ExitCode;

use nprof_format::usage;

/// What messages begin with.
const TOOL: &str = "nprof-record";

/// The exit status of the recorder's own failures, as env(1) has it.
const FAILURE: u8 = 125;

fn main() -> ExitCode {
    let args: args::Args = match usage::arguments_or(TOOL, FAILURE) {
        Ok(args) => args,
        Err(end) => return end,
    };
    match report::run(&args) {
        Ok(status) => status.into(),
        Err(error) => {
            report::say(&format!("{error:#}"));
            FAILURE.into()
        }
    }
}
