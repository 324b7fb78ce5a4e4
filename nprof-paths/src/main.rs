//! The nprof-paths program.

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof_paths::run()
}
