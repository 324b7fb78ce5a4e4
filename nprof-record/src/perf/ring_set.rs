//! The events of a recording and the rings they fill: from there, in order of time, kernel
//! records go to the handler.

use std::io;
use std::os::fd::AsRawFd;

use nprof_stream::EventId;
use rustc_hash::FxHashMap;

use crate::perf::bpf::stack_copier::BpfStackCopier;
use crate::perf::handler::RecordHandler;
use crate::perf::record::{self, KernelRecord, SampleLayout};
use crate::perf::stack_chunks::SampleKey;
use crate::perf::time_merge::TimeMerge;
use crate::sys::{self, Signals};
use crate::unwind::stack_input::CopiedStack;

use crate::perf::ring_reader::CpuRing;

/// What was left in the rings for the next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backlog {
    Nothing,
    Samples,
    /// Records of processes and mappings: files that are mapped may not be there for long.
    Sideband,
}

/// What the id of a record says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventBinding {
    pub(super) event: EventId,
    /// The task it was opened for, where events are opened for tasks.
    pub(super) task: Option<u32>,
    /// The fields of its samples.
    pub(super) layout: SampleLayout,
    /// Whether a program copies their stacks.
    pub(super) uses_bpf_copier: bool,
}

/// How often it is looked whether there are records of processes and mappings, ns.
const SIDEBAND_POLL: u64 = 25_000_000;

/// How long it takes at most from a record's time stamp to its place in the ring, ns: a long
/// stack is copied in between.
const SETTLING: u64 = 2_000_000;

/// The events of a recording.
#[derive(Debug)]
pub(crate) struct RingSet {
    pub(super) rings: Vec<CpuRing>,
    pub(super) bindings: FxHashMap<u64, EventBinding>,
    /// Whose events a task's records are taken of, where events are opened for tasks. A thread
    /// made while we attached may have inherited those of the one that made it, and have its own.
    pub(super) lineage: FxHashMap<u32, u32>,
    pub(super) merge: TimeMerge,
    /// What copies more of stacks than the kernel, where something does.
    pub(super) copier: Option<BpfStackCopier>,
    pub(super) counts_lost: bool,
    /// When it was last looked whether there are records of processes and mappings, ns.
    pub(super) sideband_polled: u64,
}

impl RingSet {
    /// Begins to tell of processes and mappings, and with `samples` to sample.
    ///
    /// # Errors
    ///
    /// What ioctl(2) says.
    pub(crate) fn enable(&self, samples: bool) -> io::Result<()> {
        let events = self.rings.iter().flat_map(|ring| &ring.events);
        for open_event in events.filter(|open_event| samples || open_event.event.is_none()) {
            sys::enable(&open_event.file)?;
        }
        Ok(())
    }

    /// Ends counting; what the rings hold stays.
    pub(crate) fn disable(&self) {
        for open_event in self.rings.iter().flat_map(|ring| &ring.events) {
            let _ = sys::disable(&open_event.file);
        }
    }

    /// How many records came late.
    pub(crate) fn late(&self) -> u64 {
        self.merge.late()
    }

    /// Waits for a ring to fill, a signal, or the time `until`, ns; not for long while there are
    /// records of processes and mappings. Whether the rings are due to be read, whatever the
    /// time.
    ///
    /// # Errors
    ///
    /// What poll(2) says.
    pub(crate) fn wait(&mut self, signals: &Signals, until: u64) -> io::Result<bool> {
        let mut now = sys::monotonic_ns();
        while now < until {
            let left = (until - now).min(SIDEBAND_POLL).div_ceil(1_000_000);
            if self.poll(signals, i32::try_from(left).unwrap_or(i32::MAX))? {
                return Ok(true);
            }
            now = sys::monotonic_ns();
            if now - self.sideband_polled < SIDEBAND_POLL {
                continue;
            }
            self.sideband_polled = now;
            let mut sides = self.rings.iter().filter(|ring| ring.is_sideband());
            if sides.any(|ring| ring.unread() > 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for whatever comes first. Whether something is to be done about it.
    fn poll(&mut self, signals: &Signals, timeout: i32) -> io::Result<bool> {
        let input = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // An event whose tasks are all gone would be ready for ever.
        let fd = |ring: &CpuRing| {
            ring.events.get(ring.polled).map_or(-1, |open_event| open_event.file.as_raw_fd())
        };
        let mut polled: Vec<_> = self.rings.iter().map(|ring| input(fd(ring))).collect();
        polled.push(input(signals.fd()));
        sys::poll(&mut polled, timeout)?;
        let mut is_due = polled.pop().is_some_and(|signals| signals.revents != 0);
        for (ring, polled) in self.rings.iter_mut().zip(&polled) {
            let has_ended = polled.revents & (libc::POLLHUP | libc::POLLERR) != 0;
            ring.polled += usize::from(has_ended);
            is_due |= has_ended || polled.revents != 0 && ring.needs_drain();
        }
        Ok(is_due)
    }

    /// How long the rings may be left alone after a round, ns, as fast as they fill.
    pub(crate) fn max_sleep(&self) -> u64 {
        let shortest = self.rings.iter().filter_map(CpuRing::max_sleep).min();
        shortest.map_or(u64::MAX, |time| time.max(1).saturating_mul(1_000_000))
    }

    /// Takes from the rings what may be taken in order; with `all`, everything. What is left.
    pub(crate) fn drain(&mut self, handler: &mut dyn RecordHandler, all: bool) -> Backlog {
        let now = sys::monotonic_ns();
        let limit = if all { u64::MAX } else { now.saturating_sub(SETTLING) };
        self.merge.restart();
        for (number, ring) in self.rings.iter_mut().enumerate() {
            ring.begin_drain(now);
            if let Some(time) = ring.next_timestamp(now, self.copier.as_ref(), handler) {
                self.merge.push(time, number);
            }
        }
        while let Some(number) = self.merge.pop(limit) {
            self.process_oldest_record(number, handler);
            let copier = self.copier.as_ref();
            if let Some(time) = self.rings[number].next_timestamp(now, copier, handler) {
                self.merge.push(time, number);
            }
        }
        for ring in &mut self.rings {
            ring.report_lost((now, self.counts_lost), self.copier.as_ref(), handler);
        }
        handler.end_batch();
        let mut left =
            self.rings.iter().filter(|ring| ring.records.ring.tail() < ring.records.head);
        // The side rings come first.
        match left.next() {
            None => Backlog::Nothing,
            Some(ring) if ring.is_sideband() => Backlog::Sideband,
            Some(_) => Backlog::Samples,
        }
    }

    /// Takes the oldest record of a ring, and gives its room back.
    fn process_oldest_record(&mut self, number: usize, handler: &mut dyn RecordHandler) {
        let ring = &mut self.rings[number];
        let (first, is_sideband) = (ring.events[0].event, ring.is_sideband());
        let Some((header, bytes)) = ring.records.front() else { return };
        let (size, id) = (header.size, record::event_id(header, bytes).unwrap_or(0));
        let unknown = EventBinding { event: first, ..EventBinding::default() };
        let binding = self.bindings.get(&id).copied().unwrap_or(unknown);
        let tid = record::task(header, bytes).unwrap_or(0);
        let first = |owner: u32| *self.lineage.entry(tid).or_insert(owner);
        let lineage = binding.task.map(first);
        let is_double = lineage != binding.task;
        let is_refused = header.is_sample() && !handler.accepts(tid);
        let is_wanted = !is_double && !is_refused;
        let pending = ring.chunks.as_ref().map(|chunks| &chunks.pending);
        let pending = pending.filter(|pending| !pending.is_empty());
        if is_refused && let Some(pending) = pending {
            handler.reject_stack_chunks(tid, pending.thread());
        }
        match record::read(binding.layout, bytes).filter(|_| is_wanted) {
            Some((sample_id, mut body)) => {
                match &mut body {
                    KernelRecord::Sample(sample) => {
                        if binding.uses_bpf_copier {
                            let key = SampleKey { tid, ip: sample.stack.ip };
                            let sp = sample.copied_stack().and_then(CopiedStack::stack_pointer);
                            let extra_stack =
                                pending.map(|pending| pending.extra_stack_for(key, sp));
                            sample.set_extra_stack(extra_stack.unwrap_or_default());
                        }
                    }
                    &mut KernelRecord::Lost(count) if !is_sideband => {
                        ring.lost.note(sample_id, count);
                        body = KernelRecord::Other;
                    }
                    KernelRecord::Fork(ids) => {
                        lineage.map(|owner| self.lineage.entry(ids.tid).or_insert(owner));
                    }
                    KernelRecord::Exit(ids) => drop(self.lineage.remove(&ids.tid)),
                    _ => {}
                }
                handler.handle_record(sample_id, &body, binding.event);
            }
            None if is_wanted => ring.report_damage(handler),
            None => {}
        }
        ring.chunks.iter_mut().for_each(|chunks| chunks.pending.clear());
        ring.records.ring.advance(size);
    }

    /// Tells the handler how far stacks are copied.
    pub(crate) fn enable_stack_copies(&self, handler: &mut dyn RecordHandler) {
        if let Some(copier) = &self.copier {
            handler.enable_stack_copies(copier.words.clone(), copier.max_copy_bytes);
        }
    }

    /// Says what was lost and no record told of, because none came after it.
    pub(crate) fn report_remaining_lost(&mut self, handler: &mut dyn RecordHandler) {
        for ring in self.rings.iter().filter(|_| self.counts_lost) {
            ring.report_remaining_lost(handler);
        }
    }
}
