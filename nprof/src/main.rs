//! nprof: see the manual page nprof(1).

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof::main()
}
