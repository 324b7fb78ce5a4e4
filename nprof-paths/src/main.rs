//! The program nprof-paths.

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof_paths::run()
}
