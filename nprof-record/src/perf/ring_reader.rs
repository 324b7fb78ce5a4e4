//! A ring of one CPU, with the events that fill it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use nprof_stream::{Cause, EventId};

use crate::perf::bpf::stack_copier::Extender;
use crate::perf::handler::RecordHandler;
use crate::perf::record::{self, Header, Stamp};
use crate::perf::stack_chunks::Pending;
use crate::sys::{self, Ring};

use crate::perf::drain_interval::Pace;
use crate::perf::lost::Losses;

/// No record is from so much later than the round that finds it, ns.
const FUTURE: u64 = 1_000_000_000;

/// How long events are not asked again what they lost, ns.
const ASK: u64 = 1_000_000_000;

/// An event, open on one CPU.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    /// Which it is; none for the one that tells of processes and mappings.
    pub(super) event: EventId,
    /// How many of its records were lost that are accounted for.
    accounted: Cell<u64>,
}

impl Opened {
    pub(super) fn new(file: File, event: EventId) -> Self {
        Self { file, event, accounted: Cell::new(0) }
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
        lost.saturating_sub(self.accounted.replace(lost))
    }
}

/// The records in a ring.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) ring: Ring,
    /// Up to where it may be read in this round.
    pub(super) head: u64,
    /// A record that wraps around the end of the ring, put together.
    wrapped: Vec<u8>,
}

impl Records {
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
pub(super) struct Parts {
    /// It is as long as it is open.
    _file: File,
    /// What its records carry.
    pub(super) id: u64,
    pub(super) pending: Pending,
}

impl Parts {
    pub(super) fn new(file: File, id: u64) -> Self {
        Self { _file: file, id, pending: Pending::default() }
    }
}

/// A ring of one CPU, with the events that fill it.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) records: Records,
    /// The first one's ring it is, the others share it. Never empty.
    pub(super) events: Vec<Opened>,
    pub(super) cpu: u32,
    /// What writes parts of stacks, where something does.
    pub(super) parts: Option<Parts>,
    pub(super) losses: Losses,
    /// When its events were last asked what they lost, ns.
    asked: u64,
    /// Which of the events is asked whether there is something to read; past the last when all
    /// have hung up and will bring nothing any more.
    pub(super) polled: usize,
    /// With how many unread bytes it has to be read at once.
    full: u64,
    pace: Pace,
}

impl Source {
    pub(super) fn new(ring: Ring, first: Opened, cpu: u32, full: u64) -> Self {
        let records = Records { ring, head: 0, wrapped: Vec::new() };
        let (events, losses, pace) = (vec![first], Losses::default(), Pace::default());
        Self { records, events, cpu, parts: None, losses, asked: 0, polled: 0, full, pace }
    }

    /// Begins a round at the time `now`, ns.
    pub(super) fn begin_round(&mut self, now: u64) {
        self.records.head = self.records.ring.head();
        self.pace.note(now, self.records.head);
    }

    /// Whether it is to be read at once. The kernel wakes us whenever so much was written, be it
    /// read by now or not.
    pub(super) fn is_full(&self) -> bool {
        self.unread() >= self.full
    }

    /// How many bytes of it have not been read.
    pub(super) fn unread(&self) -> u64 {
        self.records.ring.head().saturating_sub(self.records.ring.tail())
    }

    /// After how many ms it will be half as full; `None` when nothing comes, or it has to be read
    /// whenever we are woken.
    pub(super) fn patience(&self) -> Option<u64> {
        let room = (self.full / 2).checked_sub(1)?;
        let left = self.records.head.saturating_sub(self.records.ring.tail());
        self.pace.until(room.saturating_sub(left))
    }

    /// When the oldest record was made; `now` is the time of this round. A time that cannot be
    /// true counts as 0: the ring would wait for it. Damage empties the ring, and counts as a lost
    /// record.
    pub(super) fn front_time(
        &mut self,
        now: u64,
        extender: Option<&Extender>,
        handler: &mut dyn RecordHandler,
    ) -> Option<u64> {
        while let Some(extender) = extender
            && self.take_part(extender)
        {}
        if let Some((header, bytes)) = self.records.front() {
            let time = record::time(header, bytes).unwrap_or(0);
            return Some(if time > now.saturating_add(FUTURE) { 0 } else { time });
        }
        let damaged = self.records.head.saturating_sub(self.records.ring.tail());
        if damaged > 0 {
            self.give_up(handler);
            self.records.ring.advance(usize::try_from(damaged).unwrap_or(0));
        }
        None
    }

    /// Takes the oldest record if it is a part of a stack. The sample that comes behind it was
    /// stamped before it was written, or after, as kernels differ: parts are not put in order.
    fn take_part(&mut self, extender: &Extender) -> bool {
        let Some(parts) = &mut self.parts else { return false };
        let Some((header, bytes)) = self.records.front() else { return false };
        if !header.is_sample() || record::identifier(header, bytes) != Some(parts.id) {
            return false;
        }
        if let Some((owner, part)) = record::read_part(bytes) {
            parts.pending.take(owner, &part);
            extender.read(self.cpu, part.counted());
        }
        self.records.ring.advance(header.size);
        true
    }

    /// A record cannot be read.
    pub(super) fn give_up(&self, handler: &mut dyn RecordHandler) {
        match self.is_side() {
            true => handler.on_sideband_lost(self.now(), 1),
            false => handler.on_lost(self.now(), 1, self.events[0].event, Cause::Recorder),
        }
    }

    fn now(&self) -> Stamp {
        Stamp::at(sys::monotonic_ns(), Some(self.cpu))
    }

    /// Whether it is the ring of what tells of processes and mappings.
    pub(super) fn is_side(&self) -> bool {
        self.events[0].event.is_none()
    }

    /// Accounts for the samples that records told to be lost: each event asked itself, where it
    /// `tells`. That is not done in every round: there may be thousands of them, each of which
    /// interrupts the CPU it is on.
    pub(super) fn account(
        &mut self,
        (now, tells): (u64, bool),
        extender: Option<&Extender>,
        handler: &mut dyn RecordHandler,
    ) {
        if tells && now.saturating_sub(self.asked) < ASK {
            return;
        }
        let Some((stamp, count)) = self.losses.take() else { return };
        self.asked = now;
        if tells {
            return self.account_each(stamp, handler);
        }
        let parts = extender.map_or(0, |extender| extender.lost(self.cpu));
        let samples = self.losses.samples(count, parts);
        if samples > 0 {
            handler.on_lost(stamp, samples, self.events[0].event, Cause::Ring);
        }
    }

    fn account_each(&self, stamp: Stamp, handler: &mut dyn RecordHandler) {
        let mut lost = BTreeMap::<EventId, u64>::new();
        for opened in &self.events {
            *lost.entry(opened.event).or_default() += opened.newly_lost();
        }
        for (event, count) in lost.into_iter().filter(|(_, count)| *count > 0) {
            handler.on_lost(stamp, count, event, Cause::Ring);
        }
    }

    /// Accounts for what was lost and no record told of, because none came after it.
    pub(super) fn account_rest(&self, handler: &mut dyn RecordHandler) {
        self.account_each(self.now(), handler);
    }
}
