//! The reason why an image has no names.

use nprof_stream::Status;

/// The reason why an image has no names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The status of its frames.
    pub(crate) status: Status,
    /// The reason, for users.
    pub(crate) reason: String,
}
