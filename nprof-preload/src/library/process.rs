//! The connection of the process with the recorder.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use super::thread::Thread;
use super::{clock, symbols, sys};
use crate::protocol::{
    DATA_OFFSET, FLAG_PROGRAM_ALLOCATOR, Hello, MAGIC, MEMO_BYTES, MEMOS, RingHeader, Settings,
    StackMemo, VARIABLE, VERSION,
};

/// The time between two questions whether the recorder lives, while its ring is full and no thread waits.
pub(super) const PROBE_INTERVAL_NS: u64 = 1_000_000_000;
/// The longest time in seconds that a process waits for its connection, with all signals blocked: the recorder accepts
/// thousands of them in milliseconds, or is stopped.
const CONNECT_SECONDS: u64 = 10;
/// The longest name of an abstract socket, sun_path without its first byte.
const MAXIMUM_NAME_BYTES: usize = 107;

/// The state of the process.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    /// Not connected: before the first record, and before the C library has set `environ`.
    New = 0,
    /// One thread is connecting; the others do not wait for it.
    Connecting = 1,
    /// Connected, or forked from a connected process.
    Connected = 2,
    /// Not recorded, for good.
    Quiet = 3,
}

/// The ring of the process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    base: *mut u8,
    pub(super) data_bytes: u64,
    pub(super) key: u64,
    pub(super) id: u64,
    pub(super) stack_bytes: usize,
    pub(super) wait: bool,
    /// True if it has memos.
    remembers: bool,
}

static STATUS: AtomicU32 = AtomicU32::new(Status::New as u32);
/// A page that the kernel clears in forked children: not 0 in the process that connected.
static MARKER: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
static BASE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static DATA_BYTES: AtomicU64 = AtomicU64::new(0);
static KEY: AtomicU64 = AtomicU64::new(0);
static ID: AtomicU64 = AtomicU64::new(0);
static SECRET: AtomicU64 = AtomicU64::new(0);
static PID: AtomicU32 = AtomicU32::new(0);
static STACK_BYTES: AtomicUsize = AtomicUsize::new(0);
static HEAP_PERIOD: AtomicU64 = AtomicU64::new(0);
static CALL_PERIOD: AtomicU64 = AtomicU64::new(0);
static FLAGS: AtomicU32 = AtomicU32::new(0);
/// `Hello::flags`.
static HELLO_FLAGS: AtomicU32 = AtomicU32::new(0);
static NAME: [AtomicU8; MAXIMUM_NAME_BYTES] = [const { AtomicU8::new(0) }; MAXIMUM_NAME_BYTES];
static NAME_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The network namespace in which the process has connected.
static NAMESPACE: AtomicU64 = AtomicU64::new(0);
/// The time of the fork from which on this process has recorded nothing; 0 if it was not forked, or has recorded.
static FORKED_AT_NS: AtomicU64 = AtomicU64::new(0);
static LAST_PROBE_NS: AtomicU64 = AtomicU64::new(0);

const WAIT: u32 = 1;
const DESCRIPTORS: u32 = 2;
const ACKNOWLEDGE: u32 = 4;
const REMEMBER: u32 = 8;

impl Ring {
    /// Returns the header.
    pub(super) fn header(&self) -> &'static RingHeader {
        // SAFETY: the ring begins with a header. It stays mapped in the process; a forked child unmaps it only
        // outside of all other hooks.
        unsafe { &*self.base.cast::<RingHeader>() }
    }

    /// Returns the memos of known stacks; None if it has none.
    pub(super) fn memos(&self) -> Option<&'static [StackMemo]> {
        // SAFETY: the memos follow the data area, which has a multiple of their alignment; for the lifetime see
        // `header`. All fields are atomics.
        self.remembers.then(|| unsafe {
            let first = self.base.add(DATA_OFFSET + self.data_bytes as usize).cast::<StackMemo>();
            core::slice::from_raw_parts(first, MEMOS)
        })
    }

    /// Returns the address of a position in the data area.
    pub(super) fn data(&self, position: u64) -> *mut u8 {
        let offset = (position & (self.data_bytes - 1)) as usize;
        // SAFETY: the offset is within the mapping.
        unsafe { self.base.add(DATA_OFFSET + offset) }
    }
}

/// Returns the ring of the process, after connecting if necessary; None if there is none now.
pub(super) fn ring(thread: &Thread) -> Option<Ring> {
    let status = STATUS.load(Acquire);
    if status != Status::Connected as u32 || is_forked() {
        connect(thread, status)?;
    }
    let flags = FLAGS.load(Relaxed);
    Some(Ring {
        base: BASE.load(Relaxed),
        data_bytes: DATA_BYTES.load(Relaxed),
        key: KEY.load(Relaxed),
        id: ID.load(Relaxed),
        stack_bytes: STACK_BYTES.load(Relaxed),
        wait: flags & WAIT != 0,
        remembers: flags & REMEMBER != 0,
    })
}

/// Returns true if the process records nothing, for good.
pub(super) fn is_quiet() -> bool {
    STATUS.load(Relaxed) == Status::Quiet as u32
}

/// Returns true if descriptors are recorded here: not in a child of vfork(2), which shares the memory of its parent
/// but not its descriptors.
pub(super) fn records_descriptors() -> bool {
    STATUS.load(Acquire) == Status::Connected as u32
        && FLAGS.load(Relaxed) & DESCRIPTORS != 0
        && (is_forked() || sys::process_id() == PID.load(Relaxed))
}

/// True in a forked child that has not connected yet.
fn is_forked() -> bool {
    let marker = MARKER.load(Relaxed);
    // SAFETY: the page is mapped before the status becomes `Connected`, and stays so.
    unsafe { (*marker).load(Relaxed) == 0 }
}

/// Connects; None if that is impossible now or for good.
#[cold]
fn connect(thread: &Thread, status: u32) -> Option<()> {
    let allowed = status == Status::New as u32 || status == Status::Connected as u32;
    // Acquire and release: writes of this thread to the other statics are visible to threads that load `Connected`.
    if !allowed
        || STATUS.compare_exchange(status, Status::Connecting as u32, AcqRel, Relaxed).is_err()
    {
        return None;
    }
    // A signal handler must not find the process half connected; the handler's own events would be lost.
    let signals = sys::block_signals();
    let is_child = status == Status::Connected as u32;
    let next = if status == Status::New as u32 && !read_settings() {
        if environment().is_null() { Status::New } else { Status::Quiet }
    } else if open_ring(thread, is_child).is_some() {
        Status::Connected
    } else {
        if is_child {
            note_unconnected_child();
        }
        Status::Quiet
    };
    STATUS.store(next as u32, Release);
    sys::restore_signals(signals);
    (next == Status::Connected).then_some(())
}

/// Counts this forked child, which cannot connect, in the ring of its parent.
fn note_unconnected_child() {
    // SAFETY: the ring that was mapped before the fork stays so until the child has its own.
    let header = unsafe { &*BASE.load(Relaxed).cast::<RingHeader>() };
    header.unconnected_children.fetch_add(1, Relaxed);
}

/// Notes in a child that it was forked at a time. The child of one that has recorded nothing has the blocks and
/// descriptors of the same process, from the time of the first fork.
pub(super) fn note_fork(time_ns: u64) {
    if FORKED_AT_NS.load(Relaxed) == 0 {
        FORKED_AT_NS.store(time_ns, Relaxed);
    }
}

/// Makes a ring and sends it to the recorder.
fn open_ring(thread: &Thread, forked: bool) -> Option<()> {
    let (parent_id, old_base) =
        if forked { (ID.load(Relaxed), BASE.load(Relaxed)) } else { (0, null_mut()) };
    let data_bytes = DATA_BYTES.load(Relaxed);
    let memo_bytes = if FLAGS.load(Relaxed) & REMEMBER != 0 { MEMO_BYTES } else { 0 };
    let bytes = DATA_OFFSET + data_bytes as usize + memo_bytes;
    let pid = sys::process_id();
    if MARKER.load(Relaxed).is_null() {
        let page = sys::map_memory(DATA_OFFSET)?;
        // Without it, Linux before 4.14, a child would write to the ring of its parent.
        if !sys::advise(page, DATA_OFFSET, sys::MADV_WIPEONFORK) {
            return None;
        }
        MARKER.store(page.cast(), Relaxed);
    }
    let (id, key) = (sys::random()?, sys::random()?);
    let socket = connect_to_recorder(CONNECT_SECONDS).ok()?;
    let Some((file, base)) = map_ring(bytes) else {
        sys::close(socket);
        return None;
    };
    // SAFETY: the new mapping is as large as a header, zero, and aligned to pages.
    let header = unsafe { &*base.cast::<RingHeader>() };
    header.magic.store(MAGIC, Relaxed);
    header.version.store(u64::from(VERSION), Relaxed);
    header.data_bytes.store(data_bytes, Relaxed);
    header.key.store(key, Relaxed);
    header.id.store(id, Relaxed);
    header.heap_period.0.store(HEAP_PERIOD.load(Relaxed), Relaxed);
    header.call_period.store(CALL_PERIOD.load(Relaxed), Relaxed);
    let forks = [FORKED_AT_NS.load(Relaxed), thread.forked_at_ns.load(Relaxed)];
    let first_fork = forks.into_iter().find(|&time_ns| forked && time_ns != 0);
    let started_at_ns = first_fork.unwrap_or_else(clock::now_ns);
    // A forked child must not search, see `next::find_all`: it has the flags of its parent.
    if !forked && symbols::program_defines(c"malloc") {
        HELLO_FLAGS.store(FLAG_PROGRAM_ALLOCATOR, Relaxed);
    }
    let flags = HELLO_FLAGS.load(Relaxed);
    let secret = SECRET.load(Relaxed);
    let hello = Hello { id, parent_id, started_at_ns, pid, flags, secret };
    let sent = sys::send(socket, &hello.to_bytes(), file);
    sys::close(file);
    if sent && FLAGS.load(Relaxed) & ACKNOWLEDGE != 0 {
        sys::wait_for_end(socket);
    }
    sys::close(socket);
    if !sent {
        sys::unmap(base, bytes);
        return None;
    }
    // A child that this one creates without the hook of fork(3) has forked later.
    FORKED_AT_NS.store(0, Relaxed);
    thread.forked_at_ns.store(0, Relaxed);
    BASE.store(base, Relaxed);
    KEY.store(key, Relaxed);
    ID.store(id, Relaxed);
    PID.store(pid, Relaxed);
    NAMESPACE.store(sys::network_namespace(), Relaxed);
    // SAFETY: as in `is_forked`.
    unsafe { (*MARKER.load(Relaxed)).store(1, Relaxed) };
    // A handler that interrupted a hook which writes to the ring of the parent must not pull it from under it.
    if !old_base.is_null() && thread.depth.load(Relaxed) <= 1 {
        sys::unmap(old_base, bytes);
    }
    Some(())
}

fn map_ring(bytes: usize) -> Option<(i32, *mut u8)> {
    let file = sys::memory_file(bytes)?;
    let Some(base) = sys::map_file(file, bytes) else {
        sys::close(file);
        return None;
    };
    Some((file, base))
}

/// Returns a connected socket, or the error number; waits at most `seconds` if the recorder does not accept.
fn connect_to_recorder(seconds: u64) -> Result<i32, i32> {
    let mut name = [0_u8; MAXIMUM_NAME_BYTES];
    for (byte, stored) in name.iter_mut().zip(&NAME) {
        *byte = stored.load(Relaxed);
    }
    sys::connect(name.get(..NAME_BYTES.load(Relaxed)).unwrap_or_default(), seconds)
}

/// Makes the process quiet if the recorder is gone; asks again after an interval only.
pub(super) fn probe_recorder(now_ns: u64, interval_ns: u64) {
    let last = LAST_PROBE_NS.load(Relaxed);
    let due = now_ns.wrapping_sub(last) > interval_ns;
    if !due || LAST_PROBE_NS.compare_exchange(last, now_ns, Relaxed, Relaxed).is_err() {
        return;
    }
    match connect_to_recorder(0) {
        Ok(socket) => sys::close(socket),
        // In another network namespace the name of the socket is not known, and the recorder may live.
        Err(sys::ECONNREFUSED) if sys::network_namespace() == NAMESPACE.load(Relaxed) => {
            STATUS.store(Status::Quiet as u32, Relaxed);
        }
        // The program has no descriptor left, for example, or the recorder is stopped.
        Err(_) => {}
    }
}

/// Makes the process drop records that have no room, from now on.
pub(super) fn stop_waiting() {
    FLAGS.fetch_and(!WAIT, Relaxed);
}

/// Returns the environment of the program; null before the C library has set it.
fn environment() -> *const *const c_char {
    // SAFETY: the C library's variable has this type.
    unsafe {
        symbols::any(c"environ")
            .map_or(core::ptr::null(), |address| *(address as *const *const *const c_char))
    }
}

/// Reads the settings from the environment; false if there are none.
fn read_settings() -> bool {
    let mut entry = environment();
    if entry.is_null() {
        return false;
    }
    // SAFETY: the environment is a list of strings that ends with a null pointer. At this time, before `main`, or at
    // the first allocation, no other thread changes it.
    unsafe {
        while !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            entry = entry.add(1);
            let value =
                text.strip_prefix(VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            if let Some(value) = value {
                return core::str::from_utf8(value)
                    .ok()
                    .and_then(Settings::parse)
                    .is_some_and(keep_settings);
            }
        }
    }
    false
}

fn keep_settings(settings: Settings<'_>) -> bool {
    let name = settings.socket.as_bytes();
    if name.len() > MAXIMUM_NAME_BYTES {
        return false;
    }
    for (stored, &byte) in NAME.iter().zip(name) {
        stored.store(byte, Relaxed);
    }
    NAME_BYTES.store(name.len(), Relaxed);
    SECRET.store(settings.secret, Relaxed);
    HEAP_PERIOD.store(settings.heap_period, Relaxed);
    CALL_PERIOD.store(settings.call_period, Relaxed);
    STACK_BYTES.store(settings.stack_bytes as usize, Relaxed);
    DATA_BYTES.store(u64::from(settings.ring_bytes), Relaxed);
    let flags = [
        (settings.wait, WAIT),
        (settings.descriptors, DESCRIPTORS),
        (settings.acknowledge, ACKNOWLEDGE),
        (settings.memos, REMEMBER),
    ];
    FLAGS.store(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum(), Relaxed);
    true
}
