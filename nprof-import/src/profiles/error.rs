//! The errors of reading profiles.

use std::io;

/// The reason why a profile cannot be imported.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The input or output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line of folded stacks is malformed.
    #[error("line {line}: {problem}")]
    Line {
        /// The line.
        line: u64,
        /// The problem.
        problem: &'static str,
    },
    /// A part of a binary file is malformed.
    #[error("byte {offset}: {problem}")]
    Damaged {
        /// The place in the file.
        offset: u64,
        /// The problem.
        problem: &'static str,
    },
    /// The file is not what it seems to be.
    #[error("{0}")]
    Malformed(String),
}
