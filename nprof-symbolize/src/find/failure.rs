//! The reason why an image has no names.

use nprof_stream::Status;

/// Why an image has no names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What its frames get.
    pub(crate) status: Status,
    /// The reason, for people.
    pub(crate) why: String,
}
