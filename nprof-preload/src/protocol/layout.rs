//! The layout of a ring in shared memory. Pure.
//!
//! A ring is a [`RingHeader`] in the first page, a data area after it, and, if every allocation is recorded, memos of
//! stacks ([`super::StackMemo`]). Positions are byte counts since the
//! start that never wrap; position modulo `data_bytes` is the place in the data area. Any number of threads
//! write, one reader reads:
//!
//! - A writer moves `head` from `p` to `p + bytes` by compare-and-exchange if `p + bytes - tail <= data_bytes`,
//!   announces the record by its size, its thread and the complement of `key + p`, writes it, and stores `key + p`
//!   into its [`RecordHeader::commit`] with release order.
//! - The reader loads `commit` of the record at `tail` with acquire order. If it is `key + tail`, the record is
//!   complete; the reader copies it and stores `tail + bytes` with release order.
//! - A thread that ends within a hook leaves a record that is never complete. The reader skips an announced record of
//!   a thread that is gone; once the process has ended, it skips to the next commit word.
//! - A signal handler that leaves a hook by longjmp(3) does so, too. The next record of its thread completes it as
//!   [`super::Kind::Abandoned`].
//!
//! `key` is random, so bytes of an older record cannot look like the commit word of a later position. A record
//! never wraps: a record of the kind [`super::Kind::Padding`] fills the end of the area.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The first word of a ring and of a `Hello`.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"nprof/pl");
/// The version of this contract. Library and recorder are built together; the version reveals a library that a
/// long-lived child still has from another build.
pub const VERSION: u32 = 4;
/// The offset of the data area: the header has the first page.
pub const DATA_OFFSET: usize = 4096;
/// The alignment of records and their sizes in bytes.
pub const ALIGNMENT: u64 = 16;
/// The smallest data area in bytes.
pub const MINIMUM_RING_BYTES: u32 = 4096;
/// The largest data area in bytes.
pub const MAXIMUM_RING_BYTES: u32 = 1 << 28;

/// A value with a cache line of its own, so that writers of one value do not slow down readers of another.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Line<T>(pub T);

/// The header of a ring. The process writes the first five fields before it sends the ring.
#[derive(Debug, Default)]
#[repr(C)]
pub struct RingHeader {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU64,
    /// The size of the data area, a power of two.
    pub data_bytes: AtomicU64,
    /// The random key of commit words.
    pub key: AtomicU64,
    /// The ring's id, as in `Hello`.
    pub id: AtomicU64,
    /// The position after the last reserved record; writers move it.
    pub head: Line<AtomicU64>,
    /// The position before the first unread record; the reader moves it.
    pub tail: Line<AtomicU64>,
    /// The mean distance of heap samples in bytes. The recorder may change it at any time; each thread takes a
    /// longer one over at the end of its period, a shorter one at the end of a part of it. 1 records every allocation.
    pub heap_period: Line<AtomicU64>,
    /// The same for calls of instrumented functions, in calls.
    pub call_period: AtomicU64,
    /// The number of sampled allocations that found no room.
    pub lost_allocations: Line<AtomicU64>,
    /// The sum of their weights in bytes.
    pub lost_weight: AtomicU64,
    /// The number of frees of sampled blocks that found no room: these blocks look live.
    pub lost_frees: AtomicU64,
    /// The number of sampled calls that found no room.
    pub lost_calls: AtomicU64,
    /// The number of records of descriptors that found no room.
    pub lost_others: AtomicU64,
    /// The number of calls of dlopen(3) with RTLD_DEEPBIND: the library that it loads calls the C library's functions
    /// in place of the hooks.
    pub deep_bindings: AtomicU64,
    /// The number of forked children that could not connect to the recorder. They write it: the ring is still mapped
    /// in them.
    pub unconnected_children: AtomicU64,
    /// The recorder increments it after it has made room, if `waiters` is not 0, and wakes all waiters of its
    /// futex.
    pub room: Line<AtomicU32>,
    /// The number of threads that wait for `room`.
    pub waiters: AtomicU32,
}

/// The first bytes of a record.
#[derive(Debug, Default)]
#[repr(C)]
pub struct RecordHeader {
    /// The ring's key plus the record's position if the record is complete, its complement if it is announced.
    pub commit: AtomicU64,
    /// The size of the record with this header, a multiple of [`ALIGNMENT`].
    pub bytes: AtomicU32,
    /// A [`super::Kind`]; of an announced record [`Self::WRITER`] and the thread id.
    pub kind: AtomicU32,
}

impl RecordHeader {
    /// The bit that an announced record has with its thread id.
    pub const WRITER: u32 = 1 << 31;
}

const _: () = assert!(
    size_of::<RingHeader>() <= DATA_OFFSET && size_of::<RecordHeader>() == ALIGNMENT as usize
);
