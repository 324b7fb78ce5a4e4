//! The program nprof-annotate.

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof_annotate::run()
}
