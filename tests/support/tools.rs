//! The tools under test, built once per test process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The names of all tools.
pub const TOOLS: [&str; 13] = [
    "nprof",
    "nprof-record",
    "nprof-symbolize",
    "nprof-blame",
    "nprof-flat",
    "nprof-paths",
    "nprof-annotate",
    "nprof-diff",
    "nprof-format",
    "nprof-export",
    "nprof-import",
    "nprof-top",
    "cargo-nprof",
];

/// Returns the directory of the built tools.
///
/// `cargo test` does not build the binaries of other packages, so the first call builds them, in
/// the profile and target directory of the test itself.
///
/// # Panics
///
/// If they cannot be built.
pub fn tools() -> &'static Path {
    static TOOLS: OnceLock<PathBuf> = OnceLock::new();
    TOOLS.get_or_init(build)
}

/// Returns the path of a built tool.
pub fn tool(name: &str) -> PathBuf {
    tools().join(name)
}

fn build() -> PathBuf {
    // The test executable is TARGET/PROFILE/deps/TEST.
    let test = std::env::current_exe().expect("a test knows its own path");
    let directory = test.ancestors().nth(2).expect("a test lies in TARGET/PROFILE/deps");
    let target = directory.parent().expect("a profile lies in a target");
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let status = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--quiet", "--locked", "--workspace", "--bins"])
        .args(["--profile", profile, "--target-dir"])
        .arg(target)
        .current_dir(super::repository())
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "the tools cannot be built");
    directory.to_owned()
}
