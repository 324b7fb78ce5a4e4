//! Support for tests: the built tools, a shell to run pipes of them, programs to profile, and
//! generated streams.
//!
//! Tests write pipes as a user types them. Bash runs them in a scratch directory with the tools
//! first in its `PATH`.

pub mod arbitrary;
pub mod browser;
mod golden;
mod help;
mod programs;
mod report_tool;
pub mod segment;
mod shell;
mod streams;
mod terminal;
mod tools;
mod tsv;

pub use golden::assert_golden;
pub use help::{Help, Opt};
pub use programs::{compile, compile_demo, words};
pub use report_tool::{ODD_NAME, Report, heap, odd_names, python, waits};
pub use shell::{Finished, Shell};
pub use streams::{any_stream, stream};
pub use terminal::Terminal;
pub use tools::{TOOLS, tool, tools};
pub use tsv::{Row, rows};

use std::io::Write;
use std::path::{Path, PathBuf};

/// Returns the root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"))
}

/// Returns the path of a program. None if it is not installed.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// True if all these programs are installed. If not, prints that the test is skipped.
pub fn have(programs: &[&str]) -> bool {
    let missing: Vec<&str> =
        programs.iter().copied().filter(|program| find_program(program).is_none()).collect();
    if !missing.is_empty() {
        skipped(&format!("not installed: {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// Prints that a test, or a part of it, is skipped, and the reason.
pub fn skipped(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Unlike eprintln!, writeln! is not captured by the test runner. A closed standard error is
    // ignored: a skipped test is no failure.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}
