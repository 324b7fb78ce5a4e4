//! The rings of the processes that have loaded the library.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use nprof_preload::protocol::{Content, Hello, Record};
use nprof_preload::{Connection, Listener, Losses, Ring};
use nprof_stream::{Cause, EventId, NO_CPU};

use crate::event::{HeapPeriod, PreloadPlan, PreloadedEvent};
use crate::os::procfs;
use crate::perf::backlog::Backlog;
use crate::perf::handler::RecordHandler;
use crate::perf::lost::LostSamples;
use crate::perf::preloaded::{PreloadContent, PreloadRecord};
use crate::perf::record::{KernelRecord, SampleId};
use crate::perf::time_merge::TimeMerge;
use crate::session::event_source::EventSource;
use crate::sys::{self, ProcessFd};

/// Longest time from the time stamp of a record to its place in the ring: the library copies the stack in
/// between.
const SETTLING: Duration = Duration::from_millis(2);

/// Bytes of the data of a ring.
pub(crate) const RING_BYTES: u32 = 1 << 20;

/// Shortest and longest time between two drains.
const SLEEP: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// The distance of heap samples with which a process starts if it is adapted.
pub(crate) const FIRST_PERIOD: u64 = 64 << 10;

/// The most connections that one drain accepts.
const ACCEPTED_MAX: usize = 4096;

/// The most malformed connections that one drain refuses.
const REFUSED_MAX: usize = 16;

/// The smallest distance to which it is adapted.
const PERIOD_MIN: u64 = 4 << 10;

/// The largest distance to which it is adapted.
const PERIOD_MAX: u64 = 1 << 40;

/// The time without a complete record after which a ring is searched for records of threads that are gone.
const STUCK_NS: u64 = 50_000_000;

/// The same for records of unknown threads, which ended between two instructions. Threads that wait for room give
/// up after ten seconds.
const STUCK_UNKNOWN_NS: u64 = 5_000_000_000;

/// The time over which the rate of samples is measured, and the shortest one if there are too many.
const RATE_WINDOW_NS: u64 = 100_000_000;
const RATE_WINDOW_MIN_NS: u64 = 5_000_000;

/// The largest factor by which the distance of samples grows at a time.
const GROWTH_MAX: u64 = 16;

/// The sources of records that the library writes: a socket for new processes, and their rings.
#[derive(Debug)]
pub(crate) struct PreloadSource {
    listener: Listener,
    plan: PreloadPlan,
    processes: Vec<Process>,
    merge: TimeMerge,
    drain_ns: u64,
    /// Bytes of records that the fullest ring had in the last drain.
    fullest: u64,
    /// The time until the next drain that follows from it.
    sleep: Duration,
    lost: u64,
}

/// A process that has loaded the library.
#[derive(Debug)]
struct Process {
    pid: u32,
    /// Its id in its own namespace.
    inner_pid: u32,
    ring: Ring,
    /// Its connection, until its start was handed over: the process may wait for the end of it.
    socket: Option<OwnedFd>,
    /// Its exit; `None` if no descriptor of it could be opened: it had exited by then, the recorder has too many, or
    /// the kernel is older than Linux 5.3.
    exit: Option<ProcessFd>,
    /// True once it has exited or has executed another image.
    has_ended: bool,
    next: Next,
    /// The content of the next record.
    buffer: Vec<u8>,
    /// The time of the next record, not before that of the one before.
    time_ns: u64,
    reported: Losses,
    rate: Rate,
    /// Bytes of the ring that were read before this drain.
    read_before: u64,
    /// The time since which the next record is incomplete; 0 if it is not.
    stuck_ns: u64,
}

/// The next record of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Its start; then that of the ring, of this kind, if there is one.
    Started(Hello, Option<u32>),
    /// One of the ring, of this kind.
    Written(u32),
    /// None until now.
    Nothing,
    Ended,
    /// Its end was handed over.
    Gone,
}

/// The rate of the heap samples of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    since_ns: u64,
    samples: u64,
    /// Consecutive windows with few samples.
    quiet: u32,
}

impl Rate {
    /// Returns the distance of samples after `now_ns`, given the one before. None if it stays.
    fn adapted(&mut self, now_ns: u64, period: u64, samples_per_second: u64) -> Option<u64> {
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        let wanted_in = |time_ns: u64| {
            let wanted = u128::from(samples_per_second) * u128::from(time_ns) / 1_000_000_000;
            u64::try_from(wanted).unwrap_or(u64::MAX).max(1)
        };
        let samples = self.samples;
        // More than a window allows: threads that allocate gigabytes per second would wait for room in their ring
        // until its end.
        let is_burst = samples > 2 * wanted_in(RATE_WINDOW_NS);
        if elapsed_ns < RATE_WINDOW_NS && !is_burst {
            return None;
        }
        let wanted = wanted_in(elapsed_ns.max(RATE_WINDOW_MIN_NS));
        (self.samples, self.since_ns) = (0, now_ns);
        if samples > 2 * wanted {
            self.quiet = 0;
            let factor = (samples / wanted).next_power_of_two().min(GROWTH_MAX);
            return Some(period.saturating_mul(factor).min(PERIOD_MAX));
        }
        self.quiet = if samples < wanted / 4 { self.quiet + 1 } else { 0 };
        // A short pause does not mean that the next phase allocates less.
        if self.quiet < 10 || period <= PERIOD_MIN {
            return None;
        }
        self.quiet = 0;
        Some((period / 2).max(PERIOD_MIN))
    }
}

impl Process {
    fn new(connection: Connection, now_ns: u64) -> Self {
        let Connection { pid, hello, ring, socket } = connection;
        let pid = pid as u32;
        // The program may have written any time.
        let started_ns = hello.started_at_ns.min(sys::monotonic_ns());
        Self {
            pid,
            inner_pid: hello.pid,
            socket: Some(socket),
            exit: ProcessFd::open(pid).ok(),
            ring,
            has_ended: false,
            next: Next::Started(hello, None),
            buffer: Vec::new(),
            time_ns: started_ns,
            reported: Losses::default(),
            rate: Rate { since_ns: now_ns, ..Rate::default() },
            read_before: 0,
            stuck_ns: 0,
        }
    }

    /// True if it has exited.
    fn has_exited(&self) -> bool {
        match &self.exit {
            Some(exit) => exit.has_exited(),
            // The first thread may have ended before the others.
            None => {
                !procfs::may_run(self.pid, self.pid) && procfs::living_thread(self.pid).is_none()
            }
        }
    }

    /// Skips records of threads that ended while they wrote them.
    fn skip_abandoned(&mut self, now_ns: u64) {
        if self.next != Next::Nothing || !self.ring.has_unread() {
            self.stuck_ns = 0;
        } else if self.stuck_ns == 0 {
            self.stuck_ns = now_ns;
        } else if now_ns.saturating_sub(self.stuck_ns) >= STUCK_NS {
            let (pid, inner_pid) = (self.pid, self.inner_pid);
            let is_long = now_ns.saturating_sub(self.stuck_ns) >= STUCK_UNKNOWN_NS;
            // A stopped thread goes on where it was.
            let may_go_on =
                || !is_long || procfs::state_letter(pid).is_some_and(|it| b"Tt".contains(&it));
            let lives = |tid: Option<u32>| match tid {
                // The ids of threads of another namespace are unknown.
                Some(tid) if pid == inner_pid => procfs::may_run(pid, tid),
                _ => may_go_on(),
            };
            if self.ring.skip_abandoned(lives) {
                self.stuck_ns = 0;
                self.advance(now_ns);
            }
        }
    }

    /// Returns the bytes of the ring that were read in this drain.
    fn drained(&self) -> u64 {
        self.ring.read_bytes().saturating_sub(self.read_before)
    }

    /// Reads the next record from the ring, unless one waits.
    fn advance(&mut self, now_ns: u64) {
        match &mut self.next {
            Next::Nothing => {}
            // The first record may be older than the time at which its process was noticed.
            Next::Started(_, first @ None) => {
                if let Ok(Some(kind)) = self.ring.next(&mut self.buffer) {
                    *first = Some(kind);
                }
                let record = first.and_then(|kind| Record::parse(kind, &self.buffer));
                self.time_ns =
                    record.map_or(self.time_ns, |record| record.time_ns.min(self.time_ns));
                return;
            }
            _ => return,
        }
        // All that was in the ring at the beginning is read. A drain ends even if the program writes as fast as its
        // records are read.
        while self.drained() <= u64::from(RING_BYTES) {
            match self.ring.next(&mut self.buffer) {
                Ok(Some(kind)) => {
                    let time_ns =
                        Record::parse(kind, &self.buffer).map_or(0, |record| record.time_ns);
                    self.time_ns = self.time_ns.max(time_ns.min(now_ns));
                    self.next = Next::Written(kind);
                }
                // No thread completes its record any more. A program may have left 65,536 of them.
                Ok(None) if self.has_ended && self.ring.skip_abandoned(|_| false) => continue,
                Ok(None) if self.has_ended => {
                    self.time_ns = self.time_ns.max(now_ns);
                    self.next = Next::Ended;
                }
                Ok(None) => {}
                // The program has overwritten the ring.
                Err(_) => {
                    self.has_ended = true;
                    self.next = Next::Ended;
                }
            }
            return;
        }
    }

    /// Hands over the next record.
    fn hand_over(&mut self, handler: &mut dyn RecordHandler) {
        let id = |tid| SampleId { pid: self.pid, tid, time: self.time_ns, cpu: NO_CPU };
        let mut handle = |id: SampleId, content| {
            let record = PreloadRecord { ring: self.ring.id(), content };
            handler.handle_record(id, &KernelRecord::Preloaded(record), EventId::NONE);
        };
        match self.next {
            Next::Started(hello, first) => {
                handle(id(self.pid), PreloadContent::Started(hello, self.ring.memos()));
                self.socket = None;
                self.next = first.map_or(Next::Nothing, Next::Written);
                if let Some(record) = first.and_then(|kind| Record::parse(kind, &self.buffer)) {
                    self.time_ns = self.time_ns.max(record.time_ns.min(sys::monotonic_ns()));
                }
            }
            Next::Written(kind) => {
                if let Some(record) = Record::parse(kind, &self.buffer) {
                    // Another namespace numbers the threads otherwise.
                    let tid = if self.inner_pid == self.pid { record.tid } else { self.pid };
                    let is_heap = matches!(
                        record.content,
                        Content::Allocated(_) | Content::Freed(_) | Content::Kept(_)
                    );
                    self.rate.samples += u64::from(is_heap);
                    handle(id(tid), PreloadContent::Written(record.content));
                }
                self.next = Next::Nothing;
            }
            Next::Ended => {
                handle(id(self.pid), PreloadContent::Ended);
                self.next = Next::Gone;
            }
            Next::Nothing | Next::Gone => {}
        }
    }

    /// True if it has a record to hand over.
    fn is_ready(&self) -> bool {
        !matches!(self.next, Next::Nothing | Next::Gone)
    }
}

impl PreloadSource {
    /// Creates the source of the processes that connect to a socket.
    pub(crate) fn new(listener: Listener, plan: PreloadPlan) -> Self {
        Self {
            listener,
            plan,
            processes: Vec::new(),
            merge: TimeMerge::default(),
            drain_ns: 0,
            fullest: 0,
            sleep: SLEEP.0,
            lost: 0,
        }
    }

    /// Takes the processes that have connected.
    fn accept(&mut self) {
        // The listener goes on after an error, which is that of one process. Too many descriptors
        // are an error for all: they wait for the next drain.
        let mut errors = 0;
        for _ in 0..ACCEPTED_MAX {
            match self.listener.accept() {
                // The library makes rings of this size: others would take more memory.
                Ok(Some(connection)) if connection.ring.data_bytes() != u64::from(RING_BYTES) => {}
                Ok(Some(connection)) => {
                    let process = Process::new(connection, self.drain_ns);
                    // An image that was executed ends the one before.
                    let Next::Started(hello, _) = process.next else { continue };
                    if hello.parent_id == 0 {
                        let same = self.processes.iter_mut().filter(|it| it.pid == process.pid);
                        same.for_each(|before| before.has_ended = true);
                    }
                    self.processes.push(process);
                }
                Ok(None) => return,
                Err(_) if errors == REFUSED_MAX => return,
                Err(_) => errors += 1,
            }
        }
    }

    fn report_lost(&mut self, handler: &mut dyn RecordHandler) {
        let id = SampleId::at(self.drain_ns, None);
        for process in &mut self.processes {
            let now = process.ring.losses();
            let before = std::mem::replace(&mut process.reported, now);
            let events = [
                (PreloadedEvent::HeapAlloc, now.allocations, before.allocations),
                (PreloadedEvent::HeapFree, now.frees, before.frees),
                (PreloadedEvent::FdOpen, now.others, before.others),
            ];
            for (event, now, before) in events {
                // The program may have written any number: the sums must not overflow.
                let lost = now.saturating_sub(before).min(u64::from(u32::MAX));
                if lost > 0 {
                    let event = self.plan.id(event).unwrap_or(EventId::NONE);
                    self.lost += lost;
                    handler.on_lost(id, LostSamples::own(lost), event, Cause::Ring);
                }
            }
        }
    }

    /// Sets the time until the next drain: half of that in which the fullest ring fills.
    fn set_sleep(&mut self, elapsed: Duration) {
        let room = u64::from(RING_BYTES) / 2;
        let drains = room / self.fullest.max(1);
        let (shortest, longest) = SLEEP;
        let factor = u32::try_from(drains).unwrap_or(u32::MAX);
        // New processes allocate most: the time grows by a factor of two at most.
        let most = (self.sleep * 2).min(longest);
        self.sleep = elapsed.saturating_mul(factor).clamp(shortest, most);
    }
}

impl EventSource for PreloadSource {
    fn enable(&self) -> io::Result<()> {
        Ok(())
    }

    fn disable(&self) {}

    fn add_poll_fds(&self, fds: &mut Vec<libc::pollfd>) {
        let polled = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        fds.push(polled(self.listener.as_fd().as_raw_fd()));
        let live = self.processes.iter().filter(|process| !process.has_ended);
        fds.extend(live.filter_map(|it| it.exit.as_ref()).map(|exit| polled(exit.as_raw_fd())));
    }

    fn handle_poll(&mut self, polled: &[libc::pollfd]) -> bool {
        polled.iter().any(|polled| polled.revents != 0)
    }

    fn poll_interval(&self) -> Duration {
        SLEEP.1
    }

    fn is_due(&mut self, _now_ns: u64) -> bool {
        false
    }

    fn max_sleep(&self) -> Duration {
        self.sleep
    }

    fn begin_drain(&mut self, now_ns: u64, _handler: &mut dyn RecordHandler) {
        let elapsed_ns = now_ns.saturating_sub(self.drain_ns);
        self.drain_ns = now_ns;
        self.set_sleep(Duration::from_nanos(elapsed_ns));
        // Before the socket is read: a process that has ended has connected before.
        for process in self.processes.iter_mut().filter(|process| !process.has_ended) {
            process.has_ended = process.has_exited();
        }
        self.accept();
        self.merge.restart();
        for (number, process) in self.processes.iter_mut().enumerate() {
            process.read_before = process.ring.read_bytes();
            process.advance(now_ns);
            process.skip_abandoned(now_ns);
            if process.is_ready() {
                self.merge.push(process.time_ns, number);
            }
        }
    }

    fn settled_ns(&self) -> u64 {
        self.drain_ns.saturating_sub(sys::duration_ns(SETTLING))
    }

    fn next_timestamp(&self) -> Option<u64> {
        self.merge.next_timestamp()
    }

    fn drain(&mut self, until_ns: u64, handler: &mut dyn RecordHandler) {
        while let Some(number) = self.merge.pop(until_ns) {
            let Some(process) = self.processes.get_mut(number) else { continue };
            process.hand_over(handler);
            process.advance(self.drain_ns);
            if process.is_ready() {
                self.merge.push(process.time_ns, number);
            }
        }
    }

    fn end_drain(&mut self, handler: &mut dyn RecordHandler) -> Backlog {
        self.report_lost(handler);
        self.fullest = self.processes.iter().map(Process::drained).max().unwrap_or(0);
        self.processes.retain(|process| process.next != Next::Gone);
        for process in &mut self.processes {
            process.ring.wake();
            if let HeapPeriod::Adaptive(samples_per_second) = self.plan.heap_period {
                let period = process.ring.heap_period();
                let adapted = process.rate.adapted(self.drain_ns, period, samples_per_second);
                if let Some(adapted) = adapted {
                    process.ring.set_heap_period(adapted);
                }
            }
        }
        let is_waiting = self.processes.iter().any(Process::is_ready);
        if is_waiting { Backlog::Samples } else { Backlog::Nothing }
    }

    fn report_remaining_lost(&mut self, handler: &mut dyn RecordHandler) {
        self.report_lost(handler);
    }

    fn late(&self) -> u64 {
        self.merge.late()
    }

    fn lost_records(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::mem::offset_of;
    use std::os::unix::fs::FileExt;

    use nprof_preload::protocol::{
        ALIGNMENT, DATA_OFFSET, MAGIC, RecordHeader, RingHeader, VERSION,
    };
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::*;

    /// Returns a process that has ended and has left a ring full of records without content, all announced and none
    /// complete.
    fn ended_with_announced_records() -> Process {
        const KEY: u64 = 1 << 40;
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        let file = File::from(memfd_create("ring", flags).expect("a file"));
        let (start, ring_bytes) = (DATA_OFFSET as u64, u64::from(RING_BYTES));
        file.set_len(start + ring_bytes).expect("a size");
        let write = |offset: u64, words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            file.write_all_at(&bytes, offset).expect("written");
        };
        write(0, &[MAGIC, u64::from(VERSION), ring_bytes, KEY, 7]);
        write(offset_of!(RingHeader, head) as u64, &[ring_bytes]);
        let size_and_writer = ALIGNMENT | u64::from(RecordHeader::WRITER | 99) << 32;
        let positions = (0..ring_bytes).step_by(ALIGNMENT as usize);
        let records: Vec<_> = positions.flat_map(|at| [!(KEY + at), size_and_writer]).collect();
        write(start, &records);
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL).expect("sealed");
        Process {
            pid: 1,
            inner_pid: 1,
            ring: Ring::map(&OwnedFd::from(file)).expect("a ring"),
            socket: None,
            exit: None,
            has_ended: true,
            next: Next::Nothing,
            buffer: Vec::new(),
            time_ns: 0,
            reported: Losses::default(),
            rate: Rate::default(),
            read_before: 0,
            stuck_ns: 0,
        }
    }

    #[test]
    fn process_without_a_descriptor_lives_as_long_as_proc_shows_it() {
        let no_process = 1 << 30;
        for (pid, has_exited) in [(std::process::id(), false), (no_process, true)] {
            let process = Process { pid, ..ended_with_announced_records() };
            assert_eq!(process.has_exited(), has_exited, "{pid}");
        }
    }

    #[test]
    fn ring_full_of_abandoned_records_is_skipped_to_its_end() {
        let mut process = ended_with_announced_records();
        process.advance(5);
        assert_eq!(process.next, Next::Ended);
        assert_eq!(process.ring.read_bytes(), u64::from(RING_BYTES));
    }

    #[test]
    fn distance_grows_at_once_and_shrinks_after_a_second() {
        let mut rate = Rate { samples: 200, ..Rate::default() };
        assert_eq!(rate.adapted(RATE_WINDOW_NS / 2, 4096, 1000), None, "the window is not over");
        rate.samples = 900;
        let growth = rate.adapted(RATE_WINDOW_NS / 2, 4096, 1000);
        assert_eq!(growth, Some(4096 * 16), "18 times too many, and more than in a window");
        rate = Rate { samples: 900, ..Rate::default() };
        assert_eq!(rate.adapted(RATE_WINDOW_NS, 4096, 1000), Some(4096 * 16), "9 times too many");
        assert_eq!(rate.adapted(RATE_WINDOW_NS, 4096, 1000), None, "it begins again");
        for window in 2..11 {
            assert_eq!(rate.adapted(window * RATE_WINDOW_NS, 65536, 1000), None, "{window}");
        }
        assert_eq!(rate.adapted(11 * RATE_WINDOW_NS, 65536, 1000), Some(32768));
        for window in 12..40 {
            assert_eq!(rate.adapted(window * RATE_WINDOW_NS, PERIOD_MIN, 1000), None, "{window}");
        }
    }
}
