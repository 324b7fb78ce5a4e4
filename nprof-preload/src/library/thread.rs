//! The state of a thread.
//!
//! `#[thread_local]` is unstable, and the storage must be in the static TLS block (initial-exec): a dynamic one is
//! allocated by malloc(3) at its first use.
#![allow(unsafe_code)]

use core::arch::global_asm;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

use super::unfinished::{LEVELS, Unfinished};
use super::{arch, clock, sys};
use crate::sampling::next_random;

/// The state of a thread; zero at its start.
///
/// The fields are atomics because signal handlers of the thread interrupt its hooks; all accesses are relaxed,
/// since no other thread sees them.
#[repr(C)]
pub(super) struct Thread {
    /// `Sampler::remaining`: the hooks subtract from it in assembly, which expects it to be the first field.
    pub(super) remaining: AtomicI64,
    /// The last block that was recorded; an outer hook clears it to notice that an inner hook has recorded. The
    /// second field, as the hooks expect.
    pub(super) recorded: AtomicUsize,
    /// The period of the allocations.
    pub(super) heap_period: Period,
    /// `Sampler::remaining` of the calls of instrumented functions, from which hooks subtract in assembly.
    pub(super) remaining_calls: AtomicI64,
    /// The period of these calls.
    pub(super) call_period: Period,
    /// The state of the random generator.
    pub(super) random: AtomicU64,
    /// The id of the ring for which this state is valid: a forked child begins again.
    pub(super) ring: AtomicU64,
    /// The time of the fork that this thread is calling; 0 if none.
    pub(super) forked_at_ns: AtomicU64,
    /// The part of the stack that can be read without checks.
    pub(super) stack_low: AtomicUsize,
    /// The end of that part; 0 before the first sample.
    pub(super) stack_high: AtomicUsize,
    /// The lowest address of the stack that the thread was created with: see `stack::created_low`. 0 before it was
    /// searched; the highest address, above all stacks, if it was not found.
    pub(super) stack_created_low: AtomicUsize,
    /// The thread id.
    pub(super) tid: AtomicU32,
    /// The number of slow paths that are active: more than one if a signal handler interrupts a hook.
    pub(super) depth: AtomicU32,
    /// The number of `unfinished` records.
    pub(super) writing: AtomicU32,
    /// The records that hooks of the thread write: the first, and those of handlers that have interrupted it.
    pub(super) unfinished: [Unfinished; LEVELS],
}

/// The present period of a thread's events.
#[repr(C)]
pub(super) struct Period {
    /// `Sampler::to_point`.
    pub(super) to_point: AtomicI64,
    /// `Sampler::to_end`.
    pub(super) to_end: AtomicU64,
    /// `Sampler::period`.
    pub(super) length: AtomicU64,
}

const _: () = assert!(size_of::<Thread>() <= 256);

global_asm!(
    ".section .tbss.nprof_thread,\"awT\",@nobits",
    ".globl nprof_thread",
    ".hidden nprof_thread",
    ".type nprof_thread,@object",
    ".size nprof_thread,256",
    ".balign 64",
    "nprof_thread:",
    ".zero 256",
    ".text",
);

impl Thread {
    /// Begins a slow path.
    pub(super) fn enter(&self) {
        self.depth.store(self.depth.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Ends a slow path.
    pub(super) fn leave(&self) {
        self.depth.store(self.depth.load(Relaxed).wrapping_sub(1), Relaxed);
    }

    /// Prepares the state for the ring of the process: at the start of a thread, and in a forked child.
    pub(super) fn begin(&self, ring_id: u64) {
        self.tid.store(sys::thread_id(), Relaxed);
        let seed = ring_id ^ clock::now_ns() ^ u64::from(self.tid.load(Relaxed)) << 40;
        self.random.store(next_random(seed).1, Relaxed);
        self.heap_period.length.store(0, Relaxed);
        self.call_period.length.store(0, Relaxed);
        self.ring.store(ring_id, Relaxed);
    }
}

/// Returns the state of the calling thread.
pub(super) fn current() -> &'static Thread {
    // SAFETY: the state lives as long as the thread, and references to it stay within hooks of the thread.
    unsafe { &*(arch::thread_state() as *const Thread) }
}
