//! An event that is counted by routine: open on every CPU, read by the programs of `bpf/calls.bpf.c` when
//! a thread enters or leaves a counted function.

use std::cell::RefCell;
use std::fs::File;
use std::io;

use anyhow::{anyhow, ensure};
use perf_event_open_sys::bindings as perf;
use perf_event_open_sys::bindings::perf_event_attr;
use rustc_hash::FxHashMap;

use crate::event::{Catalog, CpuMode, Event, EventSpec, PerfEventConfig};
use crate::os::open_error;
use crate::perf::calls::data::{CallKey, Charge, RoutineCount};
use crate::perf::calls::slices::{Added, SliceReader};
use crate::sys::{self, BpfMap, EventTarget};

/// The event, open on every CPU.
#[derive(Debug)]
pub(crate) struct CountedEvent {
    pub(crate) event: Event,
    pub(crate) scope: CpuMode,
    pub(super) files: Vec<(u32, File)>,
}

impl CountedEvent {
    /// Opens an event on these CPUs, for code of the modes of `spec`, otherwise of `mode`.
    ///
    /// # Errors
    ///
    /// If there is no such event, or the kernel does not open it, with the remedy.
    pub(crate) fn open(spec: &EventSpec, mode: CpuMode, cpus: &[u32]) -> anyhow::Result<Self> {
        let name = &spec.name;
        ensure!(spec.period.is_none(), "{name} is counted, not sampled; leave out its period");
        let not_counted =
            || anyhow!("{name} is no event that a CPU counts; name one such as page-faults");
        ensure!(!spec.is_of_recorder(), not_counted());
        let mut refusal = anyhow!("{name}: this machine has no such counter");
        for event in Catalog::of_this_machine().candidates(spec).map_err(|it| anyhow!(it))? {
            if event.is_written_by_bpf() || event.is_weighed() {
                return Err(not_counted());
            }
            // A counter would count the work of the kernel for the probes.
            let is_counter = |it: &PerfEventConfig| {
                it.kind != perf::PERF_TYPE_SOFTWARE && !it.is_traced() && !it.only_kernel
            };
            let mode = match mode {
                CpuMode::Both if event.configs.iter().any(is_counter) => CpuMode::User,
                mode => mode,
            };
            let scope = spec.mode.unwrap_or(mode);
            match open(&event, scope, cpus) {
                Ok(files) => return Ok(Self { event, scope, files }),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or_default();
                    refusal = anyhow!("{name}: {}", open_error::describe(errno));
                }
            }
        }
        Err(refusal)
    }

    /// Returns the CPUs on which it is open.
    pub(super) fn cpus(&self) -> impl Iterator<Item = u32> {
        self.files.iter().map(|(cpu, _)| *cpu)
    }

    /// True if it counts context switches, which the kernel does after the tracepoint.
    pub(super) fn counts_switches(&self) -> bool {
        let switches = u64::from(perf::PERF_COUNT_SW_CONTEXT_SWITCHES);
        let mut configs = self.event.configs.iter();
        configs.any(|it| it.kind == perf::PERF_TYPE_SOFTWARE && it.config == switches)
    }
}

/// Opens an event on these CPUs.
fn open(event: &Event, scope: CpuMode, cpus: &[u32]) -> io::Result<Vec<(u32, File)>> {
    let mut files = Vec::new();
    for &cpu in cpus {
        let Some(encoding) = event.configs.iter().find(|it| it.is_on(cpu)) else { continue };
        let mut attr = perf_event_attr::default();
        encoding.describe(&mut attr);
        // Not in turns with other events.
        attr.set_pinned(1);
        attr.set_exclude_kernel((scope == CpuMode::User && !encoding.only_kernel).into());
        attr.set_exclude_hv((scope == CpuMode::User).into());
        attr.set_exclude_user((scope == CpuMode::Kernel).into());
        files.push((cpu, sys::perf_event_open(&attr, EventTarget::AllTasks, cpu as i32)?));
    }
    if files.is_empty() { Err(io::Error::from_raw_os_error(libc::ENODEV)) } else { Ok(files) }
}

/// The counts of the event by path and thread that were read before.
#[derive(Debug, Default)]
pub(super) struct RoutineCounts {
    /// The path from which a path goes on, and the number of the function's place, by its number.
    known: RefCell<FxHashMap<u32, CallKey>>,
    reader: RefCell<SliceReader>,
}

impl RoutineCounts {
    /// Returns the counts in the maps of the programs, up to the end of `slice`, that were not returned before, with the ids of
    /// their threads: tid and pid.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(super) fn take(
        &self,
        charges: &BpfMap,
        paths: &BpfMap,
        slice: u64,
        lives: impl Fn(u32, CallKey) -> bool,
    ) -> io::Result<Vec<(u32, u32, RoutineCount)>> {
        let read = |raw: &[u8]| Some(Charge::read(raw)?.part(slice));
        let added = self.reader.borrow_mut().take(charges, read, lives)?;
        let is_known = |path: u32| self.known.borrow().contains_key(&path);
        if added.iter().any(|added| !is_known(added.key.point)) {
            let mut known = self.known.borrow_mut();
            paths.visit(|key, path| {
                let key = CallKey::of(key.try_into().map_or(0, u64::from_ne_bytes));
                known.insert(path.try_into().map_or(0, u32::from_ne_bytes), key);
            })?;
        }
        let count = |added: Added| {
            let (points, events) = (self.points(added.key.point), added.part.sum);
            let count = RoutineCount { points, events, is_living: added.is_living };
            (added.part.tid, added.part.pid, count)
        };
        Ok(added.into_iter().map(count).collect())
    }

    /// Returns the places of the functions of a path, the last one first.
    fn points(&self, path: u32) -> Vec<u32> {
        let known = self.known.borrow();
        let steps = std::iter::successors(known.get(&path), |step| known.get(&step.serial));
        steps.map(|step| step.point).collect()
    }
}
