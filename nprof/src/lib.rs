//! nprof: one command for the tools of nprof, and for the tasks that take several of them.
//!
//! ```sh
//! nprof run -- ./prog
//! nprof flat --by line nprof-prog-*.nprof
//! ```
//!
//! - `cli`: the command line, and the list of commands;
//! - `programs`: finds, starts and executes the tools;
//! - `new_name`: new files and directories with the time in their names;
//! - `run`, `top`, `bench`, `doctor`: the commands that nprof has itself;
//! - `cargo`: the program cargo-nprof, which builds a Rust project and runs it as `nprof run` does.

mod bench;
mod cargo;
mod cli;
mod doctor;
mod new_name;
mod programs;
mod run;
mod top;

pub use cargo::main as cargo;
pub use cli::main;
