//! Messages on standard error.

use std::io::{self, Write};

/// The name of the tool in messages.
pub(crate) const TOOL: &str = "nprof-record";

/// The exit status of failures of the recorder itself, as with env(1).
pub(crate) const FAILURE: u8 = 125;

/// Prints a message on one line of standard error.
pub(crate) fn print_message(message: &str) {
    // An error of standard error cannot be reported anywhere.
    let _ = writeln!(io::stderr(), "{TOOL}: {message}");
}
