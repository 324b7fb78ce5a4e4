//! The size of the rings for samples. Pure.

use crate::event::{SamplingPeriod, StackMode, Waiting};
use crate::perf::plan::Plan;

impl Plan {
    /// Returns the most bytes of records that a busy CPU writes per second, assuming that events
    /// with their own period have the rate of the others, and those with a period of 1 the rate
    /// [`EACH`]. A BPF program copies the stacks of the events `with_bpf_copier`.
    pub(crate) fn bytes_per_second(&self, with_bpf_copier: &[usize]) -> u64 {
        let mut all = 0_u64;
        let waits_for = |waiting| self.events.iter().any(|it| it.event.waiting() == Some(waiting));
        let has_blocked = waits_for(Waiting::Blocked);
        for (number, planned) in self.events.iter().enumerate() {
            // One sample has both parts of a wait.
            if has_blocked && planned.event.waiting() == Some(Waiting::Runnable) {
                continue;
            }
            let stack = match self.common.unwind {
                StackMode::Dwarf
                    if with_bpf_copier.contains(&number) || planned.event.is_written_by_bpf() =>
                {
                    self.common.with_bpf_copier().stack_size
                }
                StackMode::Dwarf => self.common.stack_size,
                _ => 0,
            };
            let rate = match planned.period {
                SamplingPeriod::Fixed(1) if !planned.event.is_calls() => EACH,
                _ => self.frequency,
            };
            all = all.saturating_add(rate.saturating_mul(u64::from(stack) + 1024));
        }
        all
    }
}

/// Assumed samples per second of an event with a period of 1.
const EACH: u64 = 10_000;

/// The most bytes of a ring for samples. The kernel clears all of it before the command may start,
/// which takes a millisecond or two for each MiB.
const RING_MAX: u64 = 32 << 20;

/// The most bytes of all rings for samples together.
const RINGS_MAX: u64 = 256 << 20;

/// Returns the bytes of a ring for samples: a quarter of a second of records, and `room` for stack
/// chunks. May be lowered if too little memory can be locked.
pub(crate) fn ring_size(bytes_per_second: u64, room: u64, cpus: usize, page: usize) -> usize {
    let share = RINGS_MAX / cpus.max(1) as u64;
    let requested = (bytes_per_second / 4).saturating_add(room);
    let requested = requested.min(share).min(RING_MAX).max(page as u64);
    let size = usize::try_from(requested).unwrap_or(usize::MAX);
    // mmap(2) of a ring takes a power of two pages. Rounded up: less than a quarter of a second is
    // too little if the recorder has to wait for a CPU.
    match size.checked_next_power_of_two() {
        Some(up) if up as u64 <= share => up,
        _ => 1 << size.ilog2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_size_is_a_power_of_two_within_its_share() {
        assert_eq!(ring_size(33 << 20, 0, 2, 4096), 16 << 20);
        assert_eq!(ring_size(32 << 20, 0, 2, 4096), 8 << 20);
        assert_eq!(ring_size(330 << 20, 0, 2, 4096), 32 << 20);
        assert_eq!(ring_size(330 << 20, 0, 256, 4096), 1 << 20);
        assert_eq!(ring_size(0, 0, 4, 4096), 4096);
        assert_eq!(ring_size(u64::MAX, 0, 0, 65536).count_ones(), 1);
    }
}
