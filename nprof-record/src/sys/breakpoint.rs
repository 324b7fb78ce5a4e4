//! Hardware breakpoints on the memory of other tasks, and reads of that memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings::{self, perf_event_attr};

use crate::sys::system::check;
use crate::sys::{EventTarget, perf_event_open};

/// The values read from an event: PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    count: u64,
    /// The time for which it was enabled while its task ran.
    enabled_ns: u64,
    /// The part of that time for which it was set in the processor.
    running_ns: u64,
}

/// The observations of a breakpoint since it was last set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    /// The task ran and did not write.
    Unwritten,
    /// The task did not run.
    NotScheduled,
    /// The task wrote, or may have written while the breakpoint was not set in the processor.
    Written,
}

/// A hardware breakpoint that detects a write to an address.
///
/// The first write costs the task some microseconds and disables the breakpoint permanently;
/// further writes cost nothing.
#[derive(Debug)]
pub(crate) struct Breakpoint {
    event: File,
    attr: perf_event_attr,
    /// The values when it was last set.
    before: Reading,
}

impl Breakpoint {
    /// Watches the 8 bytes at `address`, a multiple of 8, for writes by the thread `tid`. With
    /// `kernel`, also for writes by the kernel on its behalf.
    ///
    /// # Errors
    ///
    /// perf_event_open(2), ioctl(2); ENOSPC if the processor has no free breakpoint.
    pub(crate) fn open(tid: u32, address: u64, kernel: bool) -> io::Result<Self> {
        let mut attr = perf_event_attr {
            size: size_of::<perf_event_attr>() as u32,
            type_: bindings::PERF_TYPE_BREAKPOINT,
            read_format: u64::from(
                bindings::PERF_FORMAT_TOTAL_TIME_ENABLED | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING,
            ),
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_period = 1;
        attr.__bindgen_anon_3.bp_addr = address;
        attr.__bindgen_anon_4.bp_len = u64::from(bindings::HW_BREAKPOINT_LEN_8);
        attr.bp_type = bindings::HW_BREAKPOINT_W;
        attr.set_disabled(1);
        attr.set_exclude_kernel(u64::from(!kernel));
        attr.set_exclude_hv(1);
        let tid = i32::try_from(tid).map_err(|_| io::ErrorKind::InvalidInput)?;
        let event = perf_event_open(&attr, EventTarget::Task(tid), -1)?;
        // Enables it for one overflow.
        // SAFETY: the descriptor is open, and the request takes a number, no pointer.
        check(unsafe { perf::ioctls::REFRESH(event.as_raw_fd(), 1) })?;
        let mut breakpoint = Self { event, attr, before: Reading::default() };
        breakpoint.attr.set_disabled(0);
        breakpoint.start()?;
        Ok(breakpoint)
    }

    /// Moves it to another address.
    ///
    /// # Errors
    ///
    /// ioctl(2): ENOTTY before Linux 4.17. EBUSY after a write: the kernel has disabled the
    /// breakpoint then, and does not start it again if it is enabled while its task sleeps
    /// (hw_breakpoint_add() in kernel/events/hw_breakpoint.c, Linux 6.18). It would trap without
    /// counting.
    pub(crate) fn move_to(&mut self, address: u64) -> io::Result<()> {
        self.attr.__bindgen_anon_3.bp_addr = address;
        let fd = self.event.as_raw_fd();
        // SAFETY: the descriptor is open, and the kernel only reads the live structure, whose
        // `size` field is its own size.
        check(unsafe { perf::ioctls::MODIFY_ATTRIBUTES(fd, &raw mut self.attr) })?;
        self.start()
    }

    /// Saves the values after it was enabled.
    fn start(&mut self) -> io::Result<()> {
        self.before = self.read()?;
        if self.before.count != 0 {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        Ok(())
    }

    /// Returns the observations since it was last set.
    pub(crate) fn observed(&self) -> Observed {
        let Ok(now) = self.read() else { return Observed::Written };
        let enabled = now.enabled_ns.wrapping_sub(self.before.enabled_ns);
        let running = now.running_ns.wrapping_sub(self.before.running_ns);
        // A difference: other users of breakpoints displaced it for a while.
        if now.count != 0 || enabled != running {
            Observed::Written
        } else if enabled == 0 {
            Observed::NotScheduled
        } else {
            Observed::Unwritten
        }
    }

    /// Disables it.
    ///
    /// # Errors
    ///
    /// ioctl(2).
    pub(crate) fn disable(&self) -> io::Result<()> {
        super::disable(&self.event)
    }

    fn read(&self) -> io::Result<Reading> {
        let mut bytes = [0; 24];
        (&self.event).read_exact(&mut bytes)?;
        let mut words = bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word));
        let mut next = || words.next().unwrap_or(0);
        Ok(Reading { count: next(), enabled_ns: next(), running_ns: next() })
    }
}

/// True if breakpoints work, tried on this process. Some virtual machines accept breakpoints and
/// never report a hit; frame watches would then prove wrong callers.
pub(crate) fn breakpoints_work(kernel: bool) -> bool {
    let words = [AtomicU64::new(0), AtomicU64::new(0)];
    let Ok(mut breakpoint) = watch_own(&words[0], kernel) else { return false };
    // Frame watches move breakpoints where the kernel supports it, so try a moved one.
    if breakpoint.move_to(address_of(&words[1])).is_ok() {
        return detects_write(&breakpoint, &words[1]);
    }
    watch_own(&words[1], kernel).is_ok_and(|breakpoint| detects_write(&breakpoint, &words[1]))
}

/// Sets a breakpoint on a word of this thread.
fn watch_own(word: &AtomicU64, kernel: bool) -> io::Result<Breakpoint> {
    Breakpoint::open(std::process::id(), address_of(word), kernel)
}

/// Writes to a watched word. True if the breakpoint detects this write and nothing before.
fn detects_write(breakpoint: &Breakpoint, word: &AtomicU64) -> bool {
    let is_quiet = breakpoint.observed() == Observed::Unwritten;
    word.store(1, Ordering::SeqCst);
    is_quiet && breakpoint.observed() == Observed::Written
}

fn address_of(word: &AtomicU64) -> u64 {
    word.as_ptr().expose_provenance() as u64
}

/// Reads the memory of another process from `address`, as far as it is present and `bytes` reaches.
/// Returns the number of bytes read; 0 if the process may not be read.
///
/// Pages that are mapped but not present are not read. The kernel would handle the page fault on
/// our behalf, and a handler in user space (userfaultfd(2)) could block us forever, even for
/// signals. A page removed between the check and the read can still do that: this protects against
/// programs that handle their own faults, not against one that races with us.
pub(crate) fn read_memory(pid: u32, address: u64, bytes: &mut [u8]) -> usize {
    PresentPages::open(pid).read_memory(pid, address, bytes)
}

/// The bytes of the first part of a stack that is read. The kernel looks at the entry of each page.
const STACK_PART_BYTES: usize = 64 << 10;

/// The list of the present pages of a process: opened once for the stacks of all its threads.
#[derive(Debug, Default)]
pub(crate) struct PresentPages(Option<File>);

impl PresentPages {
    /// Opens the list of the process of a thread; empty if it may not be read.
    pub(crate) fn open(tid: u32) -> Self {
        Self(File::open(format!("/proc/{tid}/pagemap")).ok())
    }

    /// Reads memory as [`read_memory`], by a thread of the process.
    pub(crate) fn read_memory(&self, tid: u32, address: u64, bytes: &mut [u8]) -> usize {
        let length = self.0.as_ref().and_then(|list| present(list, address, bytes.len()));
        read_absent_memory(tid, address, &mut bytes[..length.unwrap_or(0)])
    }

    /// Reads memory at several addresses by a thread of the process, at most `limit` bytes of each, in one
    /// call. `bytes`, which is reused, gets them one after the other. Returns the number of bytes of each; 0
    /// of those after one that cannot be read.
    pub(crate) fn read_each(
        &self,
        tid: u32,
        addresses: &[u64],
        limit: usize,
        bytes: &mut Vec<u8>,
    ) -> Vec<usize> {
        let length = |&address: &u64| present(self.0.as_ref()?, address, limit);
        let mut lengths: Vec<usize> = addresses.iter().map(|it| length(it).unwrap_or(0)).collect();
        let whole = lengths.iter().sum();
        if bytes.len() < whole {
            bytes.resize(whole, 0);
        }
        let parts: Vec<_> = addresses.iter().copied().zip(lengths.iter().copied()).collect();
        let mut read = read_parts(tid, &parts, &mut bytes[..whole]);
        for length in &mut lengths {
            *length = if read < *length { 0 } else { *length };
            read -= *length;
        }
        lengths
    }

    /// Reads at most `limit` bytes into `bytes`, which is reused, in parts: most stacks end in the first one.
    pub(crate) fn read_stack<'a>(
        &self,
        tid: u32,
        address: u64,
        limit: usize,
        bytes: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        let mut length = 0;
        while length < limit {
            let end = (2 * length).max(STACK_PART_BYTES).min(limit);
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            let Some(start) = address.checked_add(length as u64) else { break };
            length += self.read_memory(tid, start, &mut bytes[length..end]);
            // The next page is absent, or belongs to no mapping.
            if length < end {
                break;
            }
        }
        &bytes[..length]
    }
}

/// Reads the memory of another process from `address`, as far as it is mapped and `bytes` reaches.
/// Returns the number of bytes read; 0 if the process may not be read. Makes absent pages present,
/// and may block forever, see [`read_memory`].
pub(crate) fn read_absent_memory(pid: u32, address: u64, bytes: &mut [u8]) -> usize {
    let length = bytes.len();
    read_parts(pid, &[(address, length)], bytes)
}

/// Reads parts of the memory of another process, addresses with lengths, one after the other into `bytes`,
/// which has room for all. Returns the number of bytes read: the kernel ends at a part that it cannot read.
fn read_parts(pid: u32, parts: &[(u64, usize)], bytes: &mut [u8]) -> usize {
    let to_iovec = |&(address, iov_len): &(u64, usize)| {
        let iov_base = std::ptr::without_provenance_mut(usize::try_from(address).ok()?);
        Some(libc::iovec { iov_base, iov_len })
    };
    let remote: Option<Vec<libc::iovec>> = parts.iter().map(to_iovec).collect();
    let (Ok(pid), Some(remote)) = (i32::try_from(pid), remote) else { return 0 };
    if bytes.is_empty() {
        return 0;
    }
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let (base, count) = (remote.as_ptr(), remote.len() as libc::c_ulong);
    // SAFETY: the kernel writes at most `iov_len` bytes to the live buffer `bytes`; the `count` remote
    // addresses are only used in the other process, where the kernel checks them.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, base, count, 0) };
    usize::try_from(read).unwrap_or(0)
}

/// Returns how many of the `length` bytes from `address` are in memory, by /proc/PID/pagemap
/// (Documentation/admin-guide/mm/pagemap.rst). None if it cannot be read.
fn present(list: &File, address: u64, length: usize) -> Option<usize> {
    const PRESENT: u64 = 1 << 63;
    const ENTRY: usize = size_of::<u64>();
    let page = super::page_size() as u64;
    let last = address.checked_add((length as u64).checked_sub(1)?)?;
    let pages = usize::try_from(last / page - address / page + 1).ok()?;
    let mut entries = vec![0; pages.checked_mul(ENTRY)?];
    let read = list.read_at(&mut entries, address / page * ENTRY as u64).ok()?;
    let is_present = |entry: &&[u8]| {
        entry.first_chunk().is_some_and(|&entry| u64::from_ne_bytes(entry) & PRESENT != 0)
    };
    let count = entries[..read].chunks_exact(ENTRY).take_while(is_present).count() as u64;
    let bytes = (count * page).saturating_sub(address % page);
    Some(usize::try_from(bytes).ok()?.min(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_only_present_pages() {
        const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let (page, rights) = (crate::sys::page_size(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address that the kernel chooses does not affect memory in
        // use.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), 4 * page, rights, FLAGS, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        let own = std::process::id();
        let address = memory.expose_provenance() as u64;
        let mut bytes = vec![9; 4 * page];
        // SAFETY: address and length are those of the new mapping, which nothing else uses.
        unsafe { libc::madvise(memory, 4 * page, libc::MADV_NOHUGEPAGE) };
        assert_eq!(read_memory(own, address, &mut bytes), 0);
        // SAFETY: the three addresses are inside the writable mapping of four pages.
        unsafe {
            memory.cast::<u8>().write(1);
            memory.cast::<u8>().add(page).write(2);
            memory.cast::<u8>().add(3 * page).write(3);
        }
        assert_eq!(read_memory(own, address, &mut bytes), 2 * page);
        assert_eq!((bytes[0], bytes[1], bytes[page], bytes[2 * page]), (1, 0, 2, 9));
        assert_eq!(read_memory(own, address + 5, &mut bytes), 2 * page - 5);
        assert_eq!(read_memory(own, address + 5, &mut bytes[..7]), 7);
        assert_eq!(read_memory(own, address, &mut []), 0);
        assert_eq!(read_memory(own, address + 2 * page as u64, &mut bytes), 0);
        assert_eq!(read_memory(own, u64::MAX - 3, &mut bytes), 0);
        let (pages, mut read) = (PresentPages::open(own), Vec::new());
        assert_eq!(pages.read_stack(own, address + 5, 1 << 20, &mut read).len(), 2 * page - 5);
        assert_eq!(pages.read_stack(own, address, 7, &mut read), [1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(pages.read_stack(own, u64::MAX - 3, 1 << 20, &mut read), []);
        let (second, absent) = (address + page as u64, address + 2 * page as u64);
        let each = pages.read_each(own, &[address + 5, absent, second], 1 << 20, &mut read);
        assert_eq!(each, [2 * page - 5, 0, page]);
        assert_eq!((read[0], read[page - 5], read[2 * page - 5]), (0, 2, 2));
        assert_eq!(pages.read_each(own, &[second, address], 7, &mut read), [7, 7]);
        assert_eq!(
            pages.read_each(u32::MAX >> 1, &[address], 7, &mut read),
            [0],
            "no such process"
        );
        assert_eq!(PresentPages::default().read_each(own, &[address], 7, &mut read), [0]);
        // SAFETY: address and length are those of the mapping, and nothing refers to it any more.
        unsafe { libc::munmap(memory, 4 * page) };
    }
}
