//! A process that has loaded the library, and its ring.

use std::os::fd::{OwnedFd, RawFd};

use nprof_preload::protocol::{Content, Hello, Record};
use nprof_preload::{Connection, Losses, Ring};
use nprof_stream::{EventId, NO_CPU};

use crate::event::PreloadPeriod;
use crate::os::procfs;
use crate::perf::handler::RecordHandler;
use crate::perf::preloaded::{PreloadContent, PreloadRecord};
use crate::perf::record::{KernelRecord, SampleId};
use crate::session::preload::rate::{CALL_PERIODS, HEAP_PERIODS, Rate};
use crate::sys::{self, ProcessFd};

/// The longest time for which an incomplete record delays those of all sources: its thread waits for a CPU. A ring
/// of samples has room for more.
const HELD_NS: u64 = 100_000_000;

/// The time without a complete record after which a ring is searched for records of threads that are gone.
const STUCK_NS: u64 = 50_000_000;

/// The same for records of unknown threads, which ended between two instructions. Threads that wait for room give
/// up after ten seconds.
const STUCK_UNKNOWN_NS: u64 = 5_000_000_000;

/// A process that has loaded the library.
#[derive(Debug)]
pub(super) struct Process {
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
    /// True if it was reported that it has loaded a library that does not call the hooks.
    is_bound_deeply: bool,
    /// The reported number of its forked children that could not connect.
    unconnected_children: u64,
    heap_rate: Rate,
    call_rate: Rate,
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

impl Process {
    pub(super) fn new(connection: Connection, now_ns: u64) -> Self {
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
            is_bound_deeply: false,
            unconnected_children: 0,
            heap_rate: Rate::since(now_ns, HEAP_PERIODS),
            call_rate: Rate::since(now_ns, CALL_PERIODS),
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

    /// Returns for how long the next record has been incomplete. None if it is not.
    fn stuck_for_ns(&mut self, now_ns: u64) -> Option<u64> {
        if self.next != Next::Nothing || !self.ring.has_unread() {
            self.stuck_ns = 0;
            return None;
        }
        if self.stuck_ns == 0 {
            self.stuck_ns = now_ns;
        }
        Some(now_ns.saturating_sub(self.stuck_ns))
    }

    /// Skips records of threads that ended while they wrote them.
    fn skip_abandoned(&mut self, now_ns: u64) {
        if let Some(stuck_for_ns) = self.stuck_for_ns(now_ns).filter(|&it| it >= STUCK_NS) {
            let (pid, inner_pid) = (self.pid, self.inner_pid);
            let is_long = stuck_for_ns >= STUCK_UNKNOWN_NS;
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
    pub(super) fn drained(&self) -> u64 {
        self.ring.read_bytes().saturating_sub(self.read_before)
    }

    /// Reads the next record from the ring, unless one waits.
    pub(super) fn advance(&mut self, now_ns: u64) {
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
        while self.drained() <= self.ring.data_bytes() {
            match self.ring.next(&mut self.buffer) {
                Ok(Some(kind)) => {
                    let time_ns = Record::time_of(&self.buffer).unwrap_or(0);
                    // One that was written since the drain began stays for the next, with its own time: a mapping
                    // that came before it may not be read yet. The program may have written any time.
                    let latest_ns = if time_ns > now_ns { sys::monotonic_ns() } else { now_ns };
                    self.time_ns = self.time_ns.max(time_ns.min(latest_ns));
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

    /// Hands over the next record, unless the program wrote it before `begin_ns`.
    pub(super) fn hand_over(&mut self, handler: &mut dyn RecordHandler, begin_ns: u64) {
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
                    match &record.content {
                        Content::Allocated(it) => self.heap_rate.add(it.weight, it.period),
                        Content::Called(it) => self.call_rate.add(it.weight, it.weight),
                        // Of a subject with an adapted period, if that of the other is fixed.
                        Content::Repeated(it) => {
                            self.heap_rate.add(it.weight, it.weight / u64::from(it.count).max(1));
                        }
                        Content::CalledAgain(_) => self.call_rate.add(1, 1),
                        _ => {}
                    }
                    // Its period is adapted by the earlier ones, too.
                    if record.time_ns >= begin_ns {
                        handle(id(tid), PreloadContent::Written(record.content));
                    }
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

    /// Returns the time of the record to hand over next. None if there is none.
    pub(super) fn next_ns(&self) -> Option<u64> {
        (!matches!(self.next, Next::Nothing | Next::Gone)).then_some(self.time_ns)
    }

    /// True once its end was handed over.
    pub(super) fn is_gone(&self) -> bool {
        self.next == Next::Gone
    }

    /// True if it has started with an image that it executed, not by a fork.
    pub(super) fn has_executed(&self) -> bool {
        matches!(self.next, Next::Started(hello, _) if hello.parent_id == 0)
    }

    /// Returns its id.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Notes that another image has taken its place.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns the descriptor that reports its exit, as long as it lives.
    pub(super) fn exit_fd(&self) -> Option<RawFd> {
        self.exit.as_ref().filter(|_| !self.has_ended).map(ProcessFd::as_raw_fd)
    }

    /// Notes its exit. Called before the socket is read: a process that has ended has connected before.
    pub(super) fn note_exit(&mut self) {
        // The id of a process that has ended may be that of another one by now.
        self.has_ended = self.has_ended || self.has_exited();
    }

    /// Begins a drain of its ring.
    pub(super) fn begin_drain(&mut self, now_ns: u64) {
        self.read_before = self.ring.read_bytes();
        self.advance(now_ns);
        self.skip_abandoned(now_ns);
    }

    /// Returns the time of the last record if the next one is incomplete: those after it, which cannot be read, may
    /// be as old. None after some time.
    pub(super) fn held_ns(&mut self, now_ns: u64) -> Option<u64> {
        let is_held = self.stuck_for_ns(now_ns).is_some_and(|it| it < HELD_NS);
        is_held.then_some(self.time_ns)
    }

    /// Notes that the records of all sources were handed over up to a time. A record that has no place in the ring
    /// yet may have an earlier one, if its thread has lost its CPU.
    pub(super) fn note_settled(&mut self, settled_ns: u64) {
        if self.next == Next::Nothing && !self.ring.has_unread() {
            self.time_ns = self.time_ns.max(settled_ns);
        }
    }

    /// Ends a drain: wakes threads that wait for room, and adapts distances of samples to a number per second.
    pub(super) fn end_drain(
        &mut self,
        now_ns: u64,
        heap_period: PreloadPeriod,
        call_period: PreloadPeriod,
    ) {
        // Threads that wait need the room before the next distance.
        self.ring.release_room();
        let (heap_before, call_before) = (self.ring.heap_period(), self.ring.call_period());
        // A block takes two samples, since it is released, too; the rest is for bursts.
        let blocks = heap_period.samples_per_second().map(|samples| samples.div_ceil(4));
        let adapted = |per_second| self.heap_rate.adapted(now_ns, heap_before, per_second);
        if let Some(period) = blocks.and_then(adapted) {
            self.ring.set_heap_period(period);
        }
        let adapted = |per_second| self.call_rate.adapted(now_ns, call_before, per_second);
        if let Some(period) = call_period.samples_per_second().and_then(adapted) {
            self.ring.set_call_period(period);
        }
    }

    /// Reports what its events lack from now on: allocations of a library that does not call the hooks, and those of
    /// forked children that could not connect.
    pub(super) fn report_missed(&mut self, handler: &mut dyn RecordHandler) {
        let id = SampleId { pid: self.pid, tid: self.pid, time: self.time_ns, cpu: NO_CPU };
        let ring = self.ring.id();
        let mut report = |content| {
            let record = PreloadRecord { ring, content };
            handler.handle_record(id, &KernelRecord::Preloaded(record), EventId::NONE);
        };
        if !self.is_bound_deeply && self.ring.deep_bindings() > 0 {
            self.is_bound_deeply = true;
            report(PreloadContent::BoundDeeply);
        }
        // The program may have written any number: it must not overflow a sum.
        let unconnected = self.ring.unconnected_children().min(u64::from(u32::MAX));
        if unconnected > self.unconnected_children {
            report(PreloadContent::UnconnectedChildren(unconnected - self.unconnected_children));
            self.unconnected_children = unconnected;
        }
    }

    /// Returns the losses until now, and those until the call before.
    pub(super) fn losses(&mut self) -> (Losses, Losses) {
        let now = self.ring.losses();
        // The numbers of the ring are those since its start.
        (now, std::mem::replace(&mut self.reported, now))
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
        let (start, ring_bytes) = (DATA_OFFSET as u64, 1 << 20);
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
            is_bound_deeply: false,
            unconnected_children: 0,
            heap_rate: Rate::since(0, HEAP_PERIODS),
            call_rate: Rate::since(0, CALL_PERIODS),
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
        assert_eq!(process.ring.read_bytes(), process.ring.data_bytes());
    }
}
