//! Chooses the events of a thread to record.

use core::sync::atomic::AtomicI64;
use core::sync::atomic::Ordering::Relaxed;

use super::process::{self, Ring};
use super::thread::{Period, Thread};
use crate::protocol::RingHeader;
use crate::sampling::{Sample, Sampler, next_random};

/// Decides about an event of `size`, after which the thread's `remaining` is not positive; returns its sample and the
/// ring if it is to be recorded. `wanted` returns the period that the recorder wants.
pub(super) fn choose(
    thread: &Thread,
    remaining: &AtomicI64,
    period: &Period,
    size: u64,
    wanted: impl FnOnce(&RingHeader) -> u64,
) -> Option<(Ring, Sample)> {
    let ring = match process::ring(thread) {
        Some(ring) => ring,
        None => {
            // Another thread is connecting, or it is too early: the next event asks again.
            let rest = if process::is_quiet() { i64::MAX } else { 0 };
            remaining.store(rest, Relaxed);
            return None;
        }
    };
    let wanted = wanted(ring.header());
    if wanted == 0 {
        remaining.store(i64::MAX, Relaxed);
        return None;
    }
    if thread.ring.load(Relaxed) != ring.id {
        thread.begin(ring.id);
    }
    let mut sampler = Sampler {
        remaining: remaining.load(Relaxed),
        to_point: period.to_point.load(Relaxed),
        to_end: period.to_end.load(Relaxed),
        period: period.length.load(Relaxed),
    };
    let mut random = || {
        let (state, bits) = next_random(thread.random.load(Relaxed));
        thread.random.store(state, Relaxed);
        bits
    };
    let sample = sampler.take(size, wanted, &mut random);
    remaining.store(sampler.remaining, Relaxed);
    period.to_point.store(sampler.to_point, Relaxed);
    period.to_end.store(sampler.to_end, Relaxed);
    period.length.store(sampler.period, Relaxed);
    Some((ring, sample?))
}
