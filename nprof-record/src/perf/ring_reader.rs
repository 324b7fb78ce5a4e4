//! A ring of one CPU, with the events that fill it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use nprof_stream::{Cause, EventId};

use crate::perf::bpf::stack_copier::BpfStackCopier;
use crate::perf::handler::RecordHandler;
use crate::perf::record::{self, Header, SampleId};
use crate::perf::stack_chunks::ChunkAssembler;
use crate::sys::{self, Ring};

use crate::perf::drain_interval::FillRate;
use crate::perf::lost::LostTracker;

/// No record is from so much later than the round that finds it, ns.
const MAX_CLOCK_SKEW: u64 = 1_000_000_000;

/// How long events are not asked again what they lost, ns.
const LOST_POLL: u64 = 1_000_000_000;

/// An event, open on one CPU.
#[derive(Debug)]
pub(super) struct OpenEvent {
    pub(super) file: File,
    /// Which it is; none for the one that tells of processes and mappings.
    pub(super) event: EventId,
    /// How many of its records were lost that are accounted for.
    reported_lost: Cell<u64>,
}

impl OpenEvent {
    pub(super) fn new(file: File, event: EventId) -> Self {
        Self { file, event, reported_lost: Cell::new(0) }
    }

    /// How many of its records were lost; `None` where it cannot be asked.
    fn lost(&self) -> Option<u64> {
        // PERF_FORMAT_LOST: the value, then the number of lost records.
        let mut values = [0; 16];
        let read = (&self.file).read(&mut values).is_ok_and(|count| count == values.len());
        values.last_chunk().filter(|_| read).map(|lost| u64::from_ne_bytes(*lost))
    }

    /// How many more were lost since the last time.
    fn newly_lost(&self) -> u64 {
        let Some(lost) = self.lost() else { return 0 };
        lost.saturating_sub(self.reported_lost.replace(lost))
    }
}

/// The records in a ring.
#[derive(Debug)]
pub(super) struct RingCursor {
    pub(super) ring: Ring,
    /// Up to where it may be read in this round.
    pub(super) head: u64,
    /// A record that wraps around the end of the ring, put together.
    wrapped: Vec<u8>,
}

impl RingCursor {
    /// The oldest record; `None` when there is none in this round.
    pub(super) fn front(&mut self) -> Option<(Header, &[u8])> {
        let (first, second) = self.ring.bytes(self.head);
        let header = Header::read(first)?;
        if header.size <= first.len() {
            return Some((header, &self.ring.bytes(self.head).0[..header.size]));
        }
        let rest = second.get(..header.size - first.len())?;
        self.wrapped.clear();
        self.wrapped.extend_from_slice(first);
        self.wrapped.extend_from_slice(rest);
        Some((header, &self.wrapped))
    }
}

/// The event that writes parts of stacks into a ring, and those that came last.
#[derive(Debug)]
pub(super) struct ChunkEvent {
    /// It is as long as it is open.
    _file: File,
    /// What its records carry.
    pub(super) id: u64,
    pub(super) pending: ChunkAssembler,
}

impl ChunkEvent {
    pub(super) fn new(file: File, id: u64) -> Self {
        Self { _file: file, id, pending: ChunkAssembler::default() }
    }
}

/// A ring of one CPU, with the events that fill it.
#[derive(Debug)]
pub(super) struct CpuRing {
    pub(super) records: RingCursor,
    /// The first one's ring it is, the others share it. Never empty.
    pub(super) events: Vec<OpenEvent>,
    pub(super) cpu: u32,
    /// What writes parts of stacks, where something does.
    pub(super) chunks: Option<ChunkEvent>,
    pub(super) lost: LostTracker,
    /// When its events were last asked what they lost, ns.
    lost_polled: u64,
    /// Which of the events is asked whether there is something to read; past the last when all
    /// have hung up and will bring nothing any more.
    pub(super) polled: usize,
    /// With how many unread bytes it has to be read at once.
    wakeup_bytes: u64,
    fill_rate: FillRate,
}

impl CpuRing {
    pub(super) fn new(ring: Ring, first: OpenEvent, cpu: u32, wakeup_bytes: u64) -> Self {
        let records = RingCursor { ring, head: 0, wrapped: Vec::new() };
        let (events, lost, fill_rate) = (vec![first], LostTracker::default(), FillRate::default());
        Self {
            records,
            events,
            cpu,
            chunks: None,
            lost,
            lost_polled: 0,
            polled: 0,
            wakeup_bytes,
            fill_rate,
        }
    }

    /// Begins a round at the time `now`, ns.
    pub(super) fn begin_drain(&mut self, now: u64) {
        self.records.head = self.records.ring.head();
        self.fill_rate.note(now, self.records.head);
    }

    /// Whether it is to be read at once. The kernel wakes us whenever so much was written, be it
    /// read by now or not.
    pub(super) fn needs_drain(&self) -> bool {
        self.unread() >= self.wakeup_bytes
    }

    /// How many bytes of it have not been read.
    pub(super) fn unread(&self) -> u64 {
        self.records.ring.head().saturating_sub(self.records.ring.tail())
    }

    /// After how many ms it will be half as full; `None` when nothing comes, or it has to be read
    /// whenever we are woken.
    pub(super) fn max_sleep(&self) -> Option<u64> {
        let room = (self.wakeup_bytes / 2).checked_sub(1)?;
        let left = self.records.head.saturating_sub(self.records.ring.tail());
        self.fill_rate.until(room.saturating_sub(left))
    }

    /// When the oldest record was made; `now` is the time of this round. A time that cannot be
    /// true counts as 0: the ring would wait for it. Damage empties the ring, and counts as a lost
    /// record.
    pub(super) fn next_timestamp(
        &mut self,
        now: u64,
        copier: Option<&BpfStackCopier>,
        handler: &mut dyn RecordHandler,
    ) -> Option<u64> {
        while let Some(copier) = copier
            && self.take_chunk(copier)
        {}
        if let Some((header, bytes)) = self.records.front() {
            let time = record::time(header, bytes).unwrap_or(0);
            return Some(if time > now.saturating_add(MAX_CLOCK_SKEW) { 0 } else { time });
        }
        let damaged = self.records.head.saturating_sub(self.records.ring.tail());
        if damaged > 0 {
            self.report_damage(handler);
            self.records.ring.advance(usize::try_from(damaged).unwrap_or(0));
        }
        None
    }

    /// Takes the oldest record if it is a part of a stack. The sample that comes behind it was
    /// stamped before it was written, or after, as kernels differ: parts are not put in order.
    fn take_chunk(&mut self, copier: &BpfStackCopier) -> bool {
        let Some(chunks) = &mut self.chunks else { return false };
        let Some((header, bytes)) = self.records.front() else { return false };
        if !header.is_sample() || record::event_id(header, bytes) != Some(chunks.id) {
            return false;
        }
        if let Some((owner, part)) = record::read_chunk(bytes) {
            chunks.pending.take(owner, &part);
            copier.read(self.cpu, part.ring_bytes());
        }
        self.records.ring.advance(header.size);
        true
    }

    /// A record cannot be read.
    pub(super) fn report_damage(&self, handler: &mut dyn RecordHandler) {
        match self.is_sideband() {
            true => handler.on_sideband_lost(self.now(), 1),
            false => handler.on_lost(self.now(), 1, self.events[0].event, Cause::Recorder),
        }
    }

    fn now(&self) -> SampleId {
        SampleId::at(sys::monotonic_ns(), Some(self.cpu))
    }

    /// Whether it is the ring of what tells of processes and mappings.
    pub(super) fn is_sideband(&self) -> bool {
        self.events[0].event.is_none()
    }

    /// Accounts for the samples that records told to be lost: each event asked itself, where it
    /// `tells`. That is not done in every round: there may be thousands of them, each of which
    /// interrupts the CPU it is on.
    pub(super) fn report_lost(
        &mut self,
        (now, tells): (u64, bool),
        copier: Option<&BpfStackCopier>,
        handler: &mut dyn RecordHandler,
    ) {
        if tells && now.saturating_sub(self.lost_polled) < LOST_POLL {
            return;
        }
        let Some((sample_id, count)) = self.lost.take() else { return };
        self.lost_polled = now;
        if tells {
            return self.report_lost_by_event(sample_id, handler);
        }
        let chunks = copier.map_or(0, |copier| copier.lost(self.cpu));
        let samples = self.lost.samples(count, chunks);
        if samples > 0 {
            handler.on_lost(sample_id, samples, self.events[0].event, Cause::Ring);
        }
    }

    fn report_lost_by_event(&self, sample_id: SampleId, handler: &mut dyn RecordHandler) {
        let mut lost = BTreeMap::<EventId, u64>::new();
        for open_event in &self.events {
            *lost.entry(open_event.event).or_default() += open_event.newly_lost();
        }
        for (event, count) in lost.into_iter().filter(|(_, count)| *count > 0) {
            handler.on_lost(sample_id, count, event, Cause::Ring);
        }
    }

    /// Accounts for what was lost and no record told of, because none came after it.
    pub(super) fn report_remaining_lost(&self, handler: &mut dyn RecordHandler) {
        self.report_lost_by_event(self.now(), handler);
    }
}
