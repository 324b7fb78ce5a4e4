//! cargo-nprof: see the manual page cargo-nprof(1).

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof::cargo()
}
