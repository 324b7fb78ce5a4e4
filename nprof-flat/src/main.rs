//! The program nprof-flat.

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof_flat::run()
}
