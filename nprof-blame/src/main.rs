//! nprof-blame: see the library of the same name.

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof_blame::main()
}
