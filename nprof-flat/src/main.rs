//! The nprof-flat program.

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof_flat::run()
}
