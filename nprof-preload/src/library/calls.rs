//! The slow path of the hooks that compilers call at the entry of functions: chooses calls and records them.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;

use super::choice::choose;
use super::process::Ring;
use super::thread::{self, Thread};
use super::writer::{self, Class};
use super::{clock, known, stack};
use crate::protocol::{Called, CalledAgain, Kind, Registers, RingHeader};
use crate::sampling::Sample;

/// Decides about a call after which the thread's `remaining_calls` is not positive.
pub(super) fn called(registers: &Registers) {
    let thread = thread::current();
    thread.enter();
    let wanted = |header: &RingHeader| header.call_period.load(Relaxed);
    let chosen = choose(thread, &thread.remaining_calls, &thread.call_period, 1, wanted);
    if let Some((ring, sample)) = chosen
        && record(thread, &ring, sample, registers).is_none()
    {
        ring.header().lost_calls.fetch_add(1, Relaxed);
    }
    thread.leave();
}

/// Records a call; None if it found no room.
fn record(thread: &Thread, ring: &Ring, sample: Sample, registers: &Registers) -> Option<()> {
    let copy = stack::plan(thread, registers.sp as usize, ring.stack_bytes);
    // A record of a known stack states no weight.
    let known = if sample.period == 1 { known::number(ring, &copy, registers) } else { None };
    let content = match known {
        Some(_) => 8 * CalledAgain::WORDS,
        None => 8 * Called::WORDS + copy.bytes,
    };
    // Before the reservation, as in `memory::record`.
    let time_ns = clock::recent_ns();
    let slot = writer::reserve(thread, ring, registers.into(), content, Class::Ordinary)?;
    let tid = u64::from(thread.tid.load(Relaxed));
    if let Some(stack) = known {
        slot.write(0, &[time_ns, tid | u64::from(stack) << 32]);
        slot.commit(Kind::CalledAgain);
        return Some(());
    }
    // SAFETY: the record was reserved with room for the copy.
    let bytes = unsafe { copy.make(slot.word(Called::WORDS)) };
    slot.write(0, &[time_ns, tid, sample.weight, bytes as u64]);
    slot.write(4, &registers.words());
    slot.commit(Kind::Called);
    Some(())
}
