//! The program nprof-top.

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof_top::run()
}
