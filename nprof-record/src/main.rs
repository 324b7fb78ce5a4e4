//! The command `nprof-record`; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof_record::main()
}
