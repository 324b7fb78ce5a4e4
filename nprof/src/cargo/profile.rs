//! Builds, then records the executable as cargo would run it.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use nprof_cli::{stage, usage};

use crate::cargo::args::{CargoArgs, Kind};
use crate::cargo::build;
use crate::cargo::messages::{Built, Executable};
use crate::run::{FAILURE, Request, record_and_report, refuse_standard_output};

/// The name of this program, which begins its messages.
const CARGO_NPROF: &str = "cargo-nprof";

/// The variable with the directories of shared libraries.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Runs cargo-nprof with the arguments of this process.
pub fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    // `cargo nprof` runs `cargo-nprof nprof`.
    if words.get(1).is_some_and(|word| word == "nprof") {
        words.remove(1);
    }
    let args = match CargoArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => return usage::end_with(CARGO_NPROF, &error, FAILURE),
    };
    match run(&args) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            stage::warn(CARGO_NPROF, &stage::chain(&*error));
            ExitCode::from(FAILURE)
        }
    }
}

fn run(args: &CargoArgs) -> anyhow::Result<u8> {
    refuse_standard_output(args.output.as_deref())?;
    let built = build::build(args)?;
    let executable = build::choose(args, &built)?;
    record_and_report(&request(args, &built, executable))
}

/// Returns the recording of an executable: with the directory and the variables that cargo gives it.
fn request(args: &CargoArgs, built: &Built, executable: &Executable) -> Request {
    let (kind, _) = args.target();
    let mut command = vec![executable.path.clone().into_os_string()];
    if kind == Kind::Bench {
        // Benchmarks without it check that they work, and measure nothing.
        command.push("--bench".into());
    }
    command.extend(args.args.iter().cloned());
    // Tests find their files by it.
    let mut variables =
        vec![("CARGO_MANIFEST_DIR".into(), executable.package.clone().into_os_string())];
    let mut libraries = built.library_paths_of(executable);
    libraries.extend(build::standard_library());
    // An empty word would be the current directory.
    if let Some(others) = std::env::var_os(LIBRARY_PATH).filter(|others| !others.is_empty()) {
        libraries.extend(std::env::split_paths(&others));
    }
    // A path with a colon cannot be passed on.
    variables.extend(std::env::join_paths(libraries).ok().map(|path| (LIBRARY_PATH.into(), path)));
    Request {
        output: args.output.clone(),
        options: args.record_words(),
        command,
        name: Some(executable.name.clone()),
        directory: kind.runs_in_package().then(|| executable.package.clone()),
        variables,
    }
}
