//! The ring buffer of one CPU, with the events that fill it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::rc::Rc;
use std::time::Duration;

use nprof_stream::{Cause, EventId};

use crate::perf::backlog::Backlog;
use crate::perf::bpf::shared_array;
use crate::perf::bpf::stack_copier::BpfStackCopier;
use crate::perf::drain_interval::FillRate;
use crate::perf::event_binding::{EventBinding, StrayBinding};
use crate::perf::event_counts::{self, CountingTime, EventCounts};
use crate::perf::handler::RecordHandler;
use crate::perf::lost::{LostSamples, LostTracker};
use crate::perf::record::{self, RawData, SampleId};
use crate::perf::ring_cursor::RingCursor;
use crate::perf::stack_chunks::{ChunkAssembler, SampleKey, StackChunk};
use crate::sys::{self, Ring, SharedWords};

/// A record is damaged if its time is this much later than the drain that reads it.
const MAX_CLOCK_SKEW_NS: u64 = 1_000_000_000;

/// No sideband record is longer: a mapping with a path of PATH_MAX bytes, and its numbers.
const SIDEBAND_RECORD_MAX: u64 = 4096 + 256;

/// No record is longer: the size in its header has 16 bits.
const RECORD_MAX: u64 = 1 << 16;

/// Stack chunks stay in the ring up to this part of it, as a divisor.
const KEPT_PART: usize = 4;

/// Shortest interval between two reads of the events' own counts of lost records. Each read
/// interrupts the CPU of the event, and there may be thousands of events.
const LOST_POLL_NS: u64 = 1_000_000_000;

/// An event, open on one CPU.
#[derive(Debug)]
pub(super) struct OpenEvent {
    pub(super) file: File,
    /// Its id in the stream; none for the sideband event.
    pub(super) event: EventId,
    /// The task that it was opened for; `None` if it was opened for the CPU.
    pub(super) task: Option<u32>,
    /// True if BPF programs write its samples.
    pub(super) is_output: bool,
    /// The numbers that it returns.
    read_format: u64,
    /// The period in ns, if a timer takes its samples.
    timer_period: Option<u64>,
    /// The number of its lost records that are already reported.
    reported_lost: Cell<u64>,
}

impl OpenEvent {
    pub(super) fn new(
        file: File,
        binding: &EventBinding,
        read_format: u64,
        timer_period: Option<u64>,
    ) -> Self {
        let EventBinding { event, task, layout, .. } = *binding;
        let is_output = layout.raw != RawData::None;
        let reported_lost = Cell::new(0);
        Self { file, event, task, is_output, read_format, timer_period, reported_lost }
    }

    /// Reads the numbers that the kernel keeps for it. None if it cannot be read.
    fn counts(&self) -> Option<EventCounts> {
        const WORD: usize = size_of::<u64>();
        let mut bytes = [0; event_counts::WORDS_MAX * WORD];
        let count = (&self.file).read(&mut bytes).ok()?;
        let words = bytes[..count].as_chunks::<WORD>().0;
        let mut decoded = [0; event_counts::WORDS_MAX];
        for (word, bytes) in decoded.iter_mut().zip(words) {
            *word = u64::from_ne_bytes(*bytes);
        }
        EventCounts::decode(&decoded[..words.len()], self.read_format)
    }

    /// Reads the time for which it had a counter. None if it cannot be read, or needs no counter.
    pub(super) fn counting_time(&self) -> Option<CountingTime> {
        // Others need not be read: each read interrupts the CPU of the event.
        if self.read_format & event_counts::TIMES == 0 {
            return None;
        }
        self.counts()?.time
    }

    /// Reads the number of its lost records. None if the event cannot be read.
    fn lost(&self) -> Option<u64> {
        self.counts().map(|counts| counts.lost)
    }

    /// Reads the number of records lost since the last call.
    fn newly_lost(&self) -> u64 {
        let Some(lost) = self.lost() else { return 0 };
        // The kernel counts from the opening of the event, and reports are of differences.
        lost.saturating_sub(self.reported_lost.replace(lost))
    }
}

/// The event that writes stack chunks into a ring, and the chunks read last.
#[derive(Debug)]
pub(super) struct ChunkEvent {
    /// Keeps the event open.
    _file: File,
    /// The perf event id in its records.
    id: u64,
    pub(super) pending: ChunkAssembler,
    /// The array shared with the program, and the index of its word for the bytes read.
    words: Rc<SharedWords>,
    read_word: usize,
}

impl ChunkEvent {
    /// Creates the event of a CPU.
    pub(super) fn new(file: File, id: u64, words: Rc<SharedWords>, cpu: u32) -> Self {
        let (pending, read_word) = (ChunkAssembler::default(), shared_array::read_word(cpu));
        Self { _file: file, id, pending, words, read_word }
    }

    /// Counts a chunk as read, which makes room for others in the ring.
    fn note_read(&self, chunk: &StackChunk<'_>) {
        self.words.add(self.read_word, chunk.ring_bytes());
    }
}

/// The numbers of unread bytes at which a ring is drained.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DrainLevels {
    /// As predicted by the rate at which it fills; 0 for no prediction.
    pub(super) by_clock: u64,
    /// Found after a wake-up by the kernel.
    pub(super) by_wakeup: u64,
}

/// The ring of one CPU, with the events that fill it.
#[derive(Debug)]
pub(super) struct CpuRing {
    pub(super) records: RingCursor,
    /// The ring belongs to the first event; the others share it. Never empty.
    pub(super) events: Vec<OpenEvent>,
    pub(super) cpu: u32,
    /// The writer of stack chunks of samples of the CPU; `None` without a BPF program.
    pub(super) chunks: Option<ChunkEvent>,
    /// The writer of those of waits.
    pub(super) wait_chunks: Option<ChunkEvent>,
    /// The perf event id of samples of waits, see [`RingCursor::find_oldest`]: they are written while
    /// interrupts are enabled.
    pub(super) late_writer: Option<u64>,
    pub(super) strays: StrayBinding,
    pub(super) lost: LostTracker,
    /// Time of the last read of the events' counts of lost records.
    lost_polled_ns: u64,
    /// True if the ring was full when the last drain began.
    was_full: bool,
    /// Lost records of any kind by the events' own counts, as last read after the ring was full.
    counted_lost: u64,
    /// Time of that reading.
    counted_ns: u64,
    /// The index of the event that is polled: the first that has not hung up. Past the end if all
    /// have.
    pub(super) polled: usize,
    levels: DrainLevels,
    fill_rate: FillRate,
    /// Bytes of the last sample that had chunks.
    pub(super) sample_size: usize,
}

impl CpuRing {
    pub(super) fn new(ring: Ring, first: OpenEvent, cpu: u32, levels: DrainLevels) -> Self {
        Self {
            records: RingCursor::new(ring),
            events: vec![first],
            cpu,
            chunks: None,
            wait_chunks: None,
            late_writer: None,
            strays: StrayBinding::Unknown,
            lost: LostTracker::default(),
            lost_polled_ns: 0,
            was_full: false,
            counted_lost: 0,
            counted_ns: 0,
            polled: 0,
            levels,
            fill_rate: FillRate::default(),
            sample_size: 0,
        }
    }

    /// Starts a drain of the records that are in the ring now.
    pub(super) fn begin_drain(&mut self, now_ns: u64) {
        self.records.head = self.records.ring.head();
        self.was_full = self.is_full();
        self.fill_rate.update(now_ns, self.records.head);
    }

    /// True if the ring must be drained at once. A wake-up alone does not say so: the kernel counts
    /// the bytes written since the last wake-up, also those that were read since.
    pub(super) fn needs_drain(&self) -> bool {
        self.unread() >= self.levels.by_wakeup
    }

    /// Returns the number of unread bytes, including those that came after the drain began.
    pub(super) fn unread(&self) -> u64 {
        self.records.ring.head().saturating_sub(self.records.ring.tail())
    }

    /// True if the ring has no room for the largest record, so that some may have been lost.
    pub(super) fn is_full(&self) -> bool {
        let largest = if self.is_sideband() { SIDEBAND_RECORD_MAX } else { RECORD_MAX };
        (self.records.ring.size() as u64).saturating_sub(self.unread()) < largest
    }

    /// Reads the events' own counts of lost records if the ring was full when this drain began. The
    /// record that reports the loss only comes with the next record that fits, which may be seconds
    /// later.
    pub(super) fn count_lost_if_full(&mut self, now_ns: u64, copier: Option<&BpfStackCopier>) {
        if self.was_full && now_ns.saturating_sub(self.counted_ns) >= LOST_POLL_NS {
            self.counted_ns = now_ns;
            self.count_lost(copier);
        }
    }

    /// Reads the events' own counts of lost records.
    pub(super) fn count_lost(&mut self, copier: Option<&BpfStackCopier>) {
        let events: u64 = self.events.iter().filter_map(OpenEvent::lost).sum();
        let copier = copier.filter(|_| self.chunks.is_some());
        let chunks = copier.map_or(0, |copier| copier.lost_chunks(self.cpu));
        self.counted_lost = events.saturating_add(chunks);
    }

    /// Returns the number of lost records of any kind that are known so far.
    pub(super) fn known_lost(&self) -> u64 {
        self.lost.total().max(self.counted_lost)
    }

    /// Returns the time until the ring is to be drained. None if nothing comes, or if only wake-ups
    /// drain it.
    pub(super) fn max_sleep(&self) -> Option<Duration> {
        let limit = self.levels.by_clock.checked_sub(1)?;
        self.fill_rate.time_until(limit.saturating_sub(self.records.remaining_bytes()))
    }

    /// Returns the records that this drain leaves in the ring. Sideband records are not urgent if
    /// recorded tasks have had none for a while.
    pub(super) fn backlog(&self, is_quiet: bool) -> Backlog {
        if self.records.remaining_bytes() == 0 {
            Backlog::Nothing
        } else if self.is_sideband() && !is_quiet {
            Backlog::Sideband
        } else {
            Backlog::Samples
        }
    }

    /// Returns the time of the oldest record, after moving stack chunks in front of it out of the
    /// ring. None if this drain has read all.
    ///
    /// A time in the future counts as 0, or the ring would wait for it. Damage empties the ring and
    /// counts as one lost record.
    pub(super) fn next_timestamp(
        &mut self,
        now_ns: u64,
        handler: &mut dyn RecordHandler,
    ) -> Option<u64> {
        self.records.remove_taken();
        while self.take_chunk() {}
        self.records.find_oldest(self.late_writer);
        if let Some((header, bytes)) = self.records.oldest() {
            let time = record::time(header, bytes).unwrap_or(0);
            return Some(if time > now_ns.saturating_add(MAX_CLOCK_SKEW_NS) { 0 } else { time });
        }
        let damaged = self.records.remaining_bytes();
        if damaged > 0 {
            self.report_damage(handler);
            self.records.remove_chunks();
            if let Some(chunks) = &mut self.chunks {
                chunks.pending.clear();
            }
            // The start of the next record is unknown, as it follows from the size of this one.
            self.records.ring.advance(usize::try_from(damaged).unwrap_or(0));
        }
        None
    }

    /// Takes the next record if it is a stack chunk; returns true if it is. Chunks are not merged by
    /// time: depending on the kernel, the sample that follows them is stamped before or after.
    ///
    /// They stay in the ring, where the walk of the sample's stack reads few of their words; they are
    /// copied only where that is not possible.
    fn take_chunk(&mut self) -> bool {
        if self.chunks.is_none() && self.wait_chunks.is_none() {
            return false;
        }
        let kept = self.records.kept;
        // More would leave no room for the sample, and stay.
        let kept_max = self.records.in_one_piece().min(self.records.ring.size() / KEPT_PART);
        let Some((header, bytes)) = self.records.record_at(kept) else { return false };
        if !header.is_sample() {
            return false;
        }
        let id = record::event_id(header, bytes);
        let is_wait = self.wait_chunks.as_ref().is_some_and(|chunks| Some(chunks.id) == id);
        let writer = if is_wait { &mut self.wait_chunks } else { &mut self.chunks };
        let Some(writer) = writer.as_mut().filter(|writer| Some(writer.id) == id) else {
            return false;
        };
        // A damaged chunk only leaves its sample with the copy of the kernel.
        let read = record::read_chunk(bytes);
        if let Some((_, chunk)) = &read {
            writer.note_read(chunk);
        }
        // Where waits are recorded, too, their samples come between chunks and their sample.
        let may_stay = self.late_writer.is_none() && kept + header.size <= kept_max;
        if let Some((key, chunk)) = read.filter(|_| may_stay && !is_wait)
            && writer.pending.keep(key, &chunk, kept + record::CHUNK_OFFSET)
        {
            self.records.keep_chunk(header.size, self.sample_size);
            return true;
        }
        writer.pending.copy_kept(self.records.kept_chunks());
        self.records.remove_chunks();
        if let Some((_, bytes)) = self.records.record_at(0)
            && let Some((key, chunk)) = record::read_chunk(bytes)
        {
            writer.pending.take(if is_wait { SampleKey::of_wait(key.tid) } else { key }, &chunk);
        }
        self.records.ring.advance(header.size);
        true
    }

    /// Reports a record that cannot be decoded as lost.
    pub(super) fn report_damage(&self, handler: &mut dyn RecordHandler) {
        if self.is_sideband() {
            // A lost mapping or task makes later frames wrong; a lost sample does not.
            handler.on_sideband_lost(self.now(), 1);
        } else {
            let lost = LostSamples::own(1);
            handler.on_lost(self.now(), lost, self.events[0].event, Cause::Recorder);
        }
    }

    fn now(&self) -> SampleId {
        SampleId::at(sys::monotonic_ns(), Some(self.cpu))
    }

    /// True if the ring holds sideband records (mmap, comm, fork, exit) instead of samples.
    pub(super) fn is_sideband(&self) -> bool {
        self.events[0].event.is_none()
    }

    /// Returns the events of which a timer takes the samples, with their periods in ns.
    pub(super) fn timers(&self) -> impl Iterator<Item = (&File, u64)> {
        self.events.iter().filter_map(|event| Some((&event.file, event.timer_period?)))
    }

    /// Reports the losses that records have noted. With `counts_lost` each event is read for its
    /// own count, at most once per [`LOST_POLL_NS`].
    pub(super) fn report_lost(
        &mut self,
        now_ns: u64,
        counts_lost: bool,
        copier: Option<&BpfStackCopier>,
        handler: &mut dyn RecordHandler,
    ) {
        if counts_lost && now_ns.saturating_sub(self.lost_polled_ns) < LOST_POLL_NS {
            return;
        }
        let Some((sample_id, count)) = self.lost.take() else { return };
        self.lost_polled_ns = now_ns;
        if counts_lost {
            return self.report_lost_by_event(sample_id, handler);
        }
        // The kernel counts lost chunks like samples, so they are subtracted.
        let chunks = copier.map_or(0, |copier| copier.lost_chunks(self.cpu));
        let samples = self.lost.samples(count, chunks);
        if samples > 0 {
            let lost = self.lost.kept.divide(samples);
            handler.on_lost(sample_id, lost, self.events[0].event, Cause::Ring);
        }
    }

    fn report_lost_by_event(&self, sample_id: SampleId, handler: &mut dyn RecordHandler) {
        // An event of the stream may be several perf events of this ring, such as one per thread.
        let mut lost = BTreeMap::<EventId, u64>::new();
        for open_event in &self.events {
            *lost.entry(open_event.event).or_default() += open_event.newly_lost();
        }
        for (event, count) in lost.into_iter().filter(|(_, count)| *count > 0) {
            handler.on_lost(sample_id, self.lost.kept.divide(count), event, Cause::Ring);
        }
    }

    /// Reports losses that no record reported, because none followed them.
    pub(super) fn report_remaining_lost(&self, handler: &mut dyn RecordHandler) {
        if self.is_sideband() {
            // Records report their sum, not the event: an event's own count would count them twice.
            let total = self.events.iter().filter_map(OpenEvent::lost).sum();
            let lost = self.lost.remaining_sideband(total);
            if lost > 0 {
                handler.on_sideband_lost(self.now(), lost);
            }
            return;
        }
        self.report_lost_by_event(self.now(), handler);
    }
}
