//! Finds the tools of nprof, and starts or executes them.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow};
use nprof_cli::stage::Outcome;

/// The name of this program, which begins its messages.
pub(crate) const NPROF: &str = "nprof";

/// Returns the command of a tool: beside this program, as in a build directory or an installation
/// that is not in PATH, else in PATH.
pub(crate) fn tool(name: &str) -> Command {
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name(name));
    Command::new(beside.filter(is_executable).unwrap_or_else(|| name.into()))
}

fn is_executable(path: &PathBuf) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Executes a tool in the place of this process, so that signals and the exit status are its own.
///
/// # Errors
///
/// If the tool cannot be executed.
pub(crate) fn execute(
    name: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> anyhow::Result<Outcome> {
    // Returns only if it fails.
    let error = tool(name).args(arguments).exec();
    Err(anyhow!(error).context(not_started(name)))
}

/// Returns the message about a tool that cannot be started.
pub(crate) fn not_started(name: &str) -> String {
    format!("{name} cannot be started; it is neither beside nprof nor in PATH, or not executable")
}

/// Shows the manual page of a program, or without it `--help` of the program and its command.
///
/// # Errors
///
/// If neither can be executed.
pub(crate) fn show_help(program: &str, command: Option<&str>) -> anyhow::Result<Outcome> {
    // man prints its own message about a missing page, which is no help.
    let found = Command::new("man")
        .args(["-w", program])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_ok_and(|status| status.success()) {
        return Err(Command::new("man").arg(program).exec()).context("man");
    }
    execute(program, command.into_iter().chain(["--help"]))
}
