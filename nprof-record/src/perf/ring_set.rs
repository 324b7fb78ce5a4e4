//! The rings of a recording: reads the records of all rings in the order of their time.

use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use nprof_unwind::unwind::stack_input::CopiedStack;
use rustc_hash::FxHashMap;

use crate::perf::backlog::Backlog;
use crate::perf::bpf::stack_copier::BpfStackCopier;
use crate::perf::event_binding::EventBinding;
use crate::perf::event_counts::CountingTimes;
use crate::perf::handler::RecordHandler;
use crate::perf::record::{self, KernelRecord, RawData, SampleId};
use crate::perf::ring_reader::{CpuRing, OpenEvent};
use crate::perf::stack_chunks::{ChunkAssembler, SampleKey};
use crate::perf::time_merge::TimeMerge;
use crate::perf::timer_phases::TimerPhases;
use crate::perf::waits::tracer::WaitTracer;
use crate::sys;

/// Poll interval for sideband records (mmap, comm, fork, exit). Their rings wake us only when
/// [`crate::perf::open`]'s watermark is reached.
const SIDEBAND_POLL: Duration = Duration::from_millis(25);

/// The same after a second without such records of recorded tasks, to save wake-ups; as long as the
/// longest time between two drains. Other programs may start processes all the time.
const SIDEBAND_POLL_QUIET: Duration = Duration::from_millis(500);

/// The time without sideband records after which they are polled less.
const SIDEBAND_QUIET: Duration = Duration::from_secs(1);

/// Longest time from the time stamp of a record to its place in the ring: the kernel copies the
/// stack in between.
pub(super) const SETTLING: Duration = Duration::from_millis(2);

/// The rings of a recording, with the events that fill them.
#[derive(Debug)]
pub(crate) struct RingSet {
    pub(super) rings: Vec<CpuRing>,
    pub(super) bindings: FxHashMap<u64, EventBinding>,
    /// For per-task events: by thread, the task with the events that supply its records. A thread
    /// created while we attached may have inherited the events of its creator and have its own.
    pub(super) suppliers: FxHashMap<u32, u32>,
    pub(super) merge: TimeMerge,
    /// Copies more of stacks than the kernel does; `None` if the rights or the kernel forbid it.
    pub(super) copier: Option<BpfStackCopier>,
    /// The programs that measure waiting; `None` if no event needs them.
    pub(super) waits: Option<Rc<WaitTracer>>,
    /// True if events count their lost records themselves (PERF_FORMAT_LOST).
    pub(super) counts_lost: bool,
    pub(super) timer_phases: TimerPhases,
    /// Time of the last poll for sideband records.
    pub(super) sideband_polled_ns: u64,
    /// Time of the last drain with sideband records of recorded tasks.
    pub(super) sideband_drained_ns: u64,
    /// Time of the drain in progress.
    pub(super) drain_ns: u64,
}

impl RingSet {
    /// Enables the sideband events and, with `samples`, the sampling events.
    ///
    /// # Errors
    ///
    /// Those of ioctl(2).
    pub(crate) fn enable(&self, samples: bool) -> io::Result<()> {
        let begin = Instant::now();
        let mut start = Duration::ZERO;
        for ring in self.rings.iter().filter(|ring| samples || ring.is_sideband()) {
            if !ring.is_sideband() {
                thread::sleep(start.saturating_sub(begin.elapsed()));
                start += self.timer_phases.stagger;
            }
            for open_event in &ring.events {
                sys::enable(&open_event.file)?;
            }
        }
        Ok(())
    }

    /// Notes that the recorded tasks were started long ago: they need not have sideband records soon.
    pub(crate) fn expect_quiet(&mut self) {
        self.sideband_drained_ns = 0;
    }

    /// Disables the events of which the kernel takes the samples.
    pub(crate) fn stop_sampling(&self) {
        let sampled = self.rings.iter().filter(|ring| !ring.is_sideband());
        disable(sampled.flat_map(|ring| &ring.events).filter(|event| !event.is_output));
    }

    /// Disables all events. The rings keep their records.
    pub(crate) fn disable(&self) {
        disable(self.rings.iter().flat_map(|ring| &ring.events));
    }

    /// Returns the number of lost records of any kind that are known so far.
    pub(crate) fn lost_records(&self) -> u64 {
        self.rings.iter().map(CpuRing::known_lost).sum()
    }

    /// Appends the descriptors to poll, one for each ring.
    pub(crate) fn add_poll_fds(&self, fds: &mut Vec<libc::pollfd>) {
        for ring in &self.rings {
            // poll(2) ignores -1. An event without live tasks would be ready for ever.
            let fd = ring.events.get(ring.polled).map_or(-1, |event| event.file.as_raw_fd());
            fds.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        }
    }

    /// Takes the results for the descriptors of [`Self::add_poll_fds`]. Returns true if the rings
    /// must be drained now.
    pub(crate) fn handle_poll(&mut self, polled: &[libc::pollfd]) -> bool {
        let mut is_due = false;
        for (ring, polled) in self.rings.iter_mut().zip(polled) {
            // All tasks of this event have exited; the next event of the ring is polled.
            let has_ended = polled.revents & (libc::POLLHUP | libc::POLLERR) != 0;
            ring.polled += usize::from(has_ended);
            is_due |= has_ended || polled.revents != 0 && ring.needs_drain();
        }
        is_due
    }

    /// Returns the longest time between two calls of [`Self::is_due`].
    pub(crate) fn poll_interval(&self) -> Duration {
        if self.is_quiet() { SIDEBAND_POLL_QUIET } else { SIDEBAND_POLL }
    }

    /// True if recorded tasks have had no sideband records for a while.
    fn is_quiet(&self) -> bool {
        let quiet_ns = self.drain_ns.saturating_sub(self.sideband_drained_ns);
        quiet_ns > sys::duration_ns(SIDEBAND_QUIET)
    }

    /// True if sideband records wait that no poll(2) has reported.
    pub(crate) fn is_due(&mut self, now_ns: u64) -> bool {
        let poll_interval = sys::duration_ns(self.poll_interval());
        if now_ns.saturating_sub(self.sideband_polled_ns) < poll_interval {
            return false;
        }
        self.sideband_polled_ns = now_ns;
        let mut sideband = self.rings.iter().filter(|ring| ring.is_sideband());
        sideband.any(|ring| ring.unread() > 0)
    }

    /// Returns the longest time until the next drain, given how fast the rings fill.
    pub(crate) fn max_sleep(&self) -> Duration {
        let shortest = self.rings.iter().filter_map(CpuRing::max_sleep).min();
        // A millisecond at least, or a full ring would keep us busy.
        shortest.map_or(Duration::MAX, |sleep| sleep.max(Duration::from_millis(1)))
    }

    /// Starts a drain at the time `now_ns`: it reads the records that are in the rings by now.
    pub(crate) fn begin_drain(&mut self, now_ns: u64, handler: &mut dyn RecordHandler) {
        self.drain_ns = now_ns;
        self.merge.restart();
        for (number, ring) in self.rings.iter_mut().enumerate() {
            ring.begin_drain(now_ns);
            // The record that reports the loss only comes with the next record that fits.
            if ring.is_sideband() && ring.is_full() {
                handler.on_sideband_full();
            }
            if let Some(time) = ring.next_timestamp(now_ns, handler) {
                self.merge.push(time, number);
            }
        }
    }

    /// Returns the time up to which records are complete: an older record may still be on its way
    /// to a ring for some time.
    pub(crate) fn settled_ns(&self) -> u64 {
        self.drain_ns.saturating_sub(sys::duration_ns(SETTLING))
    }

    /// Returns the time of the oldest record. None if this drain has read all.
    pub(crate) fn next_timestamp(&self) -> Option<u64> {
        self.merge.next_timestamp()
    }

    /// Hands over the records up to the time `until_ns`.
    pub(crate) fn drain(&mut self, until_ns: u64, handler: &mut dyn RecordHandler) {
        while let Some(number) = self.merge.pop(until_ns) {
            self.process_oldest_record(number, handler);
            while let Some(time) = self.rings[number].next_timestamp(self.drain_ns, handler) {
                if !self.merge.continues(time, number, until_ns) {
                    self.merge.push(time, number);
                    break;
                }
                self.process_oldest_record(number, handler);
            }
        }
    }

    /// Ends a drain: reports lost records. Returns the records that stay in the rings.
    pub(crate) fn end_drain(&mut self, handler: &mut dyn RecordHandler) -> Backlog {
        for ring in &mut self.rings {
            if self.counts_lost {
                ring.count_lost_if_full(self.drain_ns, self.copier.as_ref());
            }
            ring.report_lost(self.drain_ns, self.counts_lost, self.copier.as_ref(), handler);
        }
        self.restart_timers();
        let is_quiet = self.is_quiet();
        let backlogs = self.rings.iter().map(|ring| ring.backlog(is_quiet));
        backlogs.max().unwrap_or(Backlog::Nothing)
    }

    /// Starts the timers of the next CPU again, if it is time.
    fn restart_timers(&mut self) {
        let Some(number) = self.timer_phases.due(self.drain_ns) else { return };
        let sampled: Vec<_> = self.rings.iter().filter(|ring| !ring.is_sideband()).collect();
        let ring = number.checked_rem(sampled.len()).and_then(|at| sampled.get(at));
        for (event, period) in ring.into_iter().flat_map(|ring| ring.timers()) {
            // It fails after its CPU went offline.
            let _ = sys::restart_period(event, period);
        }
    }

    /// Hands over the oldest record of a ring, and frees its space.
    fn process_oldest_record(&mut self, number: usize, handler: &mut dyn RecordHandler) {
        let ring = &mut self.rings[number];
        let (first, is_sideband) = (ring.events[0].event, ring.is_sideband());
        let Some((header, bytes, kept)) = ring.records.oldest_with_chunks() else { return };
        let (size, id) = (header.size, record::event_id(header, bytes).unwrap_or(0));
        let has_chunks = !kept.is_empty();
        let tid = record::task(header, bytes).unwrap_or(0);
        let (known, stray);
        let binding = match self.bindings.get(&id) {
            Some(binding) => {
                known = true;
                binding
            }
            None => {
                let supplier = self.suppliers.get(&tid).copied();
                let of_software = ring.strays.of(supplier).filter(|_| header.is_sample());
                known = of_software.is_some() || !header.is_sample();
                stray =
                    of_software.unwrap_or(EventBinding { event: first, ..EventBinding::default() });
                &stray
            }
        };
        // The first event that reports a thread supplies all of its records, so that a thread with
        // inherited and own events does not count twice.
        let supplier = binding.task.map(|task| *self.suppliers.entry(tid).or_insert(task));
        let is_duplicate = supplier != binding.task;
        // The last note on a thread may come after its exit record, and wakers may be interrupts. The
        // calls of a sample count even if its thread is not known yet.
        let is_of_any = matches!(binding.layout.raw, RawData::Note | RawData::Wake | RawData::Call);
        let is_accepted =
            (header.is_sample() || is_sideband) && (is_of_any || handler.accepts(tid));
        let is_filtered = header.is_sample() && !is_accepted;
        if is_sideband && is_accepted {
            self.sideband_drained_ns = self.drain_ns;
        }
        if header.is_sample() && !is_duplicate {
            ring.lost.kept.note(!is_filtered);
        }
        let is_wait = binding.layout.raw == RawData::Wait;
        let chunks = if is_wait { &ring.wait_chunks } else { &ring.chunks };
        let is_copied = binding.uses_bpf_copier || is_wait && chunks.is_some();
        let pending = chunks.as_ref().map(|chunks| &chunks.pending);
        let pending = pending.filter(|pending| !pending.is_empty());
        if is_filtered && binding.uses_bpf_copier {
            handler.reject_thread(tid, pending.map_or(0, ChunkAssembler::thread));
        }
        if !is_duplicate && !is_filtered {
            // Matched in place: a copy of the content takes as long as its decoding.
            match &mut record::read(&binding.layout, bytes) {
                _ if !known => ring.report_damage(handler),
                Some((sample_id, content)) => {
                    let sample_id = *sample_id;
                    match content {
                        KernelRecord::Sample(sample) if is_copied => {
                            let key = match is_wait {
                                true => SampleKey::of_wait(tid),
                                false => SampleKey { tid, ip: sample.stack.ip },
                            };
                            let sp = sample.copied_stack().and_then(CopiedStack::stack_pointer);
                            let extra_stack =
                                pending.map(|pending| pending.extra_stack_for(key, sp, kept));
                            sample.set_extra_stack(extra_stack.unwrap_or_default());
                        }
                        &mut KernelRecord::Lost(count) if is_sideband => {
                            ring.lost.note_sideband(count);
                        }
                        &mut KernelRecord::Lost(count) => {
                            // Samples or stack chunks; separated at the end of the drain.
                            ring.lost.note(sample_id, count);
                            *content = KernelRecord::Other;
                        }
                        KernelRecord::Fork(ids) => {
                            // Inherited events: the child's records come from its creator's.
                            supplier.map(|task| self.suppliers.entry(ids.tid).or_insert(task));
                        }
                        KernelRecord::Exit(ids) => drop(self.suppliers.remove(&ids.tid)),
                        _ => {}
                    }
                    handler.handle_record(sample_id, content, binding.event);
                }
                None => ring.report_damage(handler),
            }
        }
        // Chunks belong to the sample that follows them, and to no later one. A wait may be older than
        // that sample.
        if let Some(chunks) = &mut ring.chunks
            && !is_wait
        {
            chunks.pending.clear();
        }
        // Those of a wait may be interrupted by other samples. The kernel reports a lost sample before
        // the next record.
        if let Some(chunks) = &mut ring.wait_chunks
            && (is_wait || !header.is_sample())
        {
            chunks.pending.clear();
        }
        ring.records.remove_oldest(size);
        if has_chunks {
            ring.sample_size = size;
            ring.records.prefetch_chunk();
        } else {
            ring.records.prefetch_front(size);
        }
    }

    /// Announces to the handler that a BPF program copies stacks, if one does.
    pub(crate) fn enable_stack_copies(&self, handler: &mut dyn RecordHandler) {
        if let Some(copier) = &self.copier {
            handler.enable_stack_copies(copier.words.clone(), copier.max_copy_bytes);
        }
        let waits = self.waits.as_ref().and_then(|waits| waits.stack_copies.as_ref());
        if let Some(copies) = waits {
            handler.enable_wait_copies(copies.words.clone(), copies.max_copy_bytes);
        }
    }

    /// Reports losses that no record reported: because none followed them, or because the event had no
    /// counter.
    pub(crate) fn report_remaining_lost(&mut self, handler: &mut dyn RecordHandler) {
        let mut times = CountingTimes::default();
        for open_event in self.rings.iter().flat_map(|ring| &ring.events) {
            if let Some(time) = open_event.counting_time() {
                times.add(open_event.event, open_event.task, time);
            }
        }
        for (event, time) in times.multiplexed() {
            handler.on_multiplexed(SampleId::at(self.drain_ns, None), event, time);
        }
        for ring in self.rings.iter_mut().filter(|_| self.counts_lost) {
            ring.count_lost(self.copier.as_ref());
            ring.report_remaining_lost(handler);
        }
    }
}

fn disable<'a>(events: impl Iterator<Item = &'a OpenEvent>) {
    for open_event in events {
        // The event of an exited task cannot be disabled, and need not be.
        let _ = sys::disable(&open_event.file);
    }
}
