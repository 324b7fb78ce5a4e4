//! CLOCK_MONOTONIC by the vDSO, and by the processor's counter between two of its readings.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};

use super::{arch, symbols, sys};

/// The address of the vDSO's function; 0 before the first call, 1 if there is none.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);

/// Returns the time in nanoseconds.
pub(super) fn now_ns() -> u64 {
    const CLOCK_MONOTONIC: i32 = 1;
    let mut address = FUNCTION.load(Relaxed);
    if address == 0 {
        address = symbols::any(arch::VDSO_CLOCK).unwrap_or(1);
        FUNCTION.store(address, Relaxed);
    }
    if address == 1 {
        return sys::monotonic_ns();
    }
    let mut time = [0_i64; 2];
    // SAFETY: the kernel's function has this type; a timespec has two words.
    unsafe {
        let function: unsafe extern "C" fn(i32, *mut [i64; 2]) -> i32 =
            core::mem::transmute(address);
        function(CLOCK_MONOTONIC, &raw mut time);
    }
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

/// The ticks for which a reading of the clock serves: less than 0.1 ms, from 2.7 GHz on.
const MOMENT_TICKS: u64 = 1 << 18;
/// The most ticks between the two readings of the counter around one of the clock: more if it was interrupted.
const READING_TICKS: u64 = 1 << 12;

/// A reading of the clock with one of the counter. Its cache line is written at most once in `MOMENT_TICKS`.
#[repr(align(64))]
struct Moment {
    /// Odd while a thread writes the other fields.
    version: AtomicU32,
    ticks: AtomicU64,
    /// 0 before the first reading.
    ns: AtomicU64,
    /// The nanoseconds of a tick, times 2^32; 0 before the second reading.
    rate: AtomicU64,
}

static LATEST: Moment = Moment {
    version: AtomicU32::new(0),
    ticks: AtomicU64::new(0),
    ns: AtomicU64::new(0),
    rate: AtomicU64::new(0),
};

/// Returns the time in nanoseconds, wrong by less than `MOMENT_TICKS` even if the counters of CPUs differ. It takes half
/// the time of `now_ns`: two readings of the clock were 41 of the 91 ns of a recorded pair of malloc(3) and free(3).
pub(super) fn recent_ns() -> u64 {
    let Some(ticks_now) = arch::counter() else { return now_ns() };
    let version = LATEST.version.load(Acquire);
    let (ticks, ns) = (LATEST.ticks.load(Relaxed), LATEST.ns.load(Relaxed));
    let rate = LATEST.rate.load(Relaxed);
    // The fields were read before this.
    fence(Acquire);
    let is_whole = version & 1 == 0 && LATEST.version.load(Relaxed) == version;
    let passed = ticks_now.wrapping_sub(ticks);
    if is_whole && rate != 0 && passed < MOMENT_TICKS {
        return ns + ((passed * rate) >> 32);
    }
    renew(ticks_now)
}

/// Reads the clock after the counter, and makes it the latest moment if no other thread does.
#[cold]
fn renew(before: u64) -> u64 {
    let now_ns = now_ns();
    let ticks = arch::counter().unwrap_or(u64::MAX);
    let version = LATEST.version.load(Relaxed);
    let is_exact = ticks.wrapping_sub(before) < READING_TICKS;
    // A hook that was left by longjmp(3) here, or a fork of another thread, leaves an odd version: then the clock is
    // always read.
    if !is_exact
        || version & 1 != 0
        || LATEST.version.compare_exchange(version, version | 1, Acquire, Relaxed).is_err()
    {
        return now_ns;
    }
    // The reader sees the odd version before any other change.
    fence(Release);
    let (last_ticks, last_ns) = (LATEST.ticks.load(Relaxed), LATEST.ns.load(Relaxed));
    let passed = ticks.wrapping_sub(last_ticks);
    // Two readings that are too close give no rate.
    if last_ns == 0 || passed >= MOMENT_TICKS {
        let passed_ns = now_ns.wrapping_sub(last_ns);
        if last_ns != 0 && passed_ns < 1 << 32 {
            LATEST.rate.store((passed_ns << 32) / passed, Relaxed);
        }
        LATEST.ticks.store(ticks, Relaxed);
        LATEST.ns.store(now_ns, Relaxed);
    }
    LATEST.version.store(version.wrapping_add(2), Release);
    now_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_time_is_near_the_clock() {
        let most_ns = 1_000_000;
        for _ in 0..1_000_000 {
            let before = now_ns();
            let recent = recent_ns();
            let after = now_ns();
            assert!((before - most_ns..=after + most_ns).contains(&recent), "{recent} at {before}");
        }
        // Readings that take too long, by a system call, leave it unused.
        let is_used = LATEST.rate.load(Relaxed) != 0;
        assert!(!is_used || arch::counter().is_some());
    }
}
