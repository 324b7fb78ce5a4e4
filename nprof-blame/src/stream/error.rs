//! The reasons why a stream cannot be filtered.

use std::io;

/// The reason why a stream cannot be filtered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The output cannot be written.
    #[error("cannot write")]
    Write(#[from] io::Error),
    /// There is nothing to charge.
    #[error(
        "the stream has no event blocked; record with nprof-record -e wall -e wakes, by a version \
         that has these events"
    )]
    NoWaits,
    /// The wakers of the waits are not recorded.
    #[error(
        "the stream has waits but no event wakes, which names their wakers; record with \
         nprof-record -e wall -e wakes, by a version that has this event"
    )]
    NoWakes,
    /// The filter has run before.
    #[error("the stream has the event blamed already; use it as it is, or give the recording")]
    Blamed,
    /// The ids of the new records are in use.
    #[error(
        "the stream uses ids above {limit}, which this filter needs; nprof-format merge assigns \
         smaller ones"
    )]
    Ids {
        /// The highest id that the input may use.
        limit: u32,
    },
}
