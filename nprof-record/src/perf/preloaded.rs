//! The records of the processes that have loaded the library.

use nprof_preload::Memos;
use nprof_preload::protocol::{Content, Hello};

/// A record of a process that has loaded the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreloadRecord<'a> {
    /// The id of its ring: one for each image that a process executes.
    pub(crate) ring: u64,
    pub(crate) content: PreloadContent<'a>,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PreloadContent<'a> {
    /// The library was loaded, or the process was forked from one that has it. With the memos of its ring.
    Started(Hello, Option<Memos>),
    /// The library has written a record.
    Written(Content<'a>),
    /// It has loaded a library that does not call the hooks (RTLD_DEEPBIND).
    BoundDeeply,
    /// This number of its forked children could not connect to the recorder.
    UnconnectedChildren(u64),
    /// The process has exited, or has executed another image.
    Ended,
}
