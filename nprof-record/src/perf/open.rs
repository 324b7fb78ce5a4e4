//! Opens the events of a plan, for a target, with rings as large as the budget of
//! locked memory allows.

use std::fs::File;
use std::io;
use std::rc::Rc;

use anyhow::Context;
use nprof_stream::EventId;
use perf_event_open_sys::bindings::perf_event_attr;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{CpuMode, PerfEventConfig, Waiting};
use crate::os::machine;
use crate::os::open_error;
use crate::os::procfs;
use crate::perf::attr;
use crate::perf::bpf::stack_copier::BpfStackCopier;
use crate::perf::calls::tracer::CallTracer;
use crate::perf::event_binding::EventBinding;
use crate::perf::plan::{OpenMode, Plan, TryOpen};
use crate::perf::record::{RawData, SampleLayout};
use crate::perf::ring_reader::{ChunkEvent, CpuRing, DrainLevels, OpenEvent};
use crate::perf::ring_set::RingSet;
use crate::perf::ring_size::ring_size;
use crate::perf::time_merge::TimeMerge;
use crate::perf::waits::tracer::WaitTracer;
use crate::sys::{self, EventTarget, Ring};

/// Bytes of a sideband ring (mmap, comm, fork, exit) for all tasks.
const SIDEBAND_RING: usize = 256 << 10;

/// The same for some tasks: unprivileged users may lock little memory.
const SIDEBAND_RING_TASK: usize = 64 << 10;

/// Bytes in a sideband ring at which the kernel wakes us. Mapped files may soon be deleted.
const SIDEBAND_WATERMARK: u32 = 8 << 10;

/// The number of the largest records for which a large ring has room.
const RECORDS_OF_LARGE_RING: usize = 16;

/// The most bytes that count as an eighth of a ring.
const EIGHTH_MAX: usize = 4 << 20;

/// Opens events for real.
#[derive(Debug)]
pub(crate) struct Kernel<'a> {
    /// The directory of the control group, for [`OpenMode::Group`].
    pub(crate) group: Option<&'a File>,
}

impl TryOpen for Kernel<'_> {
    fn try_open(
        &self,
        attr: &perf_event_attr,
        _encoding: &PerfEventConfig,
        open_mode: OpenMode,
        cpu: u32,
    ) -> Result<(), i32> {
        // Our own process has the same rights as the command.
        let target = match (open_mode, self.group) {
            (OpenMode::Task, _) => EventTarget::Task(0),
            (OpenMode::Group, Some(group)) => EventTarget::Cgroup(group),
            _ => EventTarget::AllTasks,
        };
        let open_event = sys::perf_event_open(attr, target, cpu as i32);
        open_event.map(drop).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
    }
}

/// The tasks for which the events of a recording are opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OpenTarget<'a> {
    /// One target of perf_event_open(2), with tasks that it creates later.
    Single(EventTarget<'a>),
    /// All threads of some processes, and tasks that they create later.
    Processes {
        pids: &'a [u32],
        /// The descendants that are not recorded. All others are.
        except: &'a [u32],
    },
}

impl RingSet {
    /// Opens the events of a plan on these CPUs, and the sideband event on all.
    ///
    /// # Errors
    ///
    /// Those of perf_event_open(2) and mmap(2), with a remedy.
    ///
    /// `waits` are the BPF programs that measure waiting, if they do, and `calls` those that count calls.
    pub(crate) fn open(
        plan: &Plan,
        cpus: &[u32],
        open_target: OpenTarget<'_>,
        waits: Option<&Rc<WaitTracer>>,
        calls: Option<&Rc<CallTracer>>,
    ) -> anyhow::Result<Self> {
        let page = sys::page_size();
        let least = plan.common.largest_record().next_power_of_two().max(page);
        let config = plan.wait_config().filter(|_| waits.is_some());
        let copies_waits = config.is_some_and(|config| config.copied_bytes > 0);
        let size = |with_bpf_copier: &[usize]| {
            let writers = u64::from(copies_waits) + u64::from(!with_bpf_copier.is_empty());
            let room = writers * CHUNK_ROOM;
            let bytes = plan.bytes_per_second(with_bpf_copier);
            ring_size(bytes, room, cpus.len(), page).max(least)
        };
        let mut with_bpf_copier = plan.with_bpf_copier();
        let mut wanted = size(&with_bpf_copier);
        loop {
            let copier = match with_bpf_copier[..] {
                [] => None,
                _ => load_copier(plan, chunk_room(wanted, copies_waits)),
            };
            if copier.is_none() && !with_bpf_copier.is_empty() {
                with_bpf_copier.clear();
                wanted = size(&with_bpf_copier);
            }
            let copier = copier.map(|copier| (with_bpf_copier.clone(), copier));
            let opener =
                EventOpener::new(plan, cpus, wanted, copier, waits.cloned(), calls.cloned());
            match opener.open(open_target) {
                Ok(rings) => return Ok(rings),
                Err(OpenFailure::Error(error)) => return Err(error),
                Err(OpenFailure::NoBpfProgram) => {
                    with_bpf_copier.clear();
                    wanted = size(&with_bpf_copier);
                }
                // All rings get smaller alike, since a command may run on any CPU.
                Err(OpenFailure::NoLockedMemory(_)) if wanted / 2 >= least => wanted /= 2,
                Err(OpenFailure::NoLockedMemory(error)) => {
                    return Err(NoLockedMemory { bytes: wanted, source: error }.into());
                }
            }
        }
    }
}

/// Too little memory for the smallest rings may be locked.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot lock {bytes} bytes of memory for each CPU's samples: raise kernel.perf_event_mlock_kb or the limit of \
     locked memory (`ulimit -l`), or lower --stack-size"
)]
pub(crate) struct NoLockedMemory {
    bytes: usize,
    source: io::Error,
}

/// Bytes of a ring for the stack chunks of one program.
const CHUNK_ROOM: u64 = 4 << 20;

/// Returns the most bytes of chunks that a program may have in a ring of `size` bytes, `beside` another one
/// or alone: at least as many as the ring has when it is drained, see [`EventOpener::watermark`]. The rest is
/// for samples.
fn chunk_room(size: usize, beside: bool) -> usize {
    if beside { size / 8 * 3 } else { size / 2 }
}

/// Loads the BPF program that copies stacks, at most `room` bytes into each ring. None if it cannot be
/// loaded.
fn load_copier(plan: &Plan, room: usize) -> Option<BpfStackCopier> {
    let last_cpu = *machine::online_cpus().last()?;
    BpfStackCopier::load(plan.common.with_bpf_copier().stack_size, room, last_cpu).ok()
}

/// A failure to open the events; all but the last can be avoided by opening them in another way.
#[derive(Debug)]
enum OpenFailure {
    /// The limit of locked memory is reached.
    NoLockedMemory(io::Error),
    /// An event cannot run the BPF program, or the program has no event to write to.
    NoBpfProgram,
    Error(anyhow::Error),
}

impl From<anyhow::Error> for OpenFailure {
    fn from(error: anyhow::Error) -> Self {
        Self::Error(error)
    }
}

/// Opens all events with rings of one size.
struct EventOpener<'a> {
    plan: &'a Plan,
    cpus: &'a [u32],
    size: usize,
    /// The BPF program, with the indices of the events that run it.
    copier: Option<(Vec<usize>, BpfStackCopier)>,
    /// The programs that measure waiting, if an event needs them, and the CPUs that have their
    /// events.
    waits: Option<Rc<WaitTracer>>,
    wait_cpus: FxHashSet<u32>,
    /// The programs that count calls, if an event needs them, and the CPUs that have its event.
    calls: Option<Rc<CallTracer>>,
    call_cpus: FxHashSet<u32>,
    /// By CPU, and true for the sideband.
    rings: FxHashMap<(u32, bool), CpuRing>,
    bindings: FxHashMap<u64, EventBinding>,
    /// The tasks with events of their own.
    suppliers: FxHashMap<u32, u32>,
}

/// Passes over /proc/PID/task: each finds threads created during the previous one. Threads that are
/// created by threads with events inherit them, so a few passes suffice.
const THREAD_SCANS: usize = 4;

impl<'a> EventOpener<'a> {
    fn new(
        plan: &'a Plan,
        cpus: &'a [u32],
        size: usize,
        copier: Option<(Vec<usize>, BpfStackCopier)>,
        waits: Option<Rc<WaitTracer>>,
        calls: Option<Rc<CallTracer>>,
    ) -> Self {
        Self {
            plan,
            cpus,
            size,
            copier,
            waits,
            wait_cpus: FxHashSet::default(),
            calls,
            call_cpus: FxHashSet::default(),
            rings: FxHashMap::default(),
            bindings: FxHashMap::default(),
            suppliers: FxHashMap::default(),
        }
    }

    fn open(mut self, open_target: OpenTarget<'_>) -> Result<RingSet, OpenFailure> {
        match open_target {
            OpenTarget::Single(target) => self.open_for(target)?,
            OpenTarget::Processes { pids, except } => self.open_for_threads(pids, except)?,
        }
        let mut rings: Vec<_> = self.rings.into_values().collect();
        // Sideband rings first: with equal times, a mapping comes before its first sample.
        rings.sort_unstable_by_key(|ring| (!ring.events[0].event.is_none(), ring.cpu));
        for (number, planned) in self.plan.events.iter().enumerate() {
            // One event writes the samples of all kinds of waiting.
            // Without BPF programs, none of these does.
            let is_written = self.waits.is_none() || !self.wait_cpus.is_empty();
            if planned.event.waiting().is_some() && is_written {
                continue;
            }
            let mut open_events = rings.iter().flat_map(|ring| &ring.events);
            if !open_events.any(|open_event| open_event.event.0 as usize == number + 1) {
                return Err(OpenFailure::Error(anyhow::anyhow!(
                    "{}: no CPU can sample it, or no task is left to sample",
                    planned.requested_name
                )));
            }
        }
        Ok(RingSet {
            rings,
            bindings: self.bindings,
            suppliers: self.suppliers,
            merge: TimeMerge::default(),
            copier: self.copier.map(|(_, copier)| copier),
            waits: self.waits,
            counts_lost: self.plan.common.counts_lost(),
            timer_phases: self.plan.timer_phases(self.cpus.len()),
            sideband_polled_ns: 0,
            sideband_drained_ns: sys::monotonic_ns(),
            drain_ns: 0,
        })
    }

    /// Opens events for all threads of processes and of their descendants, until a pass finds no
    /// new ones.
    fn open_for_threads(&mut self, pids: &[u32], except: &[u32]) -> Result<(), OpenFailure> {
        for _ in 0..THREAD_SCANS {
            let descendants = procfs::descendants(pids, except);
            let threads = pids.iter().copied().chain(descendants).flat_map(procfs::threads);
            let new: Vec<_> = threads.filter(|tid| !self.suppliers.contains_key(tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                self.suppliers.insert(tid, tid);
                self.open_for(EventTarget::Task(tid as i32))?;
            }
        }
        Ok(())
    }

    /// True if the BPF program copies the stacks of an event.
    fn uses_bpf_copier(&self, number: usize) -> bool {
        self.copier.as_ref().is_some_and(|(numbers, _)| numbers.contains(&number))
    }

    /// Returns the fill levels at which a ring is drained. A small ring has room for few records.
    fn drain_levels(&self) -> DrainLevels {
        let eighth = (self.size / 8).min(EIGHTH_MAX) as u64;
        if self.size / RECORDS_OF_LARGE_RING < self.plan.common.largest_record() {
            DrainLevels { by_clock: eighth, by_wakeup: eighth * 2 }
        } else {
            DrainLevels { by_clock: eighth * 2, by_wakeup: eighth }
        }
    }

    /// Returns the bytes written to a ring after which the kernel wakes us. The kernel counts from
    /// the last wake-up, not from the last drain: the ring is drained when it has at most three
    /// eighths.
    fn watermark(&self) -> u32 {
        self.drain_levels().by_clock as u32
    }

    fn open_for(&mut self, target: EventTarget<'_>) -> Result<(), OpenFailure> {
        let task = match target {
            EventTarget::Task(tid) => Some(tid as u32),
            EventTarget::AllTasks | EventTarget::Cgroup(_) => None,
        };
        // The sideband is needed from all CPUs, even if only some are sampled.
        for cpu in machine::online_cpus() {
            self.open_on(cpu, target, task)?;
        }
        Ok(())
    }

    fn open_on(
        &mut self,
        cpu: u32,
        target: EventTarget<'_>,
        task: Option<u32>,
    ) -> Result<(), OpenFailure> {
        let plan = self.plan;
        let sideband_size = match target {
            EventTarget::Task(_) => SIDEBAND_RING_TASK,
            _ => SIDEBAND_RING,
        };
        let sideband_size = sideband_size.max(sys::page_size());
        let attr = plan.common.sideband_attr(SIDEBAND_WATERMARK);
        let layout = SampleLayout::default();
        let binding = EventBinding { event: EventId::NONE, task, layout, uses_bpf_copier: false };
        self.add(&attr, cpu, target, binding, sideband_size)?;
        // -C restricts the samples, not the sideband.
        let is_sampled = self.cpus.contains(&cpu);
        for (number, planned) in plan.events.iter().enumerate().filter(|_| is_sampled) {
            if planned.event.waiting() == Some(Waiting::Wakes) {
                continue;
            }
            if planned.event.waiting().is_some() {
                if self.waits.is_some() && self.wait_cpus.insert(cpu) {
                    self.open_wait_events(cpu, EventId(number as u32 + 1), planned.scope)?;
                }
                continue;
            }
            if planned.event.is_calls() {
                if self.call_cpus.insert(cpu) {
                    self.open_call_event(cpu, EventId(number as u32 + 1), planned.scope)?;
                }
                continue;
            }
            let encoding = planned.event.configs.iter().find(|encoding| encoding.is_on(cpu));
            let Some(encoding) = encoding else { continue };
            let (period, scope) = (planned.period, planned.scope);
            let uses_bpf_copier = self.uses_bpf_copier(number);
            let common = if uses_bpf_copier { plan.common.with_bpf_copier() } else { plan.common };
            let attr = common.sample_attr(encoding, period, scope, self.watermark());
            let event = EventId(number as u32 + 1);
            let field = encoding.field;
            let read = plan.common.words_in_samples(encoding);
            let layout = SampleLayout { field, read, ..plan.common.layout(period) };
            let binding = EventBinding { event, task, layout, uses_bpf_copier };
            self.add(&attr, cpu, target, binding, self.size)?;
            self.attach_programs(cpu, event, uses_bpf_copier)?;
        }
        Ok(())
    }

    /// Opens the events that the programs for waiting write to on a CPU; `event` is the first of
    /// them in the plan. They belong to the CPU, since the programs select the threads.
    fn open_wait_events(
        &mut self,
        cpu: u32,
        event: EventId,
        scope: CpuMode,
    ) -> Result<(), OpenFailure> {
        let (plan, watermark) = (self.plan, self.watermark());
        let common = &plan.common;
        let layout = common.wait_layout();
        let note_layout =
            SampleLayout { weight: Some(0), raw: RawData::Note, ..Default::default() };
        let wakes = plan.waiting(Waiting::Wakes).map(|(event, _)| {
            let layout = SampleLayout { raw: RawData::Wake, ..layout };
            (event, common.wait_attr(scope, watermark), layout)
        });
        let outputs = [
            (event, common.wait_attr(scope, watermark), layout),
            (event, common.chunk_attr(watermark), note_layout),
        ];
        for (event, attr, layout) in outputs.into_iter().chain(wakes) {
            let binding = EventBinding { event, task: None, layout, uses_bpf_copier: false };
            self.add(&attr, cpu, EventTarget::AllTasks, binding, self.size)?;
        }
        if let (Some(waits), Some(ring)) = (&self.waits, self.rings.get(&(cpu, false))) {
            let first = ring.events.len() - outputs.len() - usize::from(wakes.is_some());
            let [samples, notes, wakes @ ..] = &ring.events[first..] else { return Ok(()) };
            let wakes = wakes.first().map(|wakes| &wakes.file);
            let set = waits.set_output_events(cpu, &samples.file, &notes.file, wakes);
            set.context("cannot connect a BPF program with an event")?;
            let id = sys::event_id(&samples.file).context("cannot read the id of an event")?;
            if let Some(ring) = self.rings.get_mut(&(cpu, false)) {
                ring.late_writer = Some(id);
            }
        }
        self.open_wait_chunks(cpu)
    }

    /// Opens the event that writes chunks of the stacks of waiting threads into the ring of a CPU.
    fn open_wait_chunks(&mut self, cpu: u32) -> Result<(), OpenFailure> {
        let watermark = self.watermark();
        let copies = self.waits.as_ref().and_then(|waits| waits.stack_copies.as_ref());
        let (Some(copies), Some(ring)) = (copies, self.rings.get_mut(&(cpu, false))) else {
            return Ok(());
        };
        let attr = self.plan.common.chunk_attr(watermark);
        let file = sys::perf_event_open(&attr, EventTarget::AllTasks, cpu as i32)
            .context("cannot open an event for stacks")?;
        let id = sys::event_id(&file).context("cannot read the id of an event")?;
        sys::share_ring(&file, &ring.events[0].file).context("cannot share a ring")?;
        let room = chunk_room(self.size, self.copier.is_some());
        let set = copies.set_output_event(cpu, &file, room as u64);
        set.context("cannot connect a BPF program with an event")?;
        ring.wait_chunks = Some(ChunkEvent::new(file, id, copies.words.clone(), cpu));
        Ok(())
    }

    /// Attaches the BPF programs to the event that was added last, if it is `event`: that for samples of timers,
    /// and that which copies stacks.
    fn attach_programs(
        &mut self,
        cpu: u32,
        event: EventId,
        copies: bool,
    ) -> Result<(), OpenFailure> {
        if copies {
            self.open_chunks(cpu).ok_or(OpenFailure::NoBpfProgram)?;
        }
        let Some(ring) = self.rings.get(&(cpu, false)) else { return Ok(()) };
        let Some(last) = ring.events.last().filter(|it| it.event == event) else { return Ok(()) };
        let copier = self.copier.as_ref().filter(|_| copies).map(|(_, copier)| copier);
        let is_timer = self.plan.measured_timer().is_some_and(|(timer, _)| timer == event);
        if let Some(waits) = self.waits.as_ref().filter(|_| is_timer) {
            let attached = waits.attach_to_timer(&last.file, copier.map(|it| &it.program));
            if attached.context("cannot connect a BPF program with an event")? {
                return Ok(());
            }
        }
        let is_attached = copier.is_none_or(|copier| copier.attach(&last.file));
        if is_attached { Ok(()) } else { Err(OpenFailure::NoBpfProgram) }
    }

    /// Opens the event that writes chunks of stacks into the ring of a CPU. None if that fails.
    fn open_chunks(&mut self, cpu: u32) -> Option<()> {
        let watermark = self.watermark();
        let (Some((_, copier)), Some(ring)) = (&self.copier, self.rings.get_mut(&(cpu, false)))
        else {
            return Some(());
        };
        if ring.chunks.is_some() {
            return Some(());
        }
        let attr = self.plan.common.chunk_attr(watermark);
        let file = sys::perf_event_open(&attr, EventTarget::AllTasks, cpu as i32).ok()?;
        let id = sys::event_id(&file).ok()?;
        sys::share_ring(&file, &ring.events[0].file).ok()?;
        copier.set_output_event(cpu, &file).then_some(())?;
        ring.chunks = Some(ChunkEvent::new(file, id, copier.words.clone(), cpu));
        Some(())
    }

    /// Opens an event on a CPU, with a ring of `size` bytes unless it can share one.
    fn add(
        &mut self,
        attr: &perf_event_attr,
        cpu: u32,
        target: EventTarget<'_>,
        binding: EventBinding,
        size: usize,
    ) -> Result<(), OpenFailure> {
        let Some(file) = open_event(attr, target, cpu)? else { return Ok(()) };
        let id = sys::event_id(&file).context("cannot read the id of an event")?;
        let event = binding.event;
        let timer_period = self.plan.timer_period(event);
        let opened = OpenEvent::new(file, &binding, attr.read_format, timer_period);
        let key = (cpu, event.is_none());
        if let Some(ring) = self.rings.get_mut(&key) {
            sys::share_ring(&opened.file, &ring.events[0].file).context("cannot share a ring")?;
            ring.events.push(opened);
        } else {
            let ring = match Ring::map(&opened.file, size) {
                Ok(ring) => ring,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) => {
                    return Err(OpenFailure::NoLockedMemory(error));
                }
                Err(error) => {
                    let error = anyhow::Error::new(error).context("cannot map a ring");
                    return Err(OpenFailure::Error(error));
                }
            };
            let levels = if event.is_none() { DrainLevels::default() } else { self.drain_levels() };
            let ring = CpuRing::new(ring, opened, cpu, levels);
            self.rings.insert(key, ring);
        }
        if attr::is_of_software(attr)
            && let Some(ring) = self.rings.get_mut(&key)
        {
            ring.strays.note(binding);
        }
        self.bindings.insert(id, binding);
        Ok(())
    }
}

/// Opens an event on a CPU. None if the CPU is offline or the task has exited.
fn open_event(
    attr: &perf_event_attr,
    target: EventTarget<'_>,
    cpu: u32,
) -> anyhow::Result<Option<File>> {
    match sys::perf_event_open(attr, target, cpu as i32) {
        Ok(event) => Ok(Some(event)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENODEV | libc::ESRCH) => Ok(None),
            Some(libc::EACCES | libc::EPERM) if let EventTarget::Task(tid) = target => Err(error)
                .with_context(|| {
                    format!(
                        "task {tid} belongs to another user; run as root or with CAP_PERFMON and \
                         CAP_SYS_PTRACE"
                    )
                }),
            _ => Err(open_error::explained(&format!("cannot open an event on CPU {cpu}"), &error)),
        },
    }
}

mod call_event;
