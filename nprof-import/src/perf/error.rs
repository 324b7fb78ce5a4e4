//! The errors of reading perf.data.

use std::io;

/// The reason why a file cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The input or output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file ends within a part.
    #[error("byte {offset}: the file ends within {part}")]
    Truncated {
        /// The place in the file.
        offset: u64,
        /// The part.
        part: &'static str,
    },
    /// A part contradicts the format.
    #[error("byte {offset}: {problem}")]
    Damaged {
        /// The place in the file.
        offset: u64,
        /// The problem.
        problem: &'static str,
    },
    /// The file is valid, but cannot be imported.
    #[error("{0}")]
    Unsupported(&'static str),
}
