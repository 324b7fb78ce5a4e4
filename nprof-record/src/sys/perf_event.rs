//! perf_event_open(2): events and the rings they write to.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings::{self, perf_event_attr, perf_event_mmap_page};

use crate::sys::system::{check, page_size};

/// Whose events are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose<'a> {
    /// Everyone's.
    All,
    /// Those of one task, 0 for our own.
    Task(i32),
    /// Those of the tasks in a control group, given its directory in the cgroup v2 hierarchy.
    Group(&'a File),
}

/// Opens a perf event, perf_event_open(2); closed on exec.
///
/// # Errors
///
/// What the kernel says; see [`crate::perf::plan`] for what it means.
pub(crate) fn perf_event_open(
    attr: &perf_event_attr,
    whose: Whose<'_>,
    cpu: i32,
) -> io::Result<File> {
    let mut attr = *attr;
    let (pid, flags) = match whose {
        Whose::All => (-1, 0),
        Whose::Task(tid) => (tid, 0),
        Whose::Group(directory) => (directory.as_raw_fd(), bindings::PERF_FLAG_PID_CGROUP),
    };
    let flags = libc::c_ulong::from(flags | bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a live, initialized structure whose `size` field is its own size (set by
    // the session), and the kernel writes to no more than that field.
    let fd = unsafe { perf::perf_event_open(&raw mut attr, pid, cpu, -1, flags) };
    let fd = check(fd)?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The id the records of an event carry, those of events inherited from it too.
///
/// # Errors
///
/// What ioctl(2) says.
pub(crate) fn event_id(event: &File) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: the descriptor is live, and the kernel writes one u64 to a live variable.
    check(unsafe { perf::ioctls::ID(event.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Makes an event write to the ring that is mapped onto another one.
///
/// # Errors
///
/// What ioctl(2) says: EINVAL when they are not of the same CPU and clock.
pub(crate) fn share_ring(event: &File, owner: &File) -> io::Result<()> {
    // SAFETY: both descriptors are live, and the request takes no pointer.
    check(unsafe { perf::ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) }).map(drop)
}

/// Begins counting.
///
/// # Errors
///
/// What ioctl(2) says.
pub(crate) fn enable(event: &File) -> io::Result<()> {
    // SAFETY: the descriptor is live, and the request takes no pointer.
    check(unsafe { perf::ioctls::ENABLE(event.as_raw_fd(), 0) }).map(drop)
}

/// Ends counting.
///
/// # Errors
///
/// What ioctl(2) says.
pub(crate) fn disable(event: &File) -> io::Result<()> {
    // SAFETY: the descriptor is live, and the request takes no pointer.
    check(unsafe { perf::ioctls::DISABLE(event.as_raw_fd(), 0) }).map(drop)
}

/// The ring an event writes its records to, mapped into our memory.
///
/// Positions count bytes since the ring was made and never wrap; what lies between [`Ring::tail`]
/// and [`Ring::head`] is ours until [`Ring::advance`].
#[derive(Debug)]
pub(crate) struct Ring {
    base: *mut libc::c_void,
    /// Bytes mapped, the control page included.
    length: usize,
    /// The control page's size, bytes.
    page: usize,
    /// What `advance` set last; the kernel never changes it.
    tail: u64,
}

impl Ring {
    /// Maps a ring of `size` bytes (a power of two of pages) onto an event.
    ///
    /// # Errors
    ///
    /// What mmap(2) says; EPERM when the budget of locked memory is used up.
    pub(crate) fn map(event: &File, size: usize) -> io::Result<Self> {
        let page = page_size();
        let length = page + size;
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no memory
        // of ours; the descriptor is live.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base, length, page, tail: 0 })
    }

    fn size(&self) -> usize {
        self.length - self.page
    }

    /// Where the kernel writes next.
    pub(crate) fn head(&self) -> u64 {
        // SAFETY: the mapping begins with this structure and lives as long as `self`; the field
        // is an aligned u64 that the kernel and we only access whole.
        let head = unsafe {
            let control = self.base.cast::<perf_event_mmap_page>();
            AtomicU64::from_ptr(&raw mut (*control).data_head)
        };
        // Acquire: the records before the head are read after it.
        head.load(Ordering::Acquire)
    }

    /// Where the oldest record that is still ours begins.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// The bytes from `tail` to at most `head`, in two parts where they wrap around the end.
    pub(crate) fn bytes(&self, head: u64) -> (&[u8], &[u8]) {
        let size = self.size();
        let length = usize::try_from(head.saturating_sub(self.tail)).unwrap_or(0).min(size);
        let start = (self.tail % size as u64) as usize;
        let first = length.min(size - start);
        // SAFETY: both parts lie inside of the mapping, since start < size and
        // first <= size - start and length - first <= start. The kernel does not write between
        // tail and head (the mapping is writable, so the ring is not in overwrite mode), and
        // the tail moves only through `advance`, which needs `self` exclusively.
        unsafe {
            let data = self.base.cast::<u8>().add(self.page);
            (
                std::slice::from_raw_parts(data.add(start), first),
                std::slice::from_raw_parts(data, length - first),
            )
        }
    }

    /// Gives the next `length` bytes back to the kernel.
    pub(crate) fn advance(&mut self, length: usize) {
        self.tail += length as u64;
        // SAFETY: as in `head`.
        let tail = unsafe {
            let control = self.base.cast::<perf_event_mmap_page>();
            AtomicU64::from_ptr(&raw mut (*control).data_tail)
        };
        // Release: our reads are over before the kernel may write there again.
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.base, self.length) };
    }
}
