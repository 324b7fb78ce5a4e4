//! The events of a recording and the rings they fill: from there, in order of time, kernel
//! records go to the converter.

mod open;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use nprof_format::{Cause, EventId};
use rustc_hash::FxHashMap;

use crate::convert::{self, Converter};
use crate::intern::Sink;
use crate::order::Order;
use crate::ring::{self, Header, Layout};
use crate::sys::{self, Ring, Signals};

pub(crate) use open::{Kernel, Whom};

/// An event, open on one CPU.
#[derive(Debug)]
struct Opened {
    file: File,
    /// Which it is; none for the one that tells of processes and mappings.
    event: EventId,
}

/// A ring of one CPU, with the events that fill it.
#[derive(Debug)]
struct Source {
    ring: Ring,
    /// The first one's ring it is, the others share it. Never empty.
    events: Vec<Opened>,
    cpu: u32,
    /// Up to where it may be read in this round.
    head: u64,
    /// A record that wraps around the end of the ring, put together.
    wrapped: Vec<u8>,
    /// How many lost records its own records told of.
    told: u64,
    /// Which of the events is asked whether there is something to read; past the last when all
    /// have hung up and will bring nothing any more.
    polled: usize,
}

impl Source {
    /// The oldest record; `None` when there is none in this round.
    fn front(&mut self) -> Option<(Header, &[u8])> {
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

    /// When the oldest record was made. Damage empties the ring, and counts as a lost record.
    fn front_time<S: Sink>(&mut self, converter: &mut Converter<S>) -> Option<u64> {
        if let Some((header, bytes)) = self.front() {
            return Some(ring::time(header, bytes).unwrap_or(0));
        }
        let damaged = self.head.saturating_sub(self.ring.tail());
        if damaged > 0 {
            self.give_up(converter);
            self.ring.advance(usize::try_from(damaged).unwrap_or(0));
        }
        None
    }

    /// A record cannot be read.
    fn give_up<S: Sink>(&self, converter: &mut Converter<S>) {
        let stamp = convert::stamp_at(sys::monotonic_ns(), Some(self.cpu));
        converter.lost(stamp, 1, self.events[0].event, Cause::Recorder);
    }
}

/// What was left in the rings for the next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    Samples,
    /// Records of processes and mappings: files that are mapped may not be there for long.
    Side,
}

/// What the id of a record says.
#[derive(Clone, Copy, Debug)]
struct Origin {
    event: EventId,
    /// The task it was opened for, where events are opened for tasks.
    task: Option<u32>,
    /// The fields of its samples.
    layout: Layout,
}

/// The events of a recording.
#[derive(Debug)]
pub(crate) struct Sources {
    sources: Vec<Source>,
    origins: FxHashMap<u64, Origin>,
    /// Whose events a task's records are taken of, where events are opened for tasks. A thread
    /// made while we attached may have inherited those of the one that made it, and have its own.
    lineage: FxHashMap<u32, u32>,
    order: Order,
    /// When the last round began, ns.
    last_round: u64,
    tells_lost: bool,
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

    /// Waits for a ring to fill, a signal, or `timeout` ms to be over.
    ///
    /// # Errors
    ///
    /// What poll(2) says.
    pub(crate) fn wait(&mut self, signals: &Signals, timeout: i32) -> io::Result<()> {
        let input = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // An event whose tasks are all gone would be ready for ever.
        let fd = |source: &Source| {
            source.events.get(source.polled).map_or(-1, |opened| opened.file.as_raw_fd())
        };
        let mut polled: Vec<_> = self.sources.iter().map(|source| input(fd(source))).collect();
        polled.push(input(signals.fd()));
        sys::poll(&mut polled, timeout)?;
        for (source, polled) in self.sources.iter_mut().zip(&polled) {
            source.polled += usize::from(polled.revents & (libc::POLLHUP | libc::POLLERR) != 0);
        }
        Ok(())
    }

    /// Takes from the rings what may be taken in order; with `all`, everything. What is left.
    pub(crate) fn round<S: Sink>(&mut self, converter: &mut Converter<S>, all: bool) -> Left {
        let now = sys::monotonic_ns();
        let limit = if all { u64::MAX } else { self.last_round };
        self.last_round = now;
        self.order.restart();
        for (number, source) in self.sources.iter_mut().enumerate() {
            source.head = source.ring.head();
            if let Some(time) = source.front_time(converter) {
                self.order.push(time, number);
            }
        }
        while let Some(number) = self.order.pop(limit) {
            self.take_front(number, converter);
            if let Some(time) = self.sources[number].front_time(converter) {
                self.order.push(time, number);
            }
        }
        converter.end_round();
        let mut left = self.sources.iter().filter(|source| source.ring.tail() < source.head);
        // The side rings come first.
        match left.next() {
            None => Left::Nothing,
            Some(source) if source.events[0].event.is_none() => Left::Side,
            Some(_) => Left::Samples,
        }
    }

    /// Takes the oldest record of a ring, and gives its room back.
    fn take_front<S: Sink>(&mut self, number: usize, converter: &mut Converter<S>) {
        let source = &mut self.sources[number];
        let first = source.events[0].event;
        let Some((header, bytes)) = source.front() else { return };
        let (size, id) = (header.size, ring::identifier(header, bytes).unwrap_or(0));
        let unknown = Origin { event: first, task: None, layout: Layout::default() };
        let origin = self.origins.get(&id).copied().unwrap_or(unknown);
        let tid = ring::task(header, bytes).unwrap_or(0);
        let first = |owner: u32| *self.lineage.entry(tid).or_insert(owner);
        let lineage = origin.task.map(first);
        let is_double = lineage != origin.task;
        let is_wanted = !is_double && (!header.is_sample() || converter.wants(tid));
        let mut told = 0;
        match ring::read(origin.layout, bytes).filter(|_| is_wanted) {
            Some((stamp, body)) => {
                match body {
                    ring::Body::Lost(count) => told = count,
                    ring::Body::Fork(kin) => {
                        lineage.map(|owner| self.lineage.entry(kin.tid).or_insert(owner));
                    }
                    ring::Body::Exit(kin) => drop(self.lineage.remove(&kin.tid)),
                    _ => {}
                }
                converter.take(stamp, &body, origin.event);
            }
            None if is_wanted => source.give_up(converter),
            None => {}
        }
        source.told += told;
        source.ring.advance(size);
    }

    /// Says what was lost and no record told of, because none came after it.
    pub(crate) fn report_losses<S: Sink>(&mut self, converter: &mut Converter<S>) {
        for source in self.sources.iter_mut().filter(|_| self.tells_lost) {
            let mut count = 0u64;
            for opened in &mut source.events {
                // PERF_FORMAT_LOST: the value, then the number of lost records.
                let mut values = [0; 16];
                if opened.file.read(&mut values).is_ok_and(|count| count == values.len()) {
                    let lost = values.last_chunk().map_or(0, |lost| u64::from_ne_bytes(*lost));
                    count = count.saturating_add(lost);
                }
            }
            // A record of what was lost speaks for all events of the ring.
            let count = count.saturating_sub(source.told);
            if count > 0 {
                let stamp = convert::stamp_at(sys::monotonic_ns(), Some(source.cpu));
                converter.lost(stamp, count, source.events[0].event, Cause::Ring);
            }
        }
    }
}
