//! The receiver of the records of all sources.

use std::rc::Rc;

use nprof_stream::{Cause, EventId};

use crate::perf::event_counts::CountingTime;
use crate::perf::lost::LostSamples;
use crate::perf::record::{KernelRecord, SampleId};
use crate::sys::SharedWords;

/// Takes the records of a recording in the order of their time.
pub(crate) trait RecordHandler {
    /// True if samples of this thread are recorded. Sources ask before they decode a sample.
    fn accepts(&self, tid: u32) -> bool;

    /// Takes one record of an event; none is the event that reports processes and mappings.
    fn handle_record(&mut self, sample_id: SampleId, body: &KernelRecord<'_>, event: EventId);

    /// Takes note that samples of an event were lost; none if their number is unknown.
    fn on_lost(&mut self, sample_id: SampleId, lost: LostSamples, event: EventId, cause: Cause);

    /// Takes note, at the end, that an event had a counter for a part of the time only.
    fn on_multiplexed(&mut self, sample_id: SampleId, event: EventId, time: CountingTime);

    /// Takes note that `count` records of processes and mappings were lost. The number of samples
    /// lost with them is unknown.
    fn on_sideband_lost(&mut self, sample_id: SampleId, count: u64);

    /// Takes note that records of processes and mappings may have been lost, before the first sample
    /// after them.
    fn on_sideband_full(&mut self);

    /// Takes note that a sample of an event with a BPF program was filtered out. `thread` is the id
    /// of its thread as the program knows it; 0 if the program copied nothing.
    fn reject_thread(&mut self, tid: u32, thread: u32);

    /// Announces that a BPF program copies up to `max_copy_bytes` of each stack, as these words
    /// ask it to.
    fn enable_stack_copies(&mut self, words: Rc<SharedWords>, max_copy_bytes: u64);

    /// Announces the same for the stacks of waits, which have hints of their own.
    fn enable_wait_copies(&mut self, words: Rc<SharedWords>, max_copy_bytes: u64);

    /// Ends a batch of records.
    fn end_batch(&mut self);
}
