//! The events of a recording, open on every CPU, and the rings they fill: from there, in order of
//! time, kernel records go to the converter.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use anyhow::Context;
use nprof_format::Cause;
use perf_event_open_sys::bindings::perf_event_attr;

use crate::convert::{self, Converter};
use crate::intern::Sink;
use crate::order::Order;
use crate::ring::{self, Header, Layout};
use crate::session::{self, Perf, Plan, Reach};
use crate::sys::{self, Ring, Signals};

/// The bytes of a ring for processes and mappings: of all the system's.
const SIDE_RING: usize = 256 << 10;

/// The same, of the command's only, where locked memory is scarce.
const SIDE_RING_TASK: usize = 64 << 10;

/// How full a ring gets at most before we are woken, bytes.
const WATERMARK_MAX: usize = 1 << 20;

/// Opens events for real.
#[derive(Debug)]
pub(crate) struct Kernel;

impl Perf for Kernel {
    fn attempt(&self, attr: &perf_event_attr, reach: Reach, cpu: u32) -> Result<(), i32> {
        // To try it, our own process is as good as the command.
        let pid = if reach == Reach::System { -1 } else { 0 };
        let opened = sys::perf_event_open(attr, pid, cpu as i32);
        opened.map(drop).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
    }
}

/// A ring, with the event that fills it.
#[derive(Debug)]
struct Source {
    event: File,
    ring: Ring,
    layout: Layout,
    cpu: u32,
    /// Whether it tells of processes and mappings, not samples.
    side: bool,
    /// Up to where it may be read in this round.
    head: u64,
    /// A record that wraps around the end of the ring, put together.
    wrapped: Vec<u8>,
    /// How many lost records its own records told of.
    lost: u64,
    /// It will bring nothing any more.
    hung_up: bool,
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
        converter.lost(stamp, 1, self.side, Cause::Recorder);
    }
}

/// The events of a recording, on every CPU.
#[derive(Debug)]
pub(crate) struct Sources {
    sources: Vec<Source>,
    order: Order,
    /// When the last round began, ns.
    last_round: u64,
    reach: Reach,
    tells_lost: bool,
}

impl Sources {
    /// Opens the events of a plan on all CPUs, for the process `pid` if it is to be inherited,
    /// with rings as large as the budget of locked memory allows.
    ///
    /// # Errors
    ///
    /// What perf_event_open(2) or mmap(2) says, with what to do about it.
    pub(crate) fn open(plan: &Plan, cpus: &[u32], pid: i32) -> anyhow::Result<Self> {
        let page = sys::page_size();
        let least = plan.largest_record().next_power_of_two().max(page);
        let mut size = session::ring_size(plan.bytes_per_second(), cpus.len(), page).max(least);
        let sources = loop {
            match open_all(plan, cpus, pid, size)? {
                Ok(sources) => break sources,
                // All rings alike: a command runs on any CPU.
                Err(_) if size / 2 >= least => size /= 2,
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!(
                            "cannot lock {size} bytes of memory for each CPU's samples: raise \
                             kernel.perf_event_mlock_kb or the limit of locked memory (`ulimit -l`), \
                             or lower --stack-size"
                        )
                    });
                }
            }
        };
        anyhow::ensure!(!sources.is_empty(), "no CPU is on line");
        let (order, reach, tells_lost) = (Order::default(), plan.reach, plan.tells_lost());
        Ok(Self { sources, order, last_round: 0, reach, tells_lost })
    }

    /// Begins to count. Events that are inherited begin by themselves when the command executes.
    ///
    /// # Errors
    ///
    /// What ioctl(2) says.
    pub(crate) fn enable(&self) -> anyhow::Result<()> {
        for source in self.sources.iter().filter(|_| self.reach == Reach::System) {
            sys::enable(&source.event).context("cannot enable an event")?;
        }
        Ok(())
    }

    /// Ends counting; what the rings hold stays.
    pub(crate) fn disable(&self) {
        for source in &self.sources {
            let _ = sys::disable(&source.event);
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
        let mut polled = vec![input(signals.fd())];
        // An event whose tasks are all gone would be ready for ever.
        let fd = |source: &Source| if source.hung_up { -1 } else { source.event.as_raw_fd() };
        polled.extend(self.sources.iter().map(|source| input(fd(source))));
        sys::poll(&mut polled, timeout)?;
        for (source, polled) in self.sources.iter_mut().zip(&polled[1..]) {
            source.hung_up |= polled.revents & (libc::POLLHUP | libc::POLLERR) != 0;
        }
        Ok(())
    }

    /// Takes from the rings what may be taken in order; with `all`, everything. Whether
    /// something was left for the next round.
    pub(crate) fn round<S: Sink>(&mut self, converter: &mut Converter<S>, all: bool) -> bool {
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
            let source = &mut self.sources[number];
            take_front(source, converter);
            if let Some(time) = source.front_time(converter) {
                self.order.push(time, number);
            }
        }
        converter.end_round();
        self.sources.iter().any(|source| source.ring.tail() < source.head)
    }

    /// Says what was lost and no record told of, because none came after it.
    pub(crate) fn report_losses<S: Sink>(&mut self, converter: &mut Converter<S>) {
        for source in self.sources.iter_mut().filter(|_| self.tells_lost) {
            // PERF_FORMAT_LOST: the value, then the number of lost records.
            let mut values = [0; 16];
            if !source.event.read(&mut values).is_ok_and(|count| count == values.len()) {
                continue;
            }
            let total = values.last_chunk().map_or(0, |lost| u64::from_ne_bytes(*lost));
            let count = total.saturating_sub(source.lost);
            if count > 0 {
                let stamp = convert::stamp_at(sys::monotonic_ns(), Some(source.cpu));
                converter.lost(stamp, count, source.side, Cause::Ring);
            }
        }
    }
}

/// Takes the oldest record of a ring, and gives its room back.
fn take_front<S: Sink>(source: &mut Source, converter: &mut Converter<S>) {
    let (layout, side) = (source.layout, source.side);
    let Some((header, bytes)) = source.front() else { return };
    let size = header.size;
    let is_wanted =
        !header.is_sample() || ring::sampled_task(bytes).is_some_and(|tid| converter.wants(tid));
    let mut lost = 0;
    match ring::read(layout, bytes).filter(|_| is_wanted) {
        Some((stamp, body)) => {
            if let ring::Body::Lost(count) = body {
                lost = count;
            }
            converter.take(stamp, &body, side);
        }
        None if is_wanted => source.give_up(converter),
        None => {}
    }
    source.lost += lost;
    source.ring.advance(size);
}

/// Opens the events on all CPUs with rings of `size` bytes for samples. The inner error says that
/// there is too little memory to lock.
fn open_all(
    plan: &Plan,
    cpus: &[u32],
    pid: i32,
    size: usize,
) -> anyhow::Result<io::Result<Vec<Source>>> {
    let side_size =
        if plan.reach == Reach::System { SIDE_RING } else { SIDE_RING_TASK }.max(sys::page_size());
    let mut sources = Vec::new();
    for (size, side) in [(side_size, true), (size, false)] {
        let watermark = (size / 4).min(WATERMARK_MAX) as u32;
        let attr = if side { plan.side_attr(watermark) } else { plan.sample_attr(watermark) };
        let layout = if side { Layout::default() } else { plan.layout() };
        for &cpu in cpus {
            let Some(event) = open_event(&attr, plan.reach, pid, cpu)? else { continue };
            let ring = match Ring::map(&event, size) {
                Ok(ring) => ring,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) => {
                    return Ok(Err(error));
                }
                Err(error) => return Err(error).context("cannot map a ring"),
            };
            let (wrapped, head, lost) = (Vec::new(), 0, 0);
            sources.push(Source {
                event,
                ring,
                layout,
                cpu,
                side,
                head,
                wrapped,
                lost,
                hung_up: false,
            });
        }
    }
    Ok(Ok(sources))
}

/// Opens an event on a CPU; `None` when the CPU has gone off line.
fn open_event(
    attr: &perf_event_attr,
    reach: Reach,
    pid: i32,
    cpu: u32,
) -> anyhow::Result<Option<File>> {
    let pid = if reach == Reach::System { -1 } else { pid };
    match sys::perf_event_open(attr, pid, cpu as i32) {
        Ok(event) => Ok(Some(event)),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => Err(error).context(
            "cannot open an event on every CPU: raise the limit of open files (`ulimit -n`)",
        ),
        Err(error) => Err(error).with_context(|| format!("cannot open an event on CPU {cpu}")),
    }
}
