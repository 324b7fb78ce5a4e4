//! The switches of threads, by PERF_RECORD_SWITCH, and looks at those that are blocked.
//!
//! Every kernel since Linux 4.3 writes these records, and users may have them of their own tasks
//! whatever kernel.perf_event_paranoid is, up to 2. The rings are read at ticks, at random distances:
//! each thread that is blocked then is peeked at, once in each wait. Switches, ticks and peeks are
//! handed over in the order of time: a wait that a tick falls into was chosen with a known probability,
//! see [`crate::convert::switches`].

use std::cell::RefCell;
use std::fs::File;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use nprof_stream::{Cause, EventId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::os::{machine, open_error, procfs};
use crate::perf::backlog::Backlog;
use crate::perf::handler::RecordHandler;
use crate::perf::lost::LostSamples;
use crate::perf::open::OpenTarget;
use crate::perf::plan::{CommonAttr, OpenMode};
use crate::perf::record::{self, KernelRecord, SampleId, SampleLayout, Switch, Tick};
use crate::perf::ring_cursor::RingCursor;
use crate::perf::ring_set::SETTLING;
use crate::perf::switches::peek;
use crate::perf::waits::data::{Peek, WaitState};
use crate::sys::{self, EventTarget, Ring};

/// Bytes of a ring: 6,500 switches. A CPU that switches 100,000 times a second fills it in 65 ms.
pub(crate) const RING_BYTES: usize = 512 << 10;

/// The least bytes of a ring, where little memory can be locked.
pub(crate) const RING_BYTES_MIN: usize = 32 << 10;

/// The most threads that are peeked at in one tick: at 15 us each, this takes 3 ms.
const PEEKS_MAX: usize = 200;

/// The stacks that wait for a drain, in bytes, from which no thread is peeked at.
const STACKS_MAX_BYTES: usize = 16 << 20;

/// The mean time to the next tick is at least this multiple of the CPU time that ticks take.
const COST_TIMES: u64 = 20;

/// The most by which the time between ticks grows while no thread blocks: it doubles each time. The
/// ticks of idle programs then cost a quarter.
const QUIET_TIMES_MAX: u64 = 4;

/// The multiple of the requested time between two ticks from which on they are rare: twice the one of an idle
/// program.
const RARE_TIMES: u64 = 2 * QUIET_TIMES_MAX;

/// The ticks of which the mean cost bounds the time to the next one, so that a single slow one does not.
const COST_TICKS: u64 = 4;

/// The longest mean time between two ticks.
const GAP_MAX_NS: u64 = 1_000_000_000;

/// The shortest mean distance of the ticks.
const GAP_MIN_NS: u64 = 1_000_000;

/// Passes over /proc/PID/task, see [`crate::perf::open`].
const THREAD_SCANS: usize = 4;

/// Drains after which the threads that have exited are forgotten.
const DRAINS_TO_FORGET: u32 = 64;

/// A tracer that the main loop and its sources share.
pub(crate) type SharedTracer = Rc<RefCell<SwitchTracer>>;

/// The task that an event was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EventTask {
    tid: u32,
    pid: u32,
}

impl EventTask {
    /// True if a record of the first thread of its process shows that another one, by which the event was
    /// opened or inherited, has executed an image: it has the id of the first thread since then
    /// (de_thread() in fs/exec.c), and no thread creates the first one of its process.
    fn has_executed(self, id: SampleId) -> bool {
        id.tid == self.pid && id.pid == self.pid && self.tid != self.pid
    }
}

/// A record until it is handed over.
#[derive(Debug)]
struct Queued {
    id: SampleId,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Switch(Switch),
    Tick(Tick),
    Existing(WaitState),
    Peek(Box<Peek>),
}

/// The context switches of a target.
#[derive(Debug)]
pub(crate) struct SwitchTracer {
    rings: Vec<RingCursor>,
    /// The most bytes of each.
    ring_bytes: usize,
    events: Vec<File>,
    /// The task of each event that was opened for one, by the event's id.
    tasks: FxHashMap<u64, EventTask>,
    /// By thread, the task with the events that supply its records: a thread created while they were
    /// opened may have inherited those of its creator, and have its own.
    suppliers: FxHashMap<u32, u32>,
    /// The event of which lost records are reported.
    event: EventId,
    /// The mean time between two ticks.
    gap_ns: u64,
    /// The threads that existed at the start, and have no record yet.
    existing: FxHashSet<u32>,
    /// The CPU times of those that could run at the start, in ns: one may wait for a CPU all the time.
    could_run: FxHashMap<u32, u64>,
    begin_ns: u64,
    /// The recorded threads; `None` if all threads with records are.
    followed: Option<FxHashSet<u32>>,
    /// Blocked threads that were not peeked at in this wait, with the start of the wait.
    blocked: FxHashMap<u32, u64>,
    next_tick_ns: u64,
    /// The latest time for which it could have been chosen.
    latest_tick_ns: u64,
    /// The number of ticks, and the time to the last one.
    ticks: u64,
    ticked_ns: u64,
    /// The mean cost of the last ticks, in ns.
    cost_ns: u64,
    /// The factor of the time between ticks while no thread blocks.
    quiet_times: u64,
    /// Sorted at the start of a drain; those before `handed` were handed over in this drain.
    queue: Vec<Queued>,
    /// The size of the stacks in the queue.
    stack_bytes: usize,
    handed: usize,
    settled_ns: u64,
    drains: u32,
    lost: u64,
    lost_reported: u64,
    /// Threads that may not be read, although they go on.
    pub(crate) refused: FxHashSet<u32>,
    buffer: Vec<u8>,
}

impl SwitchTracer {
    /// Opens the events of a target on all CPUs, with rings of at most `ring_bytes`; `event` is the first
    /// event of waiting, `period_ns` its interval.
    ///
    /// # Errors
    ///
    /// Those of perf_event_open(2) and mmap(2), with a remedy.
    pub(crate) fn open(
        common: &CommonAttr,
        target: OpenTarget<'_>,
        event: EventId,
        period_ns: u64,
        ring_bytes: usize,
    ) -> anyhow::Result<Self> {
        let mut tracer = Self {
            rings: Vec::new(),
            ring_bytes,
            events: Vec::new(),
            tasks: FxHashMap::default(),
            suppliers: FxHashMap::default(),
            event,
            gap_ns: period_ns.clamp(GAP_MIN_NS, GAP_MAX_NS),
            existing: FxHashSet::default(),
            could_run: FxHashMap::default(),
            begin_ns: u64::MAX,
            followed: (common.open_mode == OpenMode::System).then(FxHashSet::default),
            blocked: FxHashMap::default(),
            next_tick_ns: u64::MAX,
            latest_tick_ns: u64::MAX,
            ticks: 0,
            ticked_ns: 0,
            cost_ns: 0,
            quiet_times: 1,
            queue: Vec::new(),
            stack_bytes: 0,
            handed: 0,
            settled_ns: 0,
            drains: 0,
            lost: 0,
            lost_reported: 0,
            refused: FxHashSet::default(),
            buffer: Vec::new(),
        };
        let mut owners = FxHashMap::default();
        match target {
            OpenTarget::Single(target) => tracer.open_for(common, target, None, &mut owners)?,
            OpenTarget::Processes { pids, except } => {
                let mut known = FxHashSet::default();
                for _ in 0..THREAD_SCANS {
                    let descendants = procfs::descendants(pids, except);
                    let processes = pids.iter().copied().chain(descendants);
                    let threads = processes.flat_map(|pid| {
                        procfs::threads(pid).into_iter().map(move |tid| EventTask { tid, pid })
                    });
                    let new: Vec<_> = threads.filter(|task| known.insert(task.tid)).collect();
                    if new.is_empty() {
                        break;
                    }
                    for task in new {
                        let target = EventTarget::Task(task.tid as i32);
                        tracer.open_for(common, target, Some(task), &mut owners)?;
                    }
                }
            }
        }
        Ok(tracer)
    }

    /// Opens an event for a target on each CPU, which is one `task` of several, or all; `owners` has the
    /// position of the event that owns the ring of a CPU.
    fn open_for(
        &mut self,
        common: &CommonAttr,
        target: EventTarget<'_>,
        task: Option<EventTask>,
        owners: &mut FxHashMap<u32, usize>,
    ) -> anyhow::Result<()> {
        let attr = common.switch_attr();
        for cpu in machine::online_cpus() {
            let file = match sys::perf_event_open(&attr, target, cpu as i32) {
                Ok(file) => file,
                // The CPU is offline, or the thread has exited.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ESRCH)) => {
                    continue;
                }
                Err(error) => {
                    return Err(open_error::explained("cannot record context switches", &error));
                }
            };
            if let Some(task) = task {
                let id = sys::event_id(&file).context("cannot read the id of an event")?;
                self.tasks.insert(id, task);
            }
            match owners.get(&cpu) {
                Some(&owner) => {
                    sys::share_ring(&file, &self.events[owner]).context("cannot share a ring")?;
                }
                None => {
                    self.rings.push(RingCursor::new(map_ring(&file, self.ring_bytes)?));
                    owners.insert(cpu, self.events.len());
                }
            }
            self.events.push(file);
        }
        Ok(())
    }

    /// Announces the start of sampling, after the events are enabled.
    pub(crate) fn begin(&mut self) {
        self.begin_ns = sys::monotonic_ns();
        (self.next_tick_ns, self.latest_tick_ns) = (self.begin_ns, self.begin_ns);
        self.add_tick(self.begin_ns);
    }

    /// Notes a tick. It is late by some time, and could have been later by as much.
    fn add_tick(&mut self, time_ns: u64) {
        let late_ns = time_ns.saturating_sub(self.next_tick_ns);
        let latest_ns = self.latest_tick_ns.saturating_add(late_ns);
        self.ticks += 1;
        self.ticked_ns = time_ns.saturating_sub(self.begin_ns);
        let content = Content::Tick(Tick { time_ns, latest_ns });
        self.queue.push(Queued { id: SampleId::at(time_ns, None), content });
    }

    /// Adds the threads that existed at the start of sampling, before the first tick. They are listed
    /// after it: a thread that was created between would have no record of its creation.
    pub(crate) fn add_existing_threads(&mut self, threads: Vec<u32>) {
        self.existing.extend(threads);
    }

    /// True if a thread could run at the start and has got no CPU since.
    pub(crate) fn has_not_run(&self, tid: u32) -> bool {
        let before = self.could_run.get(&tid);
        before.is_some_and(|&before_ns| procfs::run_ns(tid) == Some(before_ns))
    }

    /// Enables the events.
    ///
    /// # Errors
    ///
    /// ioctl(2).
    pub(crate) fn enable(&self) -> std::io::Result<()> {
        self.events.iter().try_for_each(sys::enable)
    }

    /// Looks at the threads that are blocked at the end, and disables the events.
    pub(crate) fn stop(&mut self) {
        if self.begin_ns <= sys::monotonic_ns() {
            self.ticked_ns = sys::monotonic_ns().saturating_sub(self.begin_ns);
            // All of them: the waits that go on are written now.
            self.look_before(sys::monotonic_ns(), usize::MAX);
        }
        for event in &self.events {
            // The event of an exited task cannot be disabled, and need not be.
            let _ = sys::disable(event);
        }
        self.next_tick_ns = u64::MAX;
    }

    /// Returns the mean time in ns between two ticks, if it is much longer than requested.
    pub(crate) fn rare_looks_ns(&self) -> Option<u64> {
        let mean_ns = self.ticked_ns / self.ticks.max(1);
        Some(mean_ns).filter(|mean_ns| *mean_ns > RARE_TIMES * self.gap_ns)
    }

    /// Returns the time until the next tick.
    pub(crate) fn until_tick(&self) -> Duration {
        Duration::from_nanos(self.next_tick_ns.saturating_sub(sys::monotonic_ns()).max(1))
    }

    /// Ticks, if the time has come.
    pub(crate) fn tick_if_due(&mut self, now_ns: u64) {
        if now_ns < self.next_tick_ns {
            return;
        }
        let used_ns = sys::thread_cpu_ns();
        let begin_ns = sys::monotonic_ns();
        self.add_tick(begin_ns);
        let is_quiet = !self.look_before(begin_ns, PEEKS_MAX);
        self.quiet_times = if is_quiet { (2 * self.quiet_times).min(QUIET_TIMES_MAX) } else { 1 };
        let cost_ns = sys::thread_cpu_ns().saturating_sub(used_ns);
        self.cost_ns = ((COST_TICKS - 1) * self.cost_ns + cost_ns) / COST_TICKS;
        // Any time up to twice the mean is as likely, or the waits that the next tick can fall into would depend
        // on where this one was. The low bits of the clock are as good as random.
        let gap_ns = self.gap_ns.saturating_mul(self.quiet_times);
        let mean_ns = gap_ns.max(self.cost_ns.saturating_mul(COST_TIMES));
        let latest_ns = 2 * mean_ns.min(GAP_MAX_NS);
        let random = begin_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.next_tick_ns = begin_ns + ((random * latest_ns) >> 32);
        self.latest_tick_ns = begin_ns + latest_ns;
    }

    /// Looks at threads that are blocked since before a time, at most `limit`, those of the latest waits
    /// first: they may end soon. Returns true if there are any.
    fn look_before(&mut self, time_ns: u64, limit: usize) -> bool {
        let letters: Vec<_> =
            self.existing.iter().map(|&tid| (tid, procfs::state_letter(tid))).collect();
        self.read_rings();
        // A thread without a record until now was in this state at the start, too.
        for (tid, letter) in letters {
            let state = letter.filter(|letter| !matches!(letter, b'Z' | b'X'));
            if let Some(letter) = state
                && self.existing.contains(&tid)
            {
                let state = WaitState::of_letter(letter);
                if let Some(run_ns) = procfs::run_ns(tid).filter(|_| state.is_preempted()) {
                    self.could_run.insert(tid, run_ns);
                }
                self.add_existing(tid, tid, state);
            }
        }
        self.existing.clear();
        let is_followed =
            |tid: &u32| self.followed.as_ref().is_none_or(|followed| followed.contains(tid));
        let mut due: Vec<(u64, u32)> = self
            .blocked
            .iter()
            .filter(|(tid, since_ns)| **since_ns < time_ns && is_followed(tid))
            .map(|(&tid, &since_ns)| (since_ns, tid))
            .collect();
        due.sort_unstable_by(|a, b| b.cmp(a));
        due.truncate(limit);
        let is_any = !due.is_empty();
        for (since_ns, tid) in due {
            if self.stack_bytes >= STACKS_MAX_BYTES {
                break;
            }
            match peek::peek(tid, since_ns, &mut self.buffer) {
                Ok(Some(peek)) => {
                    let id = SampleId { tid, ..SampleId::at(sys::monotonic_ns(), None) };
                    self.stack_bytes += peek.stack.len();
                    self.queue.push(Queued { id, content: Content::Peek(Box::new(peek)) });
                    self.blocked.remove(&tid);
                }
                // Its record comes, or it is not switched out completely yet.
                Ok(None) => {}
                Err(error) => {
                    // A thread that exits has no memory any more, and refuses it, too.
                    if error.kind() == std::io::ErrorKind::PermissionDenied
                        && !procfs::is_exiting(tid)
                        && peek::is_refused(tid)
                    {
                        self.refused.insert(tid);
                    }
                    self.blocked.remove(&tid);
                }
            }
        }
        is_any
    }

    fn add_existing(&mut self, pid: u32, tid: u32, state: WaitState) {
        let id = SampleId { pid, tid, ..SampleId::at(self.begin_ns, None) };
        self.queue.push(Queued { id, content: Content::Existing(state) });
        if !state.is_preempted() {
            self.blocked.insert(tid, self.begin_ns);
        }
        self.existing.remove(&tid);
    }

    /// Moves the records of all rings to the queue.
    fn read_rings(&mut self) {
        let first = self.queue.len();
        for number in 0..self.rings.len() {
            let ring = &mut self.rings[number];
            ring.head = ring.ring.head();
            let mut damaged = 0;
            while let Some((header, bytes)) = ring.oldest() {
                let size = header.size;
                let task =
                    record::event_id(header, bytes).and_then(|id| self.tasks.get(&id).copied());
                match record::read(&SampleLayout::default(), bytes) {
                    Some((id, KernelRecord::Switch(switch))) => {
                        // The first thread had events of its own, which have ended with it.
                        if let Some(task) = task.filter(|task| task.has_executed(id)) {
                            self.suppliers.insert(id.tid, task.tid);
                        }
                        let task = task.map(|task| task.tid);
                        let supplier =
                            task.map(|task| *self.suppliers.entry(id.tid).or_insert(task));
                        // The idle task has the id 0.
                        if supplier == task && id.tid != 0 {
                            self.queue.push(Queued { id, content: Content::Switch(switch) });
                        }
                    }
                    Some((_, KernelRecord::Lost(count))) => self.lost += count,
                    _ => {}
                }
                ring.ring.advance(size);
            }
            damaged += ring.remaining_bytes();
            self.lost += u64::from(damaged > 0);
            ring.ring.advance(usize::try_from(damaged).unwrap_or(0));
        }
        self.queue[first..].sort_by_key(|queued| queued.id.time);
        for number in first..self.queue.len() {
            let Queued { id, content: Content::Switch(switch) } = self.queue[number] else {
                continue;
            };
            // The state before the start of sampling is no longer that at the start.
            if id.time >= self.begin_ns && self.existing.contains(&id.tid) {
                let is_waiting = u32::from(switch == Switch::In);
                self.add_existing(id.pid, id.tid, WaitState(is_waiting));
            }
            if switch == Switch::Blocked {
                self.blocked.insert(id.tid, id.time);
            } else {
                self.blocked.remove(&id.tid);
            }
        }
    }

    /// Starts a drain at the time `now_ns`.
    pub(crate) fn begin_drain(&mut self, now_ns: u64) {
        self.tick_if_due(now_ns);
        self.read_rings();
        self.queue.sort_by_key(|queued| queued.id.time);
        self.handed = 0;
        self.settled_ns = now_ns.saturating_sub(sys::duration_ns(SETTLING));
    }

    /// Returns the time up to which no older record can follow.
    pub(crate) fn settled_ns(&self) -> u64 {
        self.settled_ns
    }

    /// Returns the time of the oldest record. None if this drain has handed over all.
    pub(crate) fn next_timestamp(&self) -> Option<u64> {
        self.queue.get(self.handed).map(|queued| queued.id.time)
    }

    /// Hands over the records up to the time `until_ns`.
    pub(crate) fn drain(&mut self, until_ns: u64, handler: &mut dyn RecordHandler) {
        while let Some(queued) = self.queue.get(self.handed)
            && queued.id.time <= until_ns
        {
            self.handed += 1;
            let id = queued.id;
            let record = match &queued.content {
                &Content::Tick(tick) => KernelRecord::Tick(tick),
                Content::Existing(state) => KernelRecord::Existing(*state),
                Content::Switch(switch) => KernelRecord::Switch(*switch),
                Content::Peek(peek) => {
                    self.stack_bytes -= peek.stack.len();
                    KernelRecord::Peek(peek)
                }
            };
            let is_tick = matches!(record, KernelRecord::Tick(_));
            let is_accepted = is_tick || handler.accepts(id.tid);
            if is_accepted {
                if let Some(followed) = &mut self.followed {
                    followed.insert(id.tid);
                }
                handler.handle_record(id, &record, self.event);
            }
        }
    }

    /// Ends a drain: reports lost records. Returns the records that stay.
    pub(crate) fn end_drain(&mut self, handler: &mut dyn RecordHandler) -> Backlog {
        self.queue.drain(..self.handed);
        self.handed = 0;
        let lost = self.lost - self.lost_reported;
        if lost > 0 {
            self.lost_reported = self.lost;
            let id = SampleId::at(sys::monotonic_ns(), None);
            handler.on_lost(id, LostSamples::own(lost), self.event, Cause::Ring);
        }
        self.drains += 1;
        if self.drains.is_multiple_of(DRAINS_TO_FORGET) {
            self.suppliers.retain(|&tid, _| handler.accepts(tid));
            self.blocked.retain(|&tid, _| handler.accepts(tid));
            if let Some(followed) = &mut self.followed {
                followed.retain(|&tid| handler.accepts(tid));
            }
        }
        if self.queue.is_empty() { Backlog::Nothing } else { Backlog::Samples }
    }

    /// Returns the number of records that were lost.
    pub(crate) fn lost_records(&self) -> u64 {
        self.lost
    }
}

/// Maps the ring of an event, as large as the limit of locked memory allows, up to `bytes`.
fn map_ring(file: &File, bytes: usize) -> anyhow::Result<Ring> {
    let mut size = bytes.max(sys::page_size());
    loop {
        match Ring::map(file, size) {
            Ok(ring) => return Ok(ring),
            Err(error)
                if size / 2 >= RING_BYTES_MIN.max(sys::page_size())
                    && matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) =>
            {
                size /= 2;
            }
            Err(error) => {
                return Err(error).context(
                    "cannot lock memory for context switches: raise kernel.perf_event_mlock_kb or the \
                     limit of locked memory (`ulimit -l`)",
                );
            }
        }
    }
}
