//! What the tests across the tools share: the built tools, a shell to run pipes of them in, and
//! programs to profile.
//!
//! Pipes are written as a user types them and run by bash with the tools first in its `PATH`,
//! in a scratch directory of their own.

mod cli;
mod fixture;
mod help;
mod report;
mod shell;
mod streams;
mod tools;

pub use cli::{ODD_NAME, Report, odd_names, python};
pub use fixture::{compile, compile_demo, words};
pub use help::{Help, Opt};
pub use report::{Row, rows};
pub use shell::{Finished, Shell};
pub use streams::{any_stream, stream};
pub use tools::{TOOLS, tool, tools};

use std::io::Write;
use std::path::{Path, PathBuf};

/// Where the repository is.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"))
}

/// The path of a program, if it is on this machine.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Whether a test that needs these programs can run; says on the real standard error, past the
/// test runner's capture, that it is skipped when it cannot.
pub fn have(programs: &[&str]) -> bool {
    let missing: Vec<&str> =
        programs.iter().copied().filter(|program| find_program(program).is_none()).collect();
    if !missing.is_empty() {
        skipped(&format!("not on this machine: {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// Says that a test, or a part of it, is skipped, and why.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Where standard error is gone there is nobody left to tell.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}
