//! The nprof-diff executable.

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof_diff::main()
}
