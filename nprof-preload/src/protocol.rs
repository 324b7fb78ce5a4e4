//! The contract between the preloaded library and the recorder: settings, handshake, ring, records. Pure.
//!
//! 1. The recorder listens on an abstract `SOCK_SEQPACKET` socket with a random name and starts the program with
//!    `LD_PRELOAD` and [`VARIABLE`], which holds the [`Settings`].
//! 2. Each process that loads the library creates a ring in a memfd, connects, sends one [`Hello`] with the memfd
//!    as `SCM_RIGHTS`, and closes both descriptors. The message has the secret of the settings: other users can
//!    connect, too. It stays in the socket's queue even if the process ends first. With [`Settings::acknowledge`]
//!    the process waits until the recorder closes the connection.
//! 3. The library writes records into the ring, the recorder reads them. The layouts use the byte order of the
//!    machine.
//!
//! If every allocation or call is recorded, the recorder writes [`StackMemo`]s for the library, which need no copy of the
//! stack.
//!
//! A process image that never sends a `Hello` has not loaded the library. A forked child sends its own `Hello`
//! with its first record; a child of vfork(2) writes to its parent's ring until it executes a program.

mod hello;
mod layout;
mod record;
mod settings;
mod stack_memo;

pub use hello::{FLAG_PROGRAM_ALLOCATOR, Hello};
pub use layout::{
    ALIGNMENT, DATA_OFFSET, Line, MAGIC, MAXIMUM_RING_BYTES, MINIMUM_RING_BYTES, RecordHeader,
    RingHeader, VERSION,
};
pub use record::{
    Allocated, Called, CalledAgain, Capture, Content, Descriptor, Kind, Opened, Origin, Record,
    Registers, Repeated,
};
pub use settings::{Settings, VARIABLE};
pub use stack_memo::{MEMO_BYTES, MEMO_WAYS, MEMO_WORDS, MEMOS, StackMemo, first_of_set};
