//! Opens the events of a plan, for a target, with rings as large as the budget of
//! locked memory allows.

use std::fs::File;
use std::io;

use anyhow::Context;
use nprof_stream::EventId;
use perf_event_open_sys::bindings::perf_event_attr;
use rustc_hash::FxHashMap;

use crate::event::PerfEventConfig;
use crate::os::machine;
use crate::os::open_error;
use crate::os::procfs;
use crate::perf::bpf::stack_copier::BpfStackCopier;
use crate::perf::plan::{self, OpenMode, Plan, TryOpen};
use crate::perf::record::SampleLayout;
use crate::perf::ring_reader::{ChunkEvent, CpuRing, OpenEvent};
use crate::perf::ring_set::{EventBinding, RingSet};
use crate::perf::time_merge::TimeMerge;
use crate::sys::{self, EventTarget, Ring};

/// The bytes of a ring for processes and mappings: of all the system's.
const SIDEBAND_RING: usize = 256 << 10;

/// The same, of some tasks only, where locked memory is scarce.
const SIDEBAND_RING_TASK: usize = 64 << 10;

/// How full a side ring gets before we are woken, bytes: a file that is mapped may not be there
/// for long.
const SIDEBAND_WATERMARK: u32 = 8 << 10;

/// How full a ring gets at most before it is read at once, bytes.
const WAKEUP_BYTES_MAX: usize = 8 << 20;

/// Opens events for real.
#[derive(Debug)]
pub(crate) struct Kernel<'a> {
    /// The control group's directory, for [`OpenMode::Group`].
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
        // To try it, our own process is as good as the command.
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
    /// All tasks.
    System,
    /// The tasks of a control group, given its open directory.
    Cgroup(&'a File),
    /// One task, and tasks that it creates later.
    Task(u32),
    /// All threads of some processes, and tasks that they create later.
    Processes(&'a [u32]),
}

impl RingSet {
    /// Opens the events of a plan on these CPUs, and what tells of processes and mappings on all.
    ///
    /// # Errors
    ///
    /// What perf_event_open(2) or mmap(2) says, with what to do about it.
    pub(crate) fn open(
        plan: &Plan,
        cpus: &[u32],
        open_target: OpenTarget<'_>,
    ) -> anyhow::Result<Self> {
        let page = sys::page_size();
        let least = plan.common.largest_record().next_power_of_two().max(page);
        let size = |with_bpf_copier: &[usize]| {
            let room = if with_bpf_copier.is_empty() { 0 } else { CHUNK_ROOM };
            let bytes = plan.bytes_per_second(with_bpf_copier);
            plan::ring_size(bytes, room, cpus.len(), page).max(least)
        };
        let mut with_bpf_copier = plan.with_bpf_copier();
        let mut wanted = size(&with_bpf_copier);
        loop {
            let copier = match with_bpf_copier.is_empty() {
                true => None,
                false => copier(plan, wanted),
            };
            if copier.is_none() && !with_bpf_copier.is_empty() {
                with_bpf_copier.clear();
                wanted = size(&with_bpf_copier);
            }
            let copier = copier.map(|copier| (with_bpf_copier.clone(), copier));
            match (EventOpener::new(plan, cpus, wanted, copier)).open(open_target)? {
                Ok(rings) => return Ok(rings),
                Err(OpenFailure::NoBpfProgram) => {
                    with_bpf_copier.clear();
                    wanted = size(&with_bpf_copier);
                }
                // All rings alike: a command runs on any CPU.
                Err(OpenFailure::NoLockedMemory(_)) if wanted / 2 >= least => wanted /= 2,
                Err(OpenFailure::NoLockedMemory(error)) => {
                    return Err(error).with_context(|| {
                        format!(
                            "cannot lock {wanted} bytes of memory for each CPU's samples: raise \
                             kernel.perf_event_mlock_kb or the limit of locked memory (`ulimit -l`), \
                             or lower --stack-size"
                        )
                    });
                }
            }
        }
    }
}

/// The bytes of a ring for what a program copies of stacks.
const CHUNK_ROOM: u64 = 4 << 20;

/// What copies stacks with rings of `size` bytes, where it can be had.
fn copier(plan: &Plan, size: usize) -> Option<BpfStackCopier> {
    let last_cpu = *machine::online_cpus().last()?;
    BpfStackCopier::load(plan.common.with_bpf_copier().stack_size, size / 2, last_cpu)
}

/// Why events cannot be opened this way.
#[derive(Debug)]
enum OpenFailure {
    /// There is too little memory to lock.
    NoLockedMemory(io::Error),
    /// The event does not run the program, or nothing writes for it.
    NoBpfProgram,
}

/// Opens everything with rings of one size.
struct EventOpener<'a> {
    plan: &'a Plan,
    cpus: &'a [u32],
    size: usize,
    /// What copies the stacks of the events of those numbers.
    copier: Option<(Vec<usize>, BpfStackCopier)>,
    /// By CPU, and whether of processes and mappings.
    rings: FxHashMap<(u32, bool), CpuRing>,
    bindings: FxHashMap<u64, EventBinding>,
    /// The tasks that have events of their own, each its own.
    suppliers: FxHashMap<u32, u32>,
}

/// How often it is looked for threads that were made meanwhile. Those made by threads that have
/// events already inherit them, so a few times will do.
const THREAD_SCANS: usize = 4;

impl<'a> EventOpener<'a> {
    fn new(
        plan: &'a Plan,
        cpus: &'a [u32],
        size: usize,
        copier: Option<(Vec<usize>, BpfStackCopier)>,
    ) -> Self {
        Self {
            plan,
            cpus,
            size,
            copier,
            rings: FxHashMap::default(),
            bindings: FxHashMap::default(),
            suppliers: FxHashMap::default(),
        }
    }

    fn open(mut self, open_target: OpenTarget<'_>) -> anyhow::Result<Result<RingSet, OpenFailure>> {
        let open_event = match open_target {
            OpenTarget::System => self.open_for(EventTarget::AllTasks, None)?,
            OpenTarget::Cgroup(directory) => self.open_for(EventTarget::Cgroup(directory), None)?,
            OpenTarget::Task(tid) => self.open_for(EventTarget::Task(tid as i32), Some(tid))?,
            OpenTarget::Processes(pids) => self.open_for_threads(pids)?,
        };
        if let Err(error) = open_event {
            return Ok(Err(error));
        }
        let mut rings: Vec<_> = self.rings.into_values().collect();
        rings.sort_unstable_by_key(|ring| (!ring.events[0].event.is_none(), ring.cpu));
        for (number, planned) in self.plan.events.iter().enumerate() {
            let is_it = |open_event: &OpenEvent| open_event.event.0 as usize == number + 1;
            let mut open_event = rings.iter().flat_map(|ring| &ring.events);
            anyhow::ensure!(
                open_event.any(is_it),
                "{}: there is no CPU it can be sampled on, or nobody to sample",
                planned.requested_name
            );
        }
        Ok(Ok(RingSet {
            rings,
            bindings: self.bindings,
            suppliers: self.suppliers,
            merge: TimeMerge::default(),
            copier: self.copier.map(|(_, copier)| copier),
            counts_lost: self.plan.common.counts_lost(),
            sideband_polled_ns: 0,
            drain_ns: 0,
        }))
    }

    /// Threads make threads meanwhile: looks for more until there are none.
    fn open_for_threads(&mut self, pids: &[u32]) -> anyhow::Result<Result<(), OpenFailure>> {
        for _ in 0..THREAD_SCANS {
            let threads = pids.iter().flat_map(|&pid| procfs::threads(pid));
            let new: Vec<_> = threads.filter(|tid| !self.suppliers.contains_key(tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                self.suppliers.insert(tid, tid);
                if let Err(error) = self.open_for(EventTarget::Task(tid as i32), Some(tid))? {
                    return Ok(Err(error));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Whether a program copies the stacks of the event of that number.
    fn uses_bpf_copier(&self, number: usize) -> bool {
        self.copier.as_ref().is_some_and(|(numbers, _)| numbers.contains(&number))
    }

    /// How full a ring gets before it is read at once, bytes.
    fn wakeup_bytes(&self) -> u32 {
        (self.size / 4).min(WAKEUP_BYTES_MAX) as u32
    }

    /// After how many bytes written to a ring we are woken each time. It may have been read since,
    /// and then it is not worth it; and it is not to get much fuller than full.
    fn watermark(&self) -> u32 {
        self.wakeup_bytes() / 2
    }

    fn open_for(
        &mut self,
        target: EventTarget<'_>,
        task: Option<u32>,
    ) -> anyhow::Result<Result<(), OpenFailure>> {
        // Of processes and mappings we have to know wherever they are made.
        for cpu in machine::online_cpus() {
            if let Err(error) = self.open_on(cpu, target, task)? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    fn open_on(
        &mut self,
        cpu: u32,
        target: EventTarget<'_>,
        task: Option<u32>,
    ) -> anyhow::Result<Result<(), OpenFailure>> {
        let plan = self.plan;
        let sideband_size = match target {
            EventTarget::Task(_) => SIDEBAND_RING_TASK,
            _ => SIDEBAND_RING,
        };
        let sideband_size = sideband_size.max(sys::page_size());
        let attr = plan.common.sideband_attr(SIDEBAND_WATERMARK);
        let layout = SampleLayout::default();
        let binding = EventBinding { event: EventId::NONE, task, layout, uses_bpf_copier: false };
        let added = self.add(&attr, cpu, target, binding, sideband_size)?;
        if let Err(error) = added {
            return Ok(Err(error));
        }
        let is_sampled = self.cpus.contains(&cpu);
        for (number, planned) in plan.events.iter().enumerate().filter(|_| is_sampled) {
            let here = |encoding: &&PerfEventConfig| {
                encoding.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
            };
            let Some(encoding) = planned.event.configs.iter().find(here) else { continue };
            let (interval, scope) = (planned.interval, planned.scope);
            let uses_bpf_copier = self.uses_bpf_copier(number);
            let common = if uses_bpf_copier { plan.common.with_bpf_copier() } else { plan.common };
            let attr = common.sample_attr(encoding, interval, scope, self.watermark());
            let event = EventId(number as u32 + 1);
            let layout = plan.common.layout(interval);
            let binding = EventBinding { event, task, layout, uses_bpf_copier };
            if let Err(error) = self.add(&attr, cpu, target, binding, self.size)? {
                return Ok(Err(error));
            }
            if uses_bpf_copier && self.attach_copier(cpu, event).is_none() {
                return Ok(Err(OpenFailure::NoBpfProgram));
            }
        }
        Ok(Ok(()))
    }

    /// Lets the event that was added last copy more of stacks than the kernel does, if it is that
    /// one. `None` when it does not.
    fn attach_copier(&mut self, cpu: u32, event: EventId) -> Option<()> {
        let watermark = self.watermark();
        let (Some((_, copier)), Some(ring)) = (&self.copier, self.rings.get_mut(&(cpu, false)))
        else {
            return Some(());
        };
        if ring.chunks.is_none() {
            let attr = self.plan.common.chunk_attr(watermark);
            let file = sys::perf_event_open(&attr, EventTarget::AllTasks, cpu as i32).ok()?;
            let id = sys::event_id(&file).ok()?;
            sys::share_ring(&file, &ring.events[0].file).ok()?;
            copier.set_output_event(cpu, &file).then_some(())?;
            ring.chunks = Some(ChunkEvent::new(file, id));
        }
        let last = ring.events.last().filter(|open_event| open_event.event == event);
        last.is_none_or(|open_event| copier.attach(&open_event.file)).then_some(())
    }

    /// Opens one event on one CPU, with a ring of `size` bytes if there is none to share.
    fn add(
        &mut self,
        attr: &perf_event_attr,
        cpu: u32,
        target: EventTarget<'_>,
        binding: EventBinding,
        size: usize,
    ) -> anyhow::Result<Result<(), OpenFailure>> {
        let Some(file) = open_event(attr, target, cpu)? else { return Ok(Ok(())) };
        let id = sys::event_id(&file).context("cannot tell events apart")?;
        let event = binding.event;
        let key = (cpu, event.is_none());
        if let Some(ring) = self.rings.get_mut(&key) {
            sys::share_ring(&file, &ring.events[0].file).context("cannot share a ring")?;
            ring.events.push(OpenEvent::new(file, event));
        } else {
            let ring = match Ring::map(&file, size) {
                Ok(ring) => ring,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) => {
                    return Ok(Err(OpenFailure::NoLockedMemory(error)));
                }
                Err(error) => return Err(error).context("cannot map a ring"),
            };
            let wakeup_bytes = if event.is_none() { 0 } else { self.wakeup_bytes() };
            let ring =
                CpuRing::new(ring, OpenEvent::new(file, event), cpu, u64::from(wakeup_bytes));
            self.rings.insert(key, ring);
        }
        self.bindings.insert(id, binding);
        Ok(Ok(()))
    }
}

/// Opens an event on a CPU; `None` when the CPU has gone off line or the task has ended.
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
                        "may not sample task {tid}: it is another user's; run as root or with \
                         CAP_PERFMON and CAP_SYS_PTRACE"
                    )
                }),
            _ => Err(open_error::explained(&format!("cannot open an event on CPU {cpu}"), &error)),
        },
    }
}
