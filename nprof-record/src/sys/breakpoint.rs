//! Hardware breakpoints on the memory of other tasks, and reading that memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings::{self, perf_event_attr};

use crate::sys::system::check;
use crate::sys::{Whose, perf_event_open};

/// What an event has counted: PERF_FORMAT_TOTAL_TIME_ENABLED and PERF_FORMAT_TOTAL_TIME_RUNNING.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    count: u64,
    /// For how long it was switched on while its task ran, ns.
    enabled: u64,
    /// For how much of that it was in the processor, ns.
    running: u64,
}

/// A hardware breakpoint that tells whether a task wrote to an address.
///
/// The first write costs the task some microseconds and switches the breakpoint off for good, so
/// that further ones cost nothing.
#[derive(Debug)]
pub(crate) struct Watch {
    event: File,
    attr: perf_event_attr,
    /// What it had counted when it was last set.
    before: Reading,
}

impl Watch {
    /// Watches the 8 bytes at an address, a multiple of 8, for writes by the thread `tid`. With
    /// `kernel`, also for those the kernel does for it.
    ///
    /// # Errors
    ///
    /// What perf_event_open(2) and ioctl(2) say; ENOSPC when the processor has no more.
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
        let event = perf_event_open(&attr, Whose::Task(tid), -1)?;
        // SAFETY: the descriptor is live, and the request takes no pointer.
        check(unsafe { perf::ioctls::REFRESH(event.as_raw_fd(), 1) })?;
        let mut watch = Self { event, attr, before: Reading::default() };
        watch.attr.set_disabled(0);
        watch.begin()?;
        Ok(watch)
    }

    /// Watches another address instead.
    ///
    /// # Errors
    ///
    /// What ioctl(2) says; ENOTTY before Linux 4.17. EBUSY when it has seen a write: what the
    /// kernel switches off at a write it does not start again when it is switched on while its
    /// task sleeps (hw_breakpoint_add() in kernel/events/hw_breakpoint.c, Linux 6.18). It then
    /// traps without counting.
    pub(crate) fn shift(&mut self, address: u64) -> io::Result<()> {
        self.attr.__bindgen_anon_3.bp_addr = address;
        let fd = self.event.as_raw_fd();
        // SAFETY: the descriptor is live, and the kernel only reads the live structure, whose
        // `size` field is its own size.
        check(unsafe { perf::ioctls::MODIFY_ATTRIBUTES(fd, &raw mut self.attr) })?;
        self.begin()
    }

    /// It has just been switched on.
    fn begin(&mut self) -> io::Result<()> {
        self.before = self.read()?;
        let is_new = self.before.count == 0;
        is_new.then_some(()).ok_or_else(|| io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// Since it was last set: whether it saw a write (or missed some of the time its task ran),
    /// and whether the task ran.
    pub(crate) fn history(&self) -> (bool, bool) {
        let Ok(now) = self.read() else { return (true, true) };
        let enabled = now.enabled.wrapping_sub(self.before.enabled);
        let running = now.running.wrapping_sub(self.before.running);
        (now.count != 0 || enabled != running, enabled > 0)
    }

    /// Switches it off.
    ///
    /// # Errors
    ///
    /// What ioctl(2) says.
    pub(crate) fn switch_off(&self) -> io::Result<()> {
        super::disable(&self.event)
    }

    fn read(&self) -> io::Result<Reading> {
        let mut bytes = [0; 24];
        (&self.event).read_exact(&mut bytes)?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        Ok(Reading { count: word(0), enabled: word(8), running: word(16) })
    }
}

/// Whether breakpoints do what they are for, tried on ourselves: some virtual machines take them
/// and never deliver a hit, and a watch that sees nothing would prove everything.
pub(crate) fn can_watch(kernel: bool) -> bool {
    let words = [AtomicU64::new(0), AtomicU64::new(0)];
    let address = |at: usize| words[at].as_ptr().expose_provenance() as u64;
    let watch = |at| Watch::open(std::process::id(), address(at), kernel);
    let sees = |watch: &Watch, at: usize| {
        let quiet = watch.history() == (false, true);
        words[at].store(1, Ordering::SeqCst);
        quiet && watch.history().0
    };
    let Ok(mut moved) = watch(0) else { return false };
    match moved.shift(address(1)) {
        Ok(()) => sees(&moved, 1),
        Err(_) => watch(1).is_ok_and(|watch| sees(&watch, 1)),
    }
}

/// Reads the memory of another process from an address up, as far as it is present and the
/// buffer reaches. How many bytes there were; 0, too, when it may not be read.
///
/// What is mapped but not present is not read: the kernel would handle the page fault for us, and
/// whoever has to provide the page (see userfaultfd(2)) may let us wait for ever, out of reach of
/// signals. A page that is taken away between the look and the read still does that: this keeps
/// us from harm by programs that handle their own faults, not from one that races with us.
pub(crate) fn read_memory(pid: u32, address: u64, bytes: &mut [u8]) -> usize {
    let length = present(pid, address, bytes.len()).unwrap_or(0);
    let bytes = &mut bytes[..length];
    let (Ok(pid), Ok(start)) = (i32::try_from(pid), usize::try_from(address)) else { return 0 };
    if bytes.is_empty() {
        return 0;
    }
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let base = std::ptr::without_provenance_mut(start);
    let remote = libc::iovec { iov_base: base, iov_len: bytes.len() };
    // SAFETY: the kernel writes to `bytes` only, which is live and as long as said; the other
    // address is one of the other process, and checked there.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}

/// How many of `length` bytes from an address up are in memory, as /proc/PID/pagemap tells (see
/// Documentation/admin-guide/mm/pagemap.rst of Linux); at most `length`.
fn present(pid: u32, address: u64, length: usize) -> Option<usize> {
    const PRESENT: u64 = 1 << 63;
    const ENTRY: usize = size_of::<u64>();
    let page = super::page_size() as u64;
    let last = address.checked_add((length as u64).checked_sub(1)?)?;
    let pages = usize::try_from(last / page - address / page + 1).ok()?;
    let mut entries = vec![0; pages.checked_mul(ENTRY)?];
    let map = File::open(format!("/proc/{pid}/pagemap")).ok()?;
    let read = map.read_at(&mut entries, address / page * ENTRY as u64).ok()?;
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
    fn a_page_nobody_touched_is_not_read() {
        const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let (page, rights) = (crate::sys::page_size(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping, placed by the kernel.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), 4 * page, rights, FLAGS, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        let own = std::process::id();
        let address = memory.expose_provenance() as u64;
        let mut bytes = vec![9; 4 * page];
        // SAFETY: the mapping is four pages long, and only ours.
        unsafe { libc::madvise(memory, 4 * page, libc::MADV_NOHUGEPAGE) };
        assert_eq!(read_memory(own, address, &mut bytes), 0);
        // SAFETY: the same.
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
        // SAFETY: nothing refers to the mapping.
        unsafe { libc::munmap(memory, 4 * page) };
    }
}
