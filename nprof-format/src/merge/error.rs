//! The result of a merge.

use std::io;

use nprof_stream::{IncompleteInput, RunId};

/// The reason why streams cannot be merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An input cannot be read.
    #[error("{input}")]
    Read {
        /// The input, as the user named it.
        input: String,
        /// The cause.
        source: nprof_stream::Error,
    },
    /// The times of a run cannot be compared with those of others.
    #[error(
        "{input}: run {run} has no time of day (time, utc) to order it by; pass the streams to the reports as separate operands instead"
    )]
    NoTimeOfDay {
        /// The input, as the user named it.
        input: String,
        /// The run.
        run: RunId,
    },
    /// The output cannot be written.
    #[error("the merged stream")]
    Write(#[from] io::Error),
}

/// The findings of a merge.
#[derive(Debug, Default)]
pub struct Merged {
    /// The incomplete inputs.
    pub incomplete_inputs: Vec<IncompleteInput>,
    /// Runs that the inputs contain more than once; so are their samples.
    pub repeated: Vec<RunId>,
    /// Number of unknown optional records that were dropped: they may contain ids, which change.
    pub unknown: u64,
}
