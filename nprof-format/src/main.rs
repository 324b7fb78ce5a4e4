//! nprof-format: see the manual page nprof-format(1).

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof_format::main()
}
