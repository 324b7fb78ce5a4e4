//! The slow paths of the memory hooks: chooses samples and records them.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;

use super::choice::choose;
use super::errno::{self, ENOMEM};
use super::process::{self, Ring};
use super::thread::{self, Thread};
use super::unfinished::Caller;
use super::writer::{self, Class};
use super::{clock, known, next, shadow, stack};
use crate::protocol::{Allocated, Kind, Registers, Repeated, RingHeader};
use crate::sampling::Sample;

/// Decides about an allocation after which the thread's `remaining` is not positive. Called by the hooks in assembly.
pub(super) unsafe extern "C" fn allocated(size: usize, pointer: usize, registers: &Registers) {
    let thread = thread::current();
    if pointer == 0 {
        thread.remaining.store(thread.remaining.load(Relaxed).wrapping_add(size as i64), Relaxed);
        return;
    }
    thread.enter();
    let wanted = |header: &RingHeader| header.heap_period.0.load(Relaxed);
    let chosen = choose(thread, &thread.remaining, &thread.heap_period, size as u64, wanted);
    if let Some((ring, sample)) = chosen {
        record(thread, &ring, size, pointer, sample, registers);
        thread.recorded.store(pointer, Relaxed);
    }
    thread.leave();
}

fn record(
    thread: &Thread,
    ring: &Ring,
    size: usize,
    pointer: usize,
    sample: Sample,
    registers: &Registers,
) {
    // Before the reservation: the reader takes the later of two times in the ring for both, and a thread that loses its
    // CPU in between must not postpone the records of others.
    let time_ns = clock::recent_ns();
    let copy = stack::plan(thread, registers.sp as usize, ring.stack_bytes);
    let known = known::number(ring, &copy, registers);
    let content = match known {
        Some(_) if sample.period == 1 => 8 * Repeated::WORDS,
        Some(_) => 8 * Repeated::SAMPLED_WORDS,
        None => 8 * Allocated::WORDS + copy.bytes,
    };
    let slot = if shadow::prepare(pointer) {
        writer::reserve(thread, ring, registers.into(), content, Class::Ordinary)
    } else {
        None
    };
    let Some(slot) = slot else {
        let header = ring.header();
        header.lost_allocations.0.fetch_add(1, Relaxed);
        header.lost_weight.fetch_add(sample.weight, Relaxed);
        return;
    };
    if let Some(stack) = known {
        let thread_and_stack = u64::from(thread.tid.load(Relaxed)) | u64::from(stack) << 32;
        slot.write(0, &[time_ns, thread_and_stack, pointer as u64, size as u64]);
        if sample.period == 1 {
            slot.commit(Kind::Repeated);
        } else {
            slot.write(Repeated::WORDS, &[sample.weight, u64::from(sample.count)]);
            slot.commit(Kind::RepeatedSample);
        }
        shadow::mark(pointer);
        return;
    }
    // SAFETY: the record was reserved with room for the copy.
    let bytes = unsafe { copy.make(slot.word(Allocated::WORDS)) };
    let tid = u64::from(thread.tid.load(Relaxed));
    slot.write(
        0,
        &[
            time_ns,
            tid | u64::from(sample.count) << 32,
            pointer as u64,
            size as u64,
            sample.weight,
            sample.period,
            bytes as u64,
            0,
        ],
    );
    slot.write(8, &registers.words());
    slot.commit(Kind::Allocated);
    // After the record: a block of which the record is lost has no mark, so that its free is not recorded either.
    shadow::mark(pointer);
}

/// Records the free of a marked block before it happens. Called by the hooks in assembly; `sp` is the stack pointer
/// of their caller.
pub(super) unsafe extern "C" fn freed(pointer: usize, sp: usize) {
    // SAFETY: the hook that calls this has not returned.
    let caller = unsafe { Caller::at(sp) };
    unmark(thread::current(), pointer, caller);
}

/// Removes the mark of a block, and records its free if it had one; returns whether it did.
fn unmark(thread: &Thread, pointer: usize, caller: Caller) -> bool {
    if !shadow::unmark(pointer) {
        return false;
    }
    thread.enter();
    write_free(thread, pointer, Kind::Freed, caller);
    thread.leave();
    true
}

fn write_free(thread: &Thread, pointer: usize, kind: Kind, caller: Caller) {
    // Before the reservation, as in `record`.
    let time_ns = clock::recent_ns();
    let Some(ring) = process::ring(thread) else { return };
    if thread.ring.load(Relaxed) != ring.id {
        thread.begin(ring.id);
    }
    let Some(slot) = writer::reserve(thread, &ring, caller, 24, Class::Vital) else {
        ring.header().lost_frees.fetch_add(1, Relaxed);
        return;
    };
    slot.write(0, &[time_ns, u64::from(thread.tid.load(Relaxed)), pointer as u64]);
    slot.commit(kind);
}

/// Notes that a library is loaded that will not call the hooks.
pub(super) unsafe extern "C" fn bound_deeply() {
    let thread = thread::current();
    thread.enter();
    if let Some(ring) = process::ring(thread) {
        ring.header().deep_bindings.fetch_add(1, Relaxed);
    }
    thread.leave();
}

/// Begins to watch for inner hooks: the next definition may call a function that is hooked as well.
fn begin_outer(thread: &Thread) -> i64 {
    thread.recorded.store(0, Relaxed);
    thread.remaining.load(Relaxed)
}

/// Counts an allocation, unless an inner hook has counted it since `begin_outer` returned `before`.
fn count(thread: &Thread, before: i64, size: usize, pointer: *mut c_void, registers: &Registers) {
    let counted = thread.remaining.load(Relaxed) != before
        || thread.recorded.load(Relaxed) == pointer as usize;
    if pointer.is_null() || counted {
        return;
    }
    let remaining = before - size as i64;
    thread.remaining.store(remaining, Relaxed);
    if remaining <= 0 {
        // SAFETY: the arguments are those that the hooks pass.
        unsafe { allocated(size, pointer as usize, registers) };
    }
}

fn out_of_memory() -> *mut c_void {
    errno::set(ENOMEM);
    null_mut()
}

pub(super) unsafe extern "C" fn calloc(
    number: usize,
    size: usize,
    registers: &Registers,
) -> *mut c_void {
    let Some(next) = next::calloc() else { return out_of_memory() };
    let thread = thread::current();
    let before = begin_outer(thread);
    // SAFETY: the caller vouches for the arguments.
    let pointer = unsafe { next(number, size) };
    count(thread, before, number.wrapping_mul(size), pointer, registers);
    pointer
}

/// Reallocates by `next`, as a free and an allocation.
fn reallocate(
    old: *mut c_void,
    size: Option<usize>,
    registers: &Registers,
    next: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let thread = thread::current();
    let before = begin_outer(thread);
    // Before the free: another thread may get the address at once.
    let marked = !old.is_null() && unmark(thread, old as usize, registers.into());
    let pointer = next();
    if !pointer.is_null() {
        count(thread, before, size.unwrap_or(0), pointer, registers);
    } else if marked && size != Some(0) {
        // It failed, and the block lives on. A null pointer for the size 0 means that the block is freed.
        shadow::mark(old as usize);
        thread.enter();
        write_free(thread, old as usize, Kind::Kept, registers.into());
        thread.leave();
    }
    pointer
}

pub(super) unsafe extern "C" fn realloc(
    old: *mut c_void,
    size: usize,
    registers: &Registers,
) -> *mut c_void {
    let Some(next) = next::realloc() else { return out_of_memory() };
    // SAFETY: the caller vouches for the arguments.
    reallocate(old, Some(size), registers, || unsafe { next(old, size) })
}

pub(super) unsafe extern "C" fn reallocarray(
    old: *mut c_void,
    number: usize,
    size: usize,
    registers: &Registers,
) -> *mut c_void {
    // Not by the next reallocarray, which calls realloc: the hook of that would take this library for the caller.
    let (Some(next), Some(total)) = (next::realloc(), number.checked_mul(size)) else {
        return out_of_memory();
    };
    // SAFETY: the caller vouches for the arguments.
    reallocate(old, Some(total), registers, || unsafe { next(old, total) })
}

/// Defines a hook of a function that returns a block of its last argument's size.
macro_rules! allocation {
    ($name:ident($($argument:ident),*), $size:ident) => {
        pub(super) unsafe extern "C" fn $name($($argument: usize,)* registers: &Registers) -> *mut c_void {
            let Some(next) = next::$name() else { return out_of_memory() };
            let thread = thread::current();
            let before = begin_outer(thread);
            // SAFETY: the caller vouches for the arguments.
            let pointer = unsafe { next($($argument),*) };
            count(thread, before, $size, pointer, registers);
            pointer
        }
    };
}

allocation!(aligned_alloc(alignment, size), size);
allocation!(memalign(alignment, size), size);
allocation!(valloc(size), size);
allocation!(pvalloc(size), size);

pub(super) unsafe extern "C" fn posix_memalign(
    result: *mut *mut c_void,
    alignment: usize,
    size: usize,
    registers: &Registers,
) -> c_int {
    let Some(next) = next::posix_memalign() else { return ENOMEM };
    let thread = thread::current();
    let before = begin_outer(thread);
    // SAFETY: the caller vouches for the arguments; after success the result is set.
    unsafe {
        let status = next(result, alignment, size);
        if status == 0 {
            count(thread, before, size, *result, registers);
        }
        status
    }
}

/// Records the time of a fork, from which the child has the blocks of its parent.
pub(super) unsafe extern "C" fn fork(_: &Registers) -> c_int {
    let Some(next) = next::fork() else {
        errno::set(errno::ENOSYS);
        return -1;
    };
    let thread = thread::current();
    // Before the fork: handlers of pthread_atfork(3) may allocate in it.
    thread.forked_at_ns.store(clock::now_ns(), Relaxed);
    // SAFETY: no arguments.
    let child = unsafe { next() };
    // 0 if such a handler has connected the child.
    let forked_at_ns = thread.forked_at_ns.load(Relaxed);
    thread.forked_at_ns.store(0, Relaxed);
    if child == 0 {
        process::note_fork(forked_at_ns);
        // The next event begins a sequence of samples of the child's own.
        thread.remaining.store(0, Relaxed);
        thread.remaining_calls.store(0, Relaxed);
    }
    child
}
