//! Hardware breakpoints on the memory of other tasks.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
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
