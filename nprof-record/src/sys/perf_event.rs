//! perf_event_open(2): events and their ring buffers.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings::{self, perf_event_attr, perf_event_mmap_page};

use crate::sys::prefetch::prefetch_at;
use crate::sys::system::{check, page_size};

/// Bytes of a line of the processor's cache.
const CACHE_LINE: u64 = 64;

/// The tasks for which an event counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EventTarget<'a> {
    /// All tasks on a CPU.
    AllTasks,
    /// One task; 0 is the calling one.
    Task(i32),
    /// The tasks of a control group, given its open directory in the cgroup v2 hierarchy.
    Cgroup(&'a File),
}

/// Opens a perf event, perf_event_open(2); closed on exec.
///
/// # Errors
///
/// perf_event_open(2); [`crate::os::open_error`] explains the errnos.
pub(crate) fn perf_event_open(
    attr: &perf_event_attr,
    target: EventTarget<'_>,
    cpu: i32,
) -> io::Result<File> {
    let mut attr = *attr;
    // Not from the caller: the kernel reads this number of bytes.
    attr.size = size_of::<perf_event_attr>() as u32;
    let (pid, flags) = match target {
        EventTarget::AllTasks => (-1, 0),
        EventTarget::Task(tid) => (tid, 0),
        EventTarget::Cgroup(directory) => (directory.as_raw_fd(), bindings::PERF_FLAG_PID_CGROUP),
    };
    let flags = libc::c_ulong::from(flags | bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a live, initialized structure whose `size` field is its own size; the
    // kernel reads that number of bytes and writes at most the field. The pointer to the text of a
    // probe in `config1` is only read, and an invalid one fails with EFAULT.
    let fd = unsafe { perf::perf_event_open(&raw mut attr, pid, cpu, -1, flags) };
    let fd = check(fd)?;
    // SAFETY: the kernel has just created this descriptor; nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Returns the id in the records of an event and of events inherited from it.
///
/// # Errors
///
/// ioctl(2).
pub(crate) fn event_id(event: &File) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: the descriptor is open, and the kernel writes one u64 to a live variable.
    check(unsafe { perf::ioctls::ID(event.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Makes an event write to the ring of another one.
///
/// # Errors
///
/// ioctl(2): EINVAL unless both have the same CPU and clock.
pub(crate) fn share_ring(event: &File, owner: &File) -> io::Result<()> {
    // SAFETY: both descriptors are open, and the request takes no pointer.
    check(unsafe { perf::ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) }).map(drop)
}

/// Starts counting.
///
/// # Errors
///
/// ioctl(2).
pub(crate) fn enable(event: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the request takes no pointer.
    check(unsafe { perf::ioctls::ENABLE(event.as_raw_fd(), 0) }).map(drop)
}

/// Begins the period of an event again, now; it has the length `period`.
///
/// # Errors
///
/// ioctl(2).
pub(crate) fn restart_period(event: &File, period: u64) -> io::Result<()> {
    let place = std::ptr::from_ref(&period).expose_provenance() as u64;
    // SAFETY: the descriptor is open, and the kernel reads one u64 from a live variable.
    check(unsafe { perf::ioctls::PERIOD(event.as_raw_fd(), place) }).map(drop)
}

/// Stops counting.
///
/// # Errors
///
/// ioctl(2).
pub(crate) fn disable(event: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the request takes no pointer.
    check(unsafe { perf::ioctls::DISABLE(event.as_raw_fd(), 0) }).map(drop)
}

/// The ring buffer to which an event writes its records, mapped into this process.
///
/// Positions are byte counts since the ring was created and never wrap. The bytes from
/// [`Ring::tail`] to [`Ring::head`] do not change until [`Ring::advance`].
#[derive(Debug)]
pub(crate) struct Ring {
    base: *mut libc::c_void,
    /// Bytes mapped, with the control page.
    length: usize,
    /// Bytes of the control page.
    page: usize,
    /// The position that `advance` last published; the kernel only reads it.
    tail: u64,
}

impl Ring {
    /// Maps a ring of `size` bytes (a power of two of pages) for an event.
    ///
    /// # Errors
    ///
    /// mmap(2): EPERM if the limit of locked memory is exceeded.
    pub(crate) fn map(event: &File, size: usize) -> io::Result<Self> {
        let page = page_size();
        let length = page + size;
        // SAFETY: a new mapping at an address that the kernel chooses does not affect memory in
        // use; the descriptor is open.
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

    /// Returns the bytes of the ring without the control page.
    pub(crate) fn size(&self) -> usize {
        self.length - self.page
    }

    /// Returns the position where the kernel writes next.
    pub(crate) fn head(&self) -> u64 {
        // SAFETY: the mapping begins with this structure (perf_event_open(2)) and lives as long as
        // `self`. The field is an aligned u64 that the kernel and this process access only as a
        // whole.
        let head = unsafe {
            let control = self.base.cast::<perf_event_mmap_page>();
            AtomicU64::from_ptr(&raw mut (*control).data_head)
        };
        // Acquire: reads of the records before the head must not move before this load.
        head.load(Ordering::Acquire)
    }

    /// Returns the position of the oldest unread record.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the bytes from `tail` to `head`, in two parts if they wrap around the end of the
    /// ring.
    pub(crate) fn bytes(&self, head: u64) -> (&[u8], &[u8]) {
        let size = self.size();
        let length = usize::try_from(head.saturating_sub(self.tail)).unwrap_or(0).min(size);
        // The remainder: the kernel only maps rings of a power of two pages (perf_event_open(2)).
        let start = self.tail as usize & (size - 1);
        let first = length.min(size - start);
        // SAFETY: both parts are inside the mapping: start <= size - 1, first <= size - start, and
        // length - first <= start. The kernel does not write between tail and head, because the
        // mapping is writable and the ring therefore not in overwrite mode. The tail moves only by
        // `advance`, which needs `&mut self`.
        unsafe {
            let data = self.base.cast::<u8>().add(self.page);
            (
                std::slice::from_raw_parts(data.add(start), first),
                std::slice::from_raw_parts(data, length - first),
            )
        }
    }

    /// Starts to load bytes into the cache, as far as they lie between the position `from` and `head`.
    /// The kernel has written them on another CPU.
    pub(crate) fn prefetch(&self, from: u64, length: u64, head: u64) {
        let size = self.size() as u64;
        let mut at = from.max(self.tail);
        while at < from.saturating_add(length).min(head) {
            // SAFETY: `base` is mapped with a page and `size` bytes, and the remainder is below `size`.
            let data =
                unsafe { self.base.cast::<u8>().add(self.page + (at & (size - 1)) as usize) };
            prefetch_at(data);
            at += CACHE_LINE;
        }
    }

    /// Releases the next `length` bytes to the kernel.
    pub(crate) fn advance(&mut self, length: usize) {
        self.tail += length as u64;
        // SAFETY: as in `head`; the kernel only reads this field.
        let tail = unsafe {
            let control = self.base.cast::<perf_event_mmap_page>();
            AtomicU64::from_ptr(&raw mut (*control).data_tail)
        };
        // Release: our reads must be complete before the kernel may overwrite the bytes.
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping of `map`, and slices of it borrow
        // `self`.
        unsafe { libc::munmap(self.base, self.length) };
    }
}
