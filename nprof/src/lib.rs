//! nprof: one command for the tools of nprof, and for the tasks that take several of them.
//!
//! ```sh
//! nprof run -- ./prog
//! nprof flat --by line nprof-prog-*.nprof
//! ```
//!
//! - `cli`: the command line, and the list of commands;
//! - `programs`: finds, starts and executes the tools;
//! - `date`: the time in the names of recordings;
//! - `run`, `bench`, `doctor`: the commands that nprof has itself.

mod bench;
mod cli;
mod date;
mod doctor;
mod programs;
mod run;

pub use cli::main;
