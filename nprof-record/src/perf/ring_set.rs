//! The events of a recording and the rings they fill: from there, in order of time, kernel
//! records go to the handler.

use std::io;
use std::os::fd::AsRawFd;

use nprof_stream::EventId;
use rustc_hash::FxHashMap;

use crate::perf::bpf::stack_copier::Extender;
use crate::perf::handler::RecordHandler;
use crate::perf::record::{self, Body, Layout};
use crate::perf::stack_chunks::Owner;
use crate::perf::time_merge::Order;
use crate::sys::{self, Signals};

use crate::perf::ring_reader::Source;

/// What was left in the rings for the next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    Samples,
    /// Records of processes and mappings: files that are mapped may not be there for long.
    Side,
}

/// What the id of a record says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Origin {
    pub(super) event: EventId,
    /// The task it was opened for, where events are opened for tasks.
    pub(super) task: Option<u32>,
    /// The fields of its samples.
    pub(super) layout: Layout,
    /// Whether a program copies their stacks.
    pub(super) is_extended: bool,
}

/// How often it is looked whether there are records of processes and mappings, ns.
const SIDE_LOOK: u64 = 25_000_000;

/// How long it takes at most from a record's time stamp to its place in the ring, ns: a long
/// stack is copied in between.
const SETTLING: u64 = 2_000_000;

/// The events of a recording.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(super) sources: Vec<Source>,
    pub(super) origins: FxHashMap<u64, Origin>,
    /// Whose events a task's records are taken of, where events are opened for tasks. A thread
    /// made while we attached may have inherited those of the one that made it, and have its own.
    pub(super) lineage: FxHashMap<u32, u32>,
    pub(super) order: Order,
    /// What copies more of stacks than the kernel, where something does.
    pub(super) extender: Option<Extender>,
    pub(super) tells_lost: bool,
    /// When it was last looked whether there are records of processes and mappings, ns.
    pub(super) side_looked: u64,
}

impl Sources {
    /// Begins to tell of processes and mappings, and with `samples` to sample.
    ///
    /// # Errors
    ///
    /// What ioctl(2) says.
    pub(crate) fn enable(&self, samples: bool) -> io::Result<()> {
        let events = self.sources.iter().flat_map(|source| &source.events);
        for opened in events.filter(|opened| samples || opened.event.is_none()) {
            sys::enable(&opened.file)?;
        }
        Ok(())
    }

    /// Ends counting; what the rings hold stays.
    pub(crate) fn disable(&self) {
        for opened in self.sources.iter().flat_map(|source| &source.events) {
            let _ = sys::disable(&opened.file);
        }
    }

    /// How many records came late.
    pub(crate) fn late(&self) -> u64 {
        self.order.late()
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
            let left = (until - now).min(SIDE_LOOK).div_ceil(1_000_000);
            if self.poll(signals, i32::try_from(left).unwrap_or(i32::MAX))? {
                return Ok(true);
            }
            now = sys::monotonic_ns();
            if now - self.side_looked < SIDE_LOOK {
                continue;
            }
            self.side_looked = now;
            let mut sides = self.sources.iter().filter(|source| source.is_side());
            if sides.any(|source| source.unread() > 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for whatever comes first. Whether something is to be done about it.
    fn poll(&mut self, signals: &Signals, timeout: i32) -> io::Result<bool> {
        let input = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // An event whose tasks are all gone would be ready for ever.
        let fd = |source: &Source| {
            source.events.get(source.polled).map_or(-1, |opened| opened.file.as_raw_fd())
        };
        let mut polled: Vec<_> = self.sources.iter().map(|source| input(fd(source))).collect();
        polled.push(input(signals.fd()));
        sys::poll(&mut polled, timeout)?;
        let mut is_due = polled.pop().is_some_and(|signals| signals.revents != 0);
        for (source, polled) in self.sources.iter_mut().zip(&polled) {
            let has_ended = polled.revents & (libc::POLLHUP | libc::POLLERR) != 0;
            source.polled += usize::from(has_ended);
            is_due |= has_ended || polled.revents != 0 && source.is_full();
        }
        Ok(is_due)
    }

    /// How long the rings may be left alone after a round, ns, as fast as they fill.
    pub(crate) fn patience(&self) -> u64 {
        let shortest = self.sources.iter().filter_map(Source::patience).min();
        shortest.map_or(u64::MAX, |time| time.max(1).saturating_mul(1_000_000))
    }

    /// Takes from the rings what may be taken in order; with `all`, everything. What is left.
    pub(crate) fn round(&mut self, handler: &mut dyn RecordHandler, all: bool) -> Left {
        let now = sys::monotonic_ns();
        let limit = if all { u64::MAX } else { now.saturating_sub(SETTLING) };
        self.order.restart();
        for (number, source) in self.sources.iter_mut().enumerate() {
            source.begin_round(now);
            if let Some(time) = source.front_time(now, self.extender.as_ref(), handler) {
                self.order.push(time, number);
            }
        }
        while let Some(number) = self.order.pop(limit) {
            self.take_front(number, handler);
            let extender = self.extender.as_ref();
            if let Some(time) = self.sources[number].front_time(now, extender, handler) {
                self.order.push(time, number);
            }
        }
        for source in &mut self.sources {
            source.account((now, self.tells_lost), self.extender.as_ref(), handler);
        }
        handler.end_batch();
        let mut left =
            self.sources.iter().filter(|source| source.records.ring.tail() < source.records.head);
        // The side rings come first.
        match left.next() {
            None => Left::Nothing,
            Some(source) if source.is_side() => Left::Side,
            Some(_) => Left::Samples,
        }
    }

    /// Takes the oldest record of a ring, and gives its room back.
    fn take_front(&mut self, number: usize, handler: &mut dyn RecordHandler) {
        let source = &mut self.sources[number];
        let (first, is_side) = (source.events[0].event, source.is_side());
        let Some((header, bytes)) = source.records.front() else { return };
        let (size, id) = (header.size, record::identifier(header, bytes).unwrap_or(0));
        let unknown = Origin { event: first, ..Origin::default() };
        let origin = self.origins.get(&id).copied().unwrap_or(unknown);
        let tid = record::task(header, bytes).unwrap_or(0);
        let first = |owner: u32| *self.lineage.entry(tid).or_insert(owner);
        let lineage = origin.task.map(first);
        let is_double = lineage != origin.task;
        let is_refused = header.is_sample() && !handler.accepts(tid);
        let is_wanted = !is_double && !is_refused;
        let pending = source.parts.as_ref().map(|parts| &parts.pending);
        let pending = pending.filter(|pending| !pending.is_empty());
        if is_refused && let Some(pending) = pending {
            handler.reject_stack_chunks(tid, pending.thread());
        }
        match record::read(origin.layout, bytes).filter(|_| is_wanted) {
            Some((stamp, mut body)) => {
                match &mut body {
                    Body::Sample(sample) => {
                        let (owner, sp) = (Owner { tid, ip: sample.ip }, sample.stack_pointer());
                        let beyond = || pending.map(|pending| pending.beyond(owner, sp));
                        let beyond = || beyond().unwrap_or_default();
                        sample.extension = origin.is_extended.then(beyond);
                    }
                    &mut Body::Lost(count) if !is_side => {
                        source.losses.notice(stamp, count);
                        body = Body::Other;
                    }
                    Body::Fork(kin) => {
                        lineage.map(|owner| self.lineage.entry(kin.tid).or_insert(owner));
                    }
                    Body::Exit(kin) => drop(self.lineage.remove(&kin.tid)),
                    _ => {}
                }
                handler.handle_record(stamp, &body, origin.event);
            }
            None if is_wanted => source.give_up(handler),
            None => {}
        }
        source.parts.iter_mut().for_each(|parts| parts.pending.clear());
        source.records.ring.advance(size);
    }

    /// Tells the handler how far stacks are copied.
    pub(crate) fn introduce(&self, handler: &mut dyn RecordHandler) {
        if let Some(extender) = &self.extender {
            handler.enable_stack_copies(extender.words.clone(), extender.reach);
        }
    }

    /// Says what was lost and no record told of, because none came after it.
    pub(crate) fn report_losses(&mut self, handler: &mut dyn RecordHandler) {
        for source in self.sources.iter().filter(|_| self.tells_lost) {
            source.account_rest(handler);
        }
    }
}
