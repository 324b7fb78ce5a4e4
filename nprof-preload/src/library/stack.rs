//! Copies the stack of the calling thread.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::sys::{self, Range};
use super::thread::Thread;
use super::{arch, symbols};

const PAGE_BYTES: usize = 4096;
/// The part of the main stack that is copied without checks. The kernel keeps at least 128 MiB below the main stack
/// free of other mappings (mmap_base in mm/util.c and arch/x86/mm/mmap.c).
const MAIN_STACK_BYTES: usize = 64 << 20;
/// The largest distance of a stack pointer to the thread control block at which both can be in one stack.
const THREAD_STACK_BYTES: usize = 4 << 20;
/// The pages that one system call checks or copies.
const PAGES: usize = 32;

/// A copy of the stack that has its size but is not yet made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copy {
    start: usize,
    /// The most bytes that the copy has.
    pub(super) bytes: usize,
    /// The end of the stack that can be read without checks; 0 if it is unknown. A word: a flag of one byte, which the
    /// compiler loads with the bytes around it, waits for all stores before it, 5 ns for each recorded block.
    readable_end: usize,
}

impl Copy {
    /// Returns the end of the stack that can be read without checks; None if it is unknown.
    pub(super) fn readable_end(&self) -> Option<usize> {
        (self.readable_end != 0).then_some(self.readable_end)
    }
}

/// Plans the copy of at most `limit` bytes from `start`, the stack pointer of a caller, up.
#[inline]
pub(super) fn plan(thread: &Thread, start: usize, limit: usize) -> Copy {
    let known =
        || (thread.stack_low.load(Relaxed)..thread.stack_high.load(Relaxed)).contains(&start);
    if known() || find_bounds(thread, start) {
        let readable_end = thread.stack_high.load(Relaxed);
        Copy { start, bytes: limit.min(readable_end - start), readable_end }
    } else {
        // A signal stack or a coroutine, which may end anywhere.
        Copy { start, bytes: limit, readable_end: 0 }
    }
}

impl Copy {
    /// Copies the stack; returns the number of bytes, fewer than planned if the stack ends before.
    ///
    /// # Safety
    ///
    /// `to` must have room for `self.bytes`.
    pub(super) unsafe fn make(self, to: *mut u8) -> usize {
        // SAFETY: the caller vouches for the target. Without checks the source is a part of the thread's own stack,
        // which exists while the thread runs on it; the assembly reads it as bytes, whatever it holds.
        unsafe {
            if self.readable_end != 0 {
                arch::copy(self.start, to, self.bytes);
                return self.bytes;
            }
            let mut copied = 0;
            while copied < self.bytes {
                let (ranges, count) =
                    pages(self.start + copied, self.start + self.bytes, PAGE_BYTES);
                let wanted: usize = ranges[..count].iter().map(|range| range.bytes).sum();
                let got = sys::copy_checked(sys::process_id(), to.add(copied), &ranges[..count]);
                copied += got;
                if got < wanted {
                    break;
                }
            }
            copied
        }
    }
}

/// Divides a part of `start..end` into ranges within pages, at most `bytes` each.
fn pages(start: usize, end: usize, bytes: usize) -> ([Range; PAGES], usize) {
    let mut ranges = [Range { start: 0, bytes: 0 }; PAGES];
    let (mut at, mut count) = (start, 0);
    while at < end && count < PAGES {
        let next = (at & !(PAGE_BYTES - 1)) + PAGE_BYTES;
        ranges[count] = Range { start: at, bytes: bytes.min(next.min(end) - at) };
        (at, count) = (next, count + 1);
    }
    (ranges, count)
}

/// Finds the part of the stack around `start` that can be read without checks, of the main stack, or of a stack of
/// which the top has the thread control block, where glibc and musl put it. False if the stack is neither.
#[cold]
fn find_bounds(thread: &Thread, start: usize) -> bool {
    let main = main_stack_top();
    let main_low = main.saturating_sub(MAIN_STACK_BYTES);
    if (main_low..main).contains(&start) {
        thread.stack_low.store(main_low, Relaxed);
        thread.stack_high.store(main, Relaxed);
        return true;
    }
    // The control block of the first thread is not in its stack: between it and the stack of a coroutine there may be
    // memory that the program unmaps later.
    if sys::thread_id() == sys::process_id() {
        return false;
    }
    let top = arch::control_block();
    // The stack has grown below the part that is known.
    let known =
        if thread.stack_high.load(Relaxed) == top { thread.stack_low.load(Relaxed) } else { top };
    let found = start < known && known - start <= THREAD_STACK_BYTES && is_readable(start, known);
    if found {
        thread.stack_low.store(start & !(PAGE_BYTES - 1), Relaxed);
        thread.stack_high.store(top, Relaxed);
    }
    found
}

/// Returns true if all pages of a range can be read.
fn is_readable(start: usize, end: usize) -> bool {
    let mut at = start;
    let mut bytes = [0_u8; PAGES];
    while at < end {
        let (ranges, count) = pages(at, end, 1);
        // SAFETY: one byte is read from each range.
        if unsafe { sys::copy_checked(sys::process_id(), bytes.as_mut_ptr(), &ranges[..count]) }
            != count
        {
            return false;
        }
        at = (ranges[count - 1].start & !(PAGE_BYTES - 1)) + PAGE_BYTES;
    }
    true
}

/// Returns the end of the main stack; 1 if it is unknown. The kernel puts the name of the executable at its end.
pub(super) fn main_stack_top() -> usize {
    const AT_EXECFN: u64 = 31;
    static TOP: AtomicUsize = AtomicUsize::new(0);
    let known = TOP.load(Relaxed);
    if known != 0 {
        return known;
    }
    let mut top = 1;
    if let Some(address) = symbols::any(c"getauxval") {
        // SAFETY: the C library's function has this type; the name ends with a zero byte.
        unsafe {
            let getauxval: unsafe extern "C" fn(u64) -> usize = core::mem::transmute(address);
            let name = getauxval(AT_EXECFN);
            if name != 0 {
                let length =
                    core::ffi::CStr::from_ptr(name as *const core::ffi::c_char).count_bytes();
                top = (name + length).next_multiple_of(PAGE_BYTES);
            }
        }
    }
    TOP.store(top, Relaxed);
    top
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stay_within_pages() {
        let (ranges, count) = pages(4090, 12_289, PAGE_BYTES);
        let parts: Vec<_> =
            ranges[..count].iter().map(|range| (range.start, range.bytes)).collect();
        assert_eq!(parts, [(4090, 6), (4096, 4096), (8192, 4096), (12_288, 1)]);
        assert_eq!(pages(0, usize::MAX, PAGE_BYTES).1, PAGES);
    }

    #[test]
    fn readable_range_ends_at_unmapped_page() {
        let memory = sys::map_memory(3 * PAGE_BYTES).expect("memory") as usize;
        sys::unmap((memory + 2 * PAGE_BYTES) as *mut u8, PAGE_BYTES);
        assert!(is_readable(memory + 5, memory + 2 * PAGE_BYTES));
        assert!(!is_readable(memory + 5, memory + 2 * PAGE_BYTES + 1));
    }
}
