//! The programs of `bpf/waits.bpf.c` in the running kernel: loads them, selects threads, reads the
//! state of these.
//!
//! They need CAP_BPF and CAP_PERFMON, Linux 6.16 for the tracepoint `sched_exit_tp`, and the kernel's
//! types in /sys/kernel/btf/vmlinux.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};

use anyhow::{Context, anyhow};
use aya::maps::{Array, HashMap, MapData};
use aya::programs::{Iter, RawTracePoint};
use aya::{Btf, Ebpf, EbpfLoader, VerifierLogLevel};

use crate::arch::pt_regs;
use crate::os::procfs;
use crate::perf::bpf::shared_array;
use crate::perf::waits::data::{MeasuredThread, Phase, Progress, THREAD_WORDS, WaitState};
use crate::perf::waits::stack_copies::{WaitStackCopies, map_file};
use crate::sys::{self, MapKind};

/// The compiled programs. aya reads words in place, so they are aligned.
const OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/waits.bpf.o");

/// The programs for tracepoints, with these. The one for the end of a switch comes last: without it
/// no other program changes the state of a thread.
const PROGRAMS: [(&str, &str); 4] = [
    ("on_fork", "sched_process_fork"),
    ("on_exec", "sched_process_exec"),
    ("on_switched_in", "sched_exit_tp"),
    ("on_switch", "sched_switch"),
];

/// The program for the tracepoint of the latest kernel.
const YOUNGEST_PROGRAM: (&str, &str) = PROGRAMS[2];

/// The program for wake-ups, which is attached only if their event is recorded.
const WAKE_PROGRAM: (&str, &str) = ("on_waking", "sched_waking");

/// The most threads at a time. Memory is used for those that exist.
const THREADS_MAX: u32 = 1 << 17;

/// The flag of bpf(2) to keep an existing value.
const NO_EXIST: u64 = 1;

/// The shortest wait of which the stack is reported before its end, in ns.
const CAPTURE_AFTER_NS: u64 = 900_000_000;

/// Settings of the programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitConfig {
    /// The intervals of the events in ns; 0 if an event is not recorded.
    pub(crate) blocked_period: u64,
    pub(crate) runnable_period: u64,
    /// True if wake-ups are recorded.
    pub(crate) has_wakes: bool,
    /// The bytes of each stack that the kernel copies; 0 if stacks are not copied.
    pub(crate) copied_bytes: u32,
}

impl WaitConfig {
    /// Returns the programs for tracepoints that it needs, in the order in which they are attached.
    fn programs(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.has_wakes.then_some(WAKE_PROGRAM).into_iter().chain(PROGRAMS)
    }
}

/// The loaded programs with their maps.
pub(crate) struct WaitTracer {
    config: WaitConfig,
    programs: RefCell<Ebpf>,
    threads: RefCell<HashMap<MapData, u32, [u64; THREAD_WORDS]>>,
    /// The maps of the events that write samples, notes, and samples of wakers. The kernel empties them on close.
    samples: File,
    notes: File,
    wakes: File,
    capture_after: RefCell<Array<MapData, u64>>,
    missed: Array<MapData, u64>,
    /// The copies of deep stacks; `None` if stacks are not copied.
    pub(crate) stack_copies: Option<WaitStackCopies>,
}

impl std::fmt::Debug for WaitTracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitTracer").finish_non_exhaustive()
    }
}

impl WaitTracer {
    /// Loads the programs, for CPUs up to `last_cpu`. They measure nothing before [`Self::start`].
    ///
    /// # Errors
    ///
    /// If this kernel or these rights do not allow it, with the remedy.
    pub(crate) fn load(config: WaitConfig, last_cpu: u32) -> anyhow::Result<Self> {
        if procfs::is_in_pid_namespace() {
            return Err(anyhow!(
                "waiting cannot be measured from a pid namespace; run nprof-record in the initial one"
            ));
        }
        // First, as it takes 0.1 s to read the types of the kernel.
        sys::bpf_map(MapKind::PerfEvents, size_of::<u32>() as u32, 1).map_err(explained)?;
        let types = Btf::from_sys_fs().map_err(|error| {
            anyhow!(
                "waiting cannot be measured: {error}; it needs a kernel with CONFIG_DEBUG_INFO_BTF"
            )
        })?;
        let mut programs = load_object(config, last_cpu, &types).map_err(explained)?;
        load_programs(config, &mut programs, &types).map_err(explained)?;
        let samples = map_file(&mut programs, "samples")?;
        let notes = map_file(&mut programs, "notes")?;
        let wakes = map_file(&mut programs, "wakes")?;
        let threads = programs.take_map("threads").context("no map of threads")?;
        let threads = RefCell::new(HashMap::try_from(threads)?);
        let capture_after = programs.take_map("capture_after").context("no map of settings")?;
        let capture_after = RefCell::new(Array::try_from(capture_after)?);
        let missed = programs.take_map("missed").context("no map of missed threads")?;
        let missed = Array::try_from(missed)?;
        let stack_copies = match config.copied_bytes {
            0 => None,
            copied => Some(WaitStackCopies::new(&mut programs, copied, last_cpu)?),
        };
        let programs = RefCell::new(programs);
        let tracer = Self {
            config,
            programs,
            threads,
            samples,
            notes,
            wakes,
            capture_after,
            missed,
            stack_copies,
        };
        tracer.capture_from(CAPTURE_AFTER_NS)?;
        Ok(tracer)
    }

    /// Checks that waiting can be measured.
    ///
    /// # Errors
    ///
    /// Those of [`Self::load`] and [`Self::try_start`].
    pub(crate) fn check() -> anyhow::Result<()> {
        Self::load(WaitConfig::default(), 0)?.try_start()
    }

    /// Checks that the programs can be attached: the kernel may lack the youngest tracepoint.
    ///
    /// # Errors
    ///
    /// If it does not exist, with the remedy.
    pub(crate) fn try_start(&self) -> anyhow::Result<()> {
        let mut programs = self.programs.borrow_mut();
        let (name, tracepoint) = YOUNGEST_PROGRAM;
        let program = tracepoint_program(&mut programs, name)?;
        let link = program.attach(tracepoint).map_err(|error| no_tracepoint(tracepoint, &error))?;
        Ok(program.detach(link)?)
    }

    /// Reports the stacks of waits that are at least as long as this, in ns.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn capture_from(&self, shortest_ns: u64) -> anyhow::Result<()> {
        Ok(self.capture_after.borrow_mut().set(0, shortest_ns, 0)?)
    }

    /// Returns the number of threads that were not measured, because there are too many.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.get(&0, 0).unwrap_or(0)
    }

    /// Makes events that are open on a CPU those that write samples, notes, and samples of wakers.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn set_output_events(
        &self,
        cpu: u32,
        samples: &File,
        notes: &File,
        wakes: Option<&File>,
    ) -> io::Result<()> {
        sys::bpf_map_set(&self.samples, cpu, samples)?;
        sys::bpf_map_set(&self.notes, cpu, notes)?;
        wakes.map_or(Ok(()), |wakes| sys::bpf_map_set(&self.wakes, cpu, wakes))
    }

    /// Attaches the programs. They follow no thread yet.
    ///
    /// # Errors
    ///
    /// If a tracepoint does not exist, with the remedy.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let mut programs = self.programs.borrow_mut();
        for (name, tracepoint) in self.config.programs() {
            let program = tracepoint_program(&mut programs, name)?;
            program.attach(tracepoint).map_err(|error| no_tracepoint(tracepoint, &error))?;
        }
        Ok(())
    }

    /// Detaches the programs: the state of each thread stays as it is.
    pub(crate) fn stop(&self) {
        let mut programs = self.programs.borrow_mut();
        for (name, _) in self.config.programs() {
            // An error leaves it attached until this process ends.
            if let Ok(program) = tracepoint_program(&mut programs, name) {
                let _ = program.unload();
            }
        }
    }

    /// Follows the process of the command from its exec on.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn follow_command(&self, pid: u32) -> anyhow::Result<()> {
        let thread = MeasuredThread { phase: Phase::Pending, ..MeasuredThread::default() };
        self.insert(pid, &thread)
    }

    /// Follows existing threads and all tasks that they create. Those that are followed already or
    /// have exited are left out.
    ///
    /// # Errors
    ///
    /// bpf(2), if there are too many threads.
    pub(crate) fn follow(&self, threads: Vec<u32>) -> anyhow::Result<()> {
        for tid in threads {
            let Some((letter, run_delay_ns)) = procfs::scheduling(tid) else { continue };
            let state = WaitState::of_letter(letter);
            let now_ns = sys::monotonic_ns();
            let thread = MeasuredThread {
                begin_ns: now_ns,
                since_ns: now_ns,
                run_delay_ns,
                state,
                ..MeasuredThread::default()
            };
            self.insert(tid, &thread)?;
        }
        Ok(())
    }

    fn insert(&self, tid: u32, thread: &MeasuredThread) -> anyhow::Result<()> {
        let mut threads = self.threads.borrow_mut();
        let known = threads.get(&tid, 0).is_ok();
        match threads.insert(tid, thread.words(), NO_EXIST) {
            // The fork program may have added it since.
            Err(error) if !known && threads.get(&tid, 0).is_err() => {
                Err(error).with_context(|| format!("cannot follow thread {tid}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the state of each followed thread.
    ///
    /// # Errors
    ///
    /// bpf(2), read(2).
    pub(crate) fn progress(&self) -> anyhow::Result<Vec<Progress>> {
        let mut programs = self.programs.borrow_mut();
        let program: &mut Iter =
            programs.program_mut("on_task").context("no program for tasks")?.try_into()?;
        let link = program.attach()?;
        let mut file = program.take_link(link)?.into_file()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut rest = &bytes[..];
        Ok(std::iter::from_fn(|| Progress::read(&mut rest)).collect())
    }
}

fn load_object(config: WaitConfig, last_cpu: u32, types: &Btf) -> Result<Ebpf, aya::EbpfError> {
    let (copied, compat) = (u64::from(config.copied_bytes), pt_regs::MODE_COMPAT as u64);
    let cpus = if copied == 0 { 1 } else { last_cpu + 1 };
    let hints = if copied == 0 { 1 } else { shared_array::HINT_SLOTS as u32 + cpus };
    EbpfLoader::new()
        .btf(Some(types))
        .verifier_log_level(VerifierLogLevel::DISABLE)
        .override_global("blocked_period", &config.blocked_period, true)
        .override_global("runnable_period", &config.runnable_period, true)
        .override_global("call_offset", &pt_regs::CALL, true)
        .override_global("argument_offset", &pt_regs::ARGUMENT, true)
        .override_global("pointer_offset", &(pt_regs::SP as u32), true)
        .override_global("mode_offset", &(pt_regs::MODE as u32), true)
        .override_global("mode_compat", &compat, true)
        .override_global("copied", &copied, true)
        .map_max_entries("threads", THREADS_MAX)
        .map_max_entries("samples", last_cpu + 1)
        .map_max_entries("notes", last_cpu + 1)
        .map_max_entries("wakes", last_cpu + 1)
        .map_max_entries("chunks", last_cpu + 1)
        .map_max_entries("copies", cpus)
        .map_max_entries("hints", hints)
        .load(OBJECT)
}

fn load_programs(config: WaitConfig, programs: &mut Ebpf, types: &Btf) -> anyhow::Result<()> {
    for (name, _) in config.programs() {
        tracepoint_program(programs, name)?.load()?;
    }
    let tasks: &mut Iter =
        programs.program_mut("on_task").context("no program for tasks")?.try_into()?;
    Ok(tasks.load("task", types)?)
}

fn tracepoint_program<'a>(
    programs: &'a mut Ebpf,
    name: &str,
) -> anyhow::Result<&'a mut RawTracePoint> {
    let program = programs.program_mut(name).with_context(|| format!("no program {name}"))?;
    Ok(program.try_into()?)
}

fn no_tracepoint(tracepoint: &str, error: &aya::programs::ProgramError) -> anyhow::Error {
    anyhow!(
        "waiting cannot be measured: the tracepoint {tracepoint}: {error}; it needs Linux 6.16 or later"
    )
}

/// Adds the remedy.
fn explained(error: impl Into<anyhow::Error>) -> anyhow::Error {
    error.into().context(
        "waiting cannot be measured; run as root or with CAP_BPF and CAP_PERFMON, on Linux 6.16 or \
         later",
    )
}
