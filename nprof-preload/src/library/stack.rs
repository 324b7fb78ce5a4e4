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
    // Without a guard page, stacks of coroutines may lie right below the thread's own and be unmapped later.
    let created_low = match thread.stack_created_low.load(Relaxed) {
        0 => {
            let low = created_low(top).unwrap_or(usize::MAX);
            thread.stack_created_low.store(low, Relaxed);
            low
        }
        known => known,
    };
    if start < created_low {
        return false;
    }
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

/// The words of a C library's descriptor of a thread that are searched: glibc's has 2304 bytes.
const DESCRIPTOR_WORDS: usize = 288;
/// The most bytes from the thread control block to the end of its stack: the descriptor, or the static TLS block.
const ABOVE_MAX: usize = 1 << 20;
/// More bytes than a stack has.
const STACK_BYTES_MAX: usize = 1 << 40;

/// Returns the lowest address of the stack that the calling thread was created with, of which the top has the control
/// block at `top`; None if it is unknown. pthread_getattr_np(3) knows it, too, but allocates memory.
fn created_low(top: usize) -> Option<usize> {
    // Few at a time: the stack may be a small one for signals.
    let mut words = [0_usize; 32];
    // A pair may be at the end of one part and the start of the next.
    let parts = (0..DESCRIPTOR_WORDS).step_by(words.len() - 1);
    let start = arch::descriptor_start(top, DESCRIPTOR_WORDS * size_of::<usize>());
    parts.map(|first| start + first * size_of::<usize>()).find_map(|start| {
        let range = Range { start, bytes: size_of_val(&words) };
        // SAFETY: the range has as many bytes as the array.
        let copied =
            unsafe { sys::copy_checked(sys::process_id(), words.as_mut_ptr().cast(), &[range]) };
        stack_in(&words[..copied / size_of::<usize>()], top)
    })
}

/// Finds the lowest address of a stack in the words of a descriptor: glibc has it and the size one after the other
/// (`stackblock` and `stackblock_size` in nptl/descr.h), and so does musl of a stack that it has mapped (`map_base` and
/// `map_size` in src/internal/pthread_impl.h). A stack that a program provides to musl is not found.
fn stack_in(words: &[usize], top: usize) -> Option<usize> {
    let pairs = words.windows(2).map(|pair| (pair[0], pair[1]));
    let mut pairs = pairs.filter(|(low, bytes)| *low >= PAGE_BYTES && *bytes < STACK_BYTES_MAX);
    let ends_above =
        |low: usize, bytes: usize| (top..top + ABOVE_MAX).contains(&low.saturating_add(bytes));
    pairs.find(|&(low, bytes)| low < top && ends_above(low, bytes)).map(|(low, _)| low)
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
    fn stack_of_a_thread_is_found_in_its_descriptor() {
        let top = 0x7f00_0010_0000;
        let low = top - (1 << 19);
        assert_eq!(stack_in(&[top, 0, 7, low, 0x8_1000, 4096], top), Some(low));
        assert_eq!(stack_in(&[low, 0x7_0000, top, top, low], top), None, "no pair reaches the top");
        assert_eq!(stack_in(&[], top), None);
    }

    #[test]
    fn stack_of_a_real_thread_is_that_of_its_attributes() {
        let found = std::thread::Builder::new().stack_size(256 << 10).spawn(|| {
            let local = 0_u8;
            let low = created_low(arch::control_block());
            (low, &raw const local as usize)
        });
        let (low, local) = found.expect("a thread").join().expect("it ends");
        let low = low.expect("this C library's descriptor is known");
        // The block has the guard page, too.
        assert!(local > low && local - low < (256 << 10) + 3 * PAGE_BYTES, "{low:x} {local:x}");
    }

    #[test]
    fn readable_range_ends_at_unmapped_page() {
        let memory = sys::map_memory(3 * PAGE_BYTES).expect("memory") as usize;
        sys::unmap((memory + 2 * PAGE_BYTES) as *mut u8, PAGE_BYTES);
        assert!(is_readable(memory + 5, memory + 2 * PAGE_BYTES));
        assert!(!is_readable(memory + 5, memory + 2 * PAGE_BYTES + 1));
    }
}
