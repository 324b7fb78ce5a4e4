//! Statements on the distance between an event and the instruction of its sample. Pure.

use nprof_stream::{Event, Measure};

/// Returns a statement on the instruction at which the samples of an event are.
pub(crate) fn place_of_samples(event: &Event) -> &'static str {
    match (&event.measure, &event.name[..]) {
        (Measure::CpuTime, _) => {
            "taken by a timer: at the oldest instruction that had not completed, so that a slow one \
             has its time itself or leaves it to the next one; the kernel's time without interrupts is \
             where it allows them again"
        }
        (Measure::Cycles, _) => {
            "taken by the interrupt of a counter, which arrives some instructions late; the sums of \
             blocks are reliable"
        }
        (Measure::WaitTime | Measure::WallTime, _) => "at the instruction where the thread stopped",
        (Measure::Bytes, _) => "at the call of the allocator",
        (_, b"calls") => "at the entry of the function, or at a safe instruction near it",
        _ => {
            "exact for tracepoints and faults; the interrupt of a counter arrives some instructions \
             late, and the sums of blocks are reliable"
        }
    }
}
