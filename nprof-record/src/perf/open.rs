//! Opens the events of a plan, for whom they are to count, with rings as large as the budget of
//! locked memory allows.

use std::fs::File;
use std::io;

use anyhow::Context;
use nprof_stream::EventId;
use perf_event_open_sys::bindings::perf_event_attr;
use rustc_hash::FxHashMap;

use crate::event::Encoding;
use crate::os::machine;
use crate::os::open_error;
use crate::os::procfs;
use crate::perf::bpf::stack_copier::Extender;
use crate::perf::plan::{self, Perf, Plan, Reach};
use crate::perf::record::Layout;
use crate::perf::ring_reader::{Opened, Parts, Source};
use crate::perf::ring_set::{Origin, Sources};
use crate::perf::time_merge::Order;
use crate::sys::{self, Ring, Whose};

/// The bytes of a ring for processes and mappings: of all the system's.
const SIDE_RING: usize = 256 << 10;

/// The same, of some tasks only, where locked memory is scarce.
const SIDE_RING_TASK: usize = 64 << 10;

/// How full a side ring gets before we are woken, bytes: a file that is mapped may not be there
/// for long.
const WATERMARK_SIDE: u32 = 8 << 10;

/// How full a ring gets at most before it is read at once, bytes.
const FULL_MAX: usize = 8 << 20;

/// Opens events for real.
#[derive(Debug)]
pub(crate) struct Kernel<'a> {
    /// The control group's directory, for [`Reach::Group`].
    pub(crate) group: Option<&'a File>,
}

impl Perf for Kernel<'_> {
    fn attempt(
        &self,
        attr: &perf_event_attr,
        _encoding: &Encoding,
        reach: Reach,
        cpu: u32,
    ) -> Result<(), i32> {
        // To try it, our own process is as good as the command.
        let whose = match (reach, self.group) {
            (Reach::Task, _) => Whose::Task(0),
            (Reach::Group, Some(group)) => Whose::Group(group),
            _ => Whose::All,
        };
        let opened = sys::perf_event_open(attr, whose, cpu as i32);
        opened.map(drop).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
    }
}

/// For whom events are opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom<'a> {
    Everyone,
    /// The tasks of a control group, given its directory.
    Group(&'a File),
    /// One task, and those it will make.
    Task(u32),
    /// All threads of some processes, and those they will make.
    Processes(&'a [u32]),
}

impl Sources {
    /// Opens the events of a plan on these CPUs, and what tells of processes and mappings on all.
    ///
    /// # Errors
    ///
    /// What perf_event_open(2) or mmap(2) says, with what to do about it.
    pub(crate) fn open(plan: &Plan, cpus: &[u32], whom: Whom<'_>) -> anyhow::Result<Self> {
        let page = sys::page_size();
        let least = plan.common.largest_record().next_power_of_two().max(page);
        let size = |extended: &[usize]| {
            let room = if extended.is_empty() { 0 } else { ROOM };
            let bytes = plan.bytes_per_second(extended);
            plan::ring_size(bytes, room, cpus.len(), page).max(least)
        };
        let mut extended = plan.extended();
        let mut wanted = size(&extended);
        loop {
            let extender = match extended.is_empty() {
                true => None,
                false => extender(plan, wanted),
            };
            if extender.is_none() && !extended.is_empty() {
                extended.clear();
                wanted = size(&extended);
            }
            let extender = extender.map(|extender| (extended.clone(), extender));
            match (Opener::new(plan, cpus, wanted, extender)).open(whom)? {
                Ok(sources) => return Ok(sources),
                Err(Unable::NoProgram) => {
                    extended.clear();
                    wanted = size(&extended);
                }
                // All rings alike: a command runs on any CPU.
                Err(Unable::NoMemory(_)) if wanted / 2 >= least => wanted /= 2,
                Err(Unable::NoMemory(error)) => {
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
const ROOM: u64 = 4 << 20;

/// What copies stacks with rings of `size` bytes, where it can be had.
fn extender(plan: &Plan, size: usize) -> Option<Extender> {
    let last_cpu = *machine::online_cpus().last()?;
    Extender::load(plan.common.extended().stack_size, size / 2, last_cpu)
}

/// Why events cannot be opened this way.
#[derive(Debug)]
enum Unable {
    /// There is too little memory to lock.
    NoMemory(io::Error),
    /// The event does not run the program, or nothing writes for it.
    NoProgram,
}

/// Opens everything with rings of one size.
struct Opener<'a> {
    plan: &'a Plan,
    cpus: &'a [u32],
    size: usize,
    /// What copies the stacks of the events of those numbers.
    extender: Option<(Vec<usize>, Extender)>,
    /// By CPU, and whether of processes and mappings.
    sources: FxHashMap<(u32, bool), Source>,
    origins: FxHashMap<u64, Origin>,
    /// The tasks that have events of their own, each its own.
    lineage: FxHashMap<u32, u32>,
}

/// How often it is looked for threads that were made meanwhile. Those made by threads that have
/// events already inherit them, so a few times will do.
const LOOKS: usize = 4;

impl<'a> Opener<'a> {
    fn new(
        plan: &'a Plan,
        cpus: &'a [u32],
        size: usize,
        extender: Option<(Vec<usize>, Extender)>,
    ) -> Self {
        Self {
            plan,
            cpus,
            size,
            extender,
            sources: FxHashMap::default(),
            origins: FxHashMap::default(),
            lineage: FxHashMap::default(),
        }
    }

    fn open(mut self, whom: Whom<'_>) -> anyhow::Result<Result<Sources, Unable>> {
        let opened = match whom {
            Whom::Everyone => self.open_for(Whose::All, None)?,
            Whom::Group(directory) => self.open_for(Whose::Group(directory), None)?,
            Whom::Task(tid) => self.open_for(Whose::Task(tid as i32), Some(tid))?,
            Whom::Processes(pids) => self.open_for_threads(pids)?,
        };
        if let Err(error) = opened {
            return Ok(Err(error));
        }
        let mut sources: Vec<_> = self.sources.into_values().collect();
        sources.sort_unstable_by_key(|source| (!source.events[0].event.is_none(), source.cpu));
        for (number, chosen) in self.plan.events.iter().enumerate() {
            let is_it = |opened: &Opened| opened.event.0 as usize == number + 1;
            let mut opened = sources.iter().flat_map(|source| &source.events);
            anyhow::ensure!(
                opened.any(is_it),
                "{}: there is no CPU it can be sampled on, or nobody to sample",
                chosen.asked
            );
        }
        Ok(Ok(Sources {
            sources,
            origins: self.origins,
            lineage: self.lineage,
            order: Order::default(),
            extender: self.extender.map(|(_, extender)| extender),
            tells_lost: self.plan.common.tells_lost(),
            side_looked: 0,
        }))
    }

    /// Threads make threads meanwhile: looks for more until there are none.
    fn open_for_threads(&mut self, pids: &[u32]) -> anyhow::Result<Result<(), Unable>> {
        for _ in 0..LOOKS {
            let threads = pids.iter().flat_map(|&pid| procfs::threads(pid));
            let new: Vec<_> = threads.filter(|tid| !self.lineage.contains_key(tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                self.lineage.insert(tid, tid);
                if let Err(error) = self.open_for(Whose::Task(tid as i32), Some(tid))? {
                    return Ok(Err(error));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Whether a program copies the stacks of the event of that number.
    fn is_extended(&self, number: usize) -> bool {
        self.extender.as_ref().is_some_and(|(numbers, _)| numbers.contains(&number))
    }

    /// How full a ring gets before it is read at once, bytes.
    fn full(&self) -> u32 {
        (self.size / 4).min(FULL_MAX) as u32
    }

    /// After how many bytes written to a ring we are woken each time. It may have been read since,
    /// and then it is not worth it; and it is not to get much fuller than full.
    fn watermark(&self) -> u32 {
        self.full() / 2
    }

    fn open_for(
        &mut self,
        whose: Whose<'_>,
        task: Option<u32>,
    ) -> anyhow::Result<Result<(), Unable>> {
        // Of processes and mappings we have to know wherever they are made.
        for cpu in machine::online_cpus() {
            if let Err(error) = self.open_on(cpu, whose, task)? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    fn open_on(
        &mut self,
        cpu: u32,
        whose: Whose<'_>,
        task: Option<u32>,
    ) -> anyhow::Result<Result<(), Unable>> {
        let plan = self.plan;
        let side_size = match whose {
            Whose::Task(_) => SIDE_RING_TASK,
            _ => SIDE_RING,
        };
        let side_size = side_size.max(sys::page_size());
        let attr = plan.common.side_attr(WATERMARK_SIDE);
        let layout = Layout::default();
        let origin = Origin { event: EventId::NONE, task, layout, is_extended: false };
        let added = self.add(&attr, cpu, whose, origin, side_size)?;
        if let Err(error) = added {
            return Ok(Err(error));
        }
        let is_sampled = self.cpus.contains(&cpu);
        for (number, chosen) in plan.events.iter().enumerate().filter(|_| is_sampled) {
            let here = |encoding: &&Encoding| {
                encoding.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
            };
            let Some(encoding) = chosen.event.encodings.iter().find(here) else { continue };
            let (interval, scope) = (chosen.interval, chosen.scope);
            let is_extended = self.is_extended(number);
            let common = if is_extended { plan.common.extended() } else { plan.common };
            let attr = common.sample_attr(encoding, interval, scope, self.watermark());
            let event = EventId(number as u32 + 1);
            let layout = plan.common.layout(interval);
            let origin = Origin { event, task, layout, is_extended };
            if let Err(error) = self.add(&attr, cpu, whose, origin, self.size)? {
                return Ok(Err(error));
            }
            if is_extended && self.extend(cpu, event).is_none() {
                return Ok(Err(Unable::NoProgram));
            }
        }
        Ok(Ok(()))
    }

    /// Lets the event that was added last copy more of stacks than the kernel does, if it is that
    /// one. `None` when it does not.
    fn extend(&mut self, cpu: u32, event: EventId) -> Option<()> {
        let watermark = self.watermark();
        let (Some((_, extender)), Some(source)) =
            (&self.extender, self.sources.get_mut(&(cpu, false)))
        else {
            return Some(());
        };
        if source.parts.is_none() {
            let attr = self.plan.common.parts_attr(watermark);
            let file = sys::perf_event_open(&attr, Whose::All, cpu as i32).ok()?;
            let id = sys::event_id(&file).ok()?;
            sys::share_ring(&file, &source.events[0].file).ok()?;
            extender.write_by(cpu, &file).then_some(())?;
            source.parts = Some(Parts::new(file, id));
        }
        let last = source.events.last().filter(|opened| opened.event == event);
        last.is_none_or(|opened| extender.run_by(&opened.file)).then_some(())
    }

    /// Opens one event on one CPU, with a ring of `size` bytes if there is none to share.
    fn add(
        &mut self,
        attr: &perf_event_attr,
        cpu: u32,
        whose: Whose<'_>,
        origin: Origin,
        size: usize,
    ) -> anyhow::Result<Result<(), Unable>> {
        let Some(file) = open_event(attr, whose, cpu)? else { return Ok(Ok(())) };
        let id = sys::event_id(&file).context("cannot tell events apart")?;
        let event = origin.event;
        let key = (cpu, event.is_none());
        if let Some(source) = self.sources.get_mut(&key) {
            sys::share_ring(&file, &source.events[0].file).context("cannot share a ring")?;
            source.events.push(Opened::new(file, event));
        } else {
            let ring = match Ring::map(&file, size) {
                Ok(ring) => ring,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) => {
                    return Ok(Err(Unable::NoMemory(error)));
                }
                Err(error) => return Err(error).context("cannot map a ring"),
            };
            let full = if event.is_none() { 0 } else { self.full() };
            let source = Source::new(ring, Opened::new(file, event), cpu, u64::from(full));
            self.sources.insert(key, source);
        }
        self.origins.insert(id, origin);
        Ok(Ok(()))
    }
}

/// Opens an event on a CPU; `None` when the CPU has gone off line or the task has ended.
fn open_event(attr: &perf_event_attr, whose: Whose<'_>, cpu: u32) -> anyhow::Result<Option<File>> {
    match sys::perf_event_open(attr, whose, cpu as i32) {
        Ok(event) => Ok(Some(event)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENODEV | libc::ESRCH) => Ok(None),
            Some(libc::EACCES | libc::EPERM) if let Whose::Task(tid) = whose => Err(error)
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
