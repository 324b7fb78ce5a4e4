//! The programs of `bpf/waits.bpf.c` in the running kernel: loads them, selects threads, reads the
//! state of these.
//!
//! They need CAP_BPF and CAP_PERFMON, Linux 6.16 for the tracepoint `sched_exit_tp`, and the kernel's
//! types in /sys/kernel/btf/vmlinux.

use std::cell::RefCell;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};

use anyhow::{Context, anyhow};
use rustc_hash::FxHashMap;

use crate::arch::pt_regs;
use crate::os::code_mapping::LoadedCode;
use crate::os::procfs::{self, ThreadNames};
use crate::perf::bpf::object::{self, BpfObject, ObjectBytes};
use crate::perf::bpf::shared_array;
use crate::perf::waits::data::{self, MeasuredThread, Phase, Progress, StackBytes, WaitingThread};
use crate::perf::waits::stack_copies::WaitStackCopies;
use crate::perf::waits::stack_reader::StackReader;
use crate::sys::{self, BpfMap, MapKind, ProgramKind};

/// The compiled programs.
const OBJECT: &[u8] = &ObjectBytes(*include_bytes!("../../../bpf/waits.bpf.o")).0;

/// The programs for tracepoints that follow the life of threads, with these.
const LIFE_PROGRAMS: [(&str, &CStr); 2] =
    [("on_fork", c"task_newtask"), ("on_exec", c"sched_process_exec")];

/// The program for exits, which is attached only if those for switches are not always.
const EXIT_PROGRAM: (&str, &CStr) = ("on_exit", c"sched_process_exit");

/// The programs for switches. The one for the end of a switch comes last: without it no other program
/// changes the state of a thread.
const SWITCH_PROGRAMS: [(&str, &CStr); 2] =
    [("on_switched_in", YOUNGEST_TRACEPOINT), ("on_switch", c"sched_switch")];

/// The tracepoint of the latest kernel.
const YOUNGEST_TRACEPOINT: &CStr = c"sched_exit_tp";

/// The program for wake-ups, which is attached only if their event is recorded.
const WAKE_PROGRAM: (&str, &CStr) = ("on_waking", c"sched_waking");

/// The function of the iterator that runs `on_task`.
const TASK_ITERATOR: &str = "bpf_iter_task";

/// The functions that the programs use, and the structures that they read.
const USED_TYPES: [&str; 13] = [
    TASK_ITERATOR,
    object::RDONLY_CAST_NAME,
    "task_struct",
    "sched_info",
    "sched_entity",
    "cfs_rq",
    "rq",
    "files_struct",
    "fdtable",
    "file",
    "inode",
    "bpf_iter_meta",
    "bpf_iter__task",
];

/// The most threads at a time. The kernel needs memory for those that exist, but takes 1 ms to prepare for
/// this number.
const THREADS_MAX: u32 = 1 << 17;

/// The number of places for threads, by their ids.
const PLACES: u32 = 1 << 12;

/// The shortest wait of which the stack is reported before its end, in ns.
const CAPTURE_AFTER_NS: u64 = 900_000_000;

/// The bytes of the first read of an iterator: twice as many as the kernel returns at once.
const PROGRESS_READ_BYTES: usize = 1 << 16;

/// What the program for the iterator over tasks does: `enum` of `window` in bpf/waits.bpf.c.
#[derive(Clone, Copy, Debug)]
enum Visit {
    Reports = 0,
    Opens = 1,
    Closes = 2,
    Names = 3,
    Follows = 4,
    Ends = 5,
}

/// The only key of an array of one value.
const FIRST: [u8; 4] = [0; 4];

/// Settings of the programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitConfig {
    /// The intervals of the events in ns; 0 if an event is not recorded.
    pub(crate) blocked_period: u64,
    pub(crate) runnable_period: u64,
    /// The interval in ns of the timers that sample CPU time; 0 if their samples are taken as they come.
    pub(crate) timer_period: u64,
    /// True if wake-ups are recorded.
    pub(crate) has_wakes: bool,
    /// True if waits are recorded in windows only.
    pub(crate) has_windows: bool,
    /// The bytes of each stack that the kernel copies; 0 if stacks are not copied.
    pub(crate) copied_bytes: u32,
}

impl WaitConfig {
    /// Returns the programs for tracepoints that it needs besides those for switches, in the order in which
    /// they are attached.
    fn programs(self) -> impl Iterator<Item = (&'static str, &'static CStr)> {
        let wakes = self.has_wakes.then_some(WAKE_PROGRAM);
        let exits = self.has_windows.then_some(EXIT_PROGRAM);
        wakes.into_iter().chain(exits).chain(LIFE_PROGRAMS)
    }
}

/// The loaded programs with their maps.
pub(crate) struct WaitTracer {
    /// The programs for tracepoints, in the order in which they are attached, and those for switches.
    programs: Vec<(File, &'static CStr)>,
    switch_programs: Vec<(File, &'static CStr)>,
    has_windows: bool,
    /// Each program is attached until its descriptor here is closed.
    attached: RefCell<Vec<File>>,
    attached_to_switches: RefCell<Vec<File>>,
    /// The program for the iterator over tasks.
    on_task: File,
    threads: BpfMap,
    /// The threads by the last bits of their ids; the programs move those of `threads` here.
    #[cfg(test)]
    places: BpfMap,
    /// The maps of the events that write samples, notes, and samples of wakers. The kernel empties them on close.
    samples: File,
    notes: File,
    wakes: File,
    capture_after: BpfMap,
    window: BpfMap,
    end_time: BpfMap,
    missed: BpfMap,
    /// The code of the programs, as far as the kernel has reported it.
    pub(crate) code: Vec<LoadedCode>,
    /// The copies of deep stacks; `None` if stacks are not copied.
    pub(crate) stack_copies: Option<WaitStackCopies>,
    /// The program for samples of timers; `None` if they are taken as they come.
    on_timer: Option<File>,
    /// The map of the program that it goes on with. The kernel empties it on close.
    next_program: File,
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
                "BPF programs cannot measure waiting from a pid namespace; run nprof-record in the initial one"
            ));
        }
        // First, as it takes longer to read the types of the kernel.
        sys::bpf_map(MapKind::PerfEvents, size_of::<u32>() as u32, 1).map_err(explained)?;
        let mut object = read_object(config, last_cpu).map_err(explained)?;
        let load = |(name, tracepoint)| -> anyhow::Result<(File, &CStr)> {
            Ok((object.load(name, ProgramKind::RawTracepoint).map_err(explained)?, tracepoint))
        };
        let programs = config.programs().map(load).collect::<Result<_, _>>()?;
        let switch_programs = SWITCH_PROGRAMS.into_iter().map(load).collect::<Result<_, _>>()?;
        let iterator = ProgramKind::Iterator(object.kernel_function(TASK_ITERATOR)?);
        let on_task = object.load("on_task", iterator).map_err(explained)?;
        let load_timer = || object.load("on_timer", ProgramKind::PerfEvent).map_err(explained);
        let on_timer = (config.timer_period > 0).then(load_timer).transpose()?;
        let stack_copies = match config.copied_bytes {
            0 => None,
            copied => Some(WaitStackCopies::new(&mut object, copied, last_cpu)?),
        };
        let tracer = Self {
            programs,
            switch_programs,
            has_windows: config.has_windows,
            attached: RefCell::default(),
            attached_to_switches: RefCell::default(),
            on_task,
            threads: object.take_map("threads")?,
            #[cfg(test)]
            places: object.take_map("places")?,
            samples: object.take_map("samples")?.file,
            notes: object.take_map("notes")?.file,
            wakes: object.take_map("wakes")?.file,
            capture_after: object.take_map("capture_after")?,
            window: object.take_map("window")?,
            end_time: object.take_map(".data")?,
            missed: object.take_map("missed")?,
            code: Vec::new(),
            stack_copies,
            on_timer,
            next_program: object.take_map("next_program")?.file,
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
        let youngest = self.switch_programs.iter().find(|(_, it)| *it == YOUNGEST_TRACEPOINT);
        let (program, tracepoint) = youngest.context("no program for it")?;
        attach(program, tracepoint).map(drop)
    }

    /// Reports the stacks of waits that are at least as long as this, in ns.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn capture_from(&self, shortest_ns: u64) -> anyhow::Result<()> {
        Ok(self.capture_after.set(&FIRST, &shortest_ns.to_ne_bytes())?)
    }

    /// Returns the number of threads that were not measured, because there are too many.
    pub(crate) fn missed(&self) -> u64 {
        let missed = self.missed.get(&FIRST);
        missed.and_then(|it| it.first_chunk().copied()).map_or(0, u64::from_ne_bytes)
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

    /// Attaches the program for samples of timers to an event. It goes on with the `next` program. Returns false
    /// if there is none.
    ///
    /// # Errors
    ///
    /// bpf(2), or that the event cannot run programs.
    pub(crate) fn attach_to_timer(&self, event: &File, next: Option<&File>) -> io::Result<bool> {
        let Some(on_timer) = &self.on_timer else { return Ok(false) };
        if let Some(next) = next {
            sys::bpf_map_set(&self.next_program, 0, next)?;
        }
        sys::attach_program(event, on_timer).map(|()| true)
    }

    /// Attaches the programs, but not those for switches if waits are recorded in windows only. They follow
    /// no thread yet.
    ///
    /// # Errors
    ///
    /// If a tracepoint does not exist, with the remedy.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        for (program, tracepoint) in &self.programs {
            self.attached.borrow_mut().push(attach(program, tracepoint)?);
        }
        if self.has_windows { Ok(()) } else { self.attach_to_switches() }
    }

    fn attach_to_switches(&self) -> anyhow::Result<()> {
        for (program, tracepoint) in &self.switch_programs {
            self.attached_to_switches.borrow_mut().push(attach(program, tracepoint)?);
        }
        Ok(())
    }

    /// Begins to record waits, also those that go on now.
    ///
    /// # Errors
    ///
    /// bpf(2), read(2). Nothing is recorded then.
    pub(crate) fn open_window(&self) -> anyhow::Result<()> {
        let opened = self.attach_to_switches().and_then(|()| self.visit(Visit::Opens));
        if opened.is_err() {
            self.detach_from_switches();
        }
        opened.map(drop)
    }

    /// Ends to record waits. Returns the threads that wait, with their stacks.
    ///
    /// # Errors
    ///
    /// bpf(2), read(2).
    pub(crate) fn close_window(&self) -> anyhow::Result<Vec<Progress>> {
        let threads = self.capture_from(0).and_then(|()| self.visit(Visit::Closes));
        self.detach_from_switches();
        Ok(Progress::read_all(&threads?))
    }

    /// Returns the names of the followed threads: /proc takes 10 us for each.
    ///
    /// # Errors
    ///
    /// bpf(2), read(2).
    pub(crate) fn names(&self) -> anyhow::Result<ThreadNames> {
        Ok(data::read_names(&self.visit(Visit::Names)?))
    }

    /// Runs the program for the iterator over tasks on all of them. Returns the bytes that it writes.
    fn visit(&self, visit: Visit) -> anyhow::Result<Vec<u8>> {
        self.window.set(&FIRST, &(visit as u64).to_ne_bytes())?;
        let written = self.iterate();
        self.window.set(&FIRST, &(Visit::Reports as u64).to_ne_bytes())?;
        Ok(written?)
    }

    fn iterate(&self) -> io::Result<Vec<u8>> {
        let mut file = sys::iterate(&self.on_task)?;
        let mut bytes = Vec::with_capacity(PROGRESS_READ_BYTES);
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn detach_from_switches(&self) {
        // In the order in which they were attached.
        self.attached_to_switches.borrow_mut().drain(..).for_each(drop);
    }

    /// Ends the measurement at `now_ns`, at once for all threads.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn end(&self, now_ns: u64) -> anyhow::Result<()> {
        Ok(self.end_time.set(&FIRST, &now_ns.to_ne_bytes())?)
    }

    /// Returns the state of each thread at the end of the measurement, with the stacks of those that wait and
    /// have not run since. The programs have reported those that have, and those that have exited.
    ///
    /// # Errors
    ///
    /// bpf(2), read(2).
    pub(crate) fn ended(&self) -> anyhow::Result<Vec<WaitingThread>> {
        self.capture_from(0)?;
        let waiting = StackReader::default().with_stacks(self.progress()?);
        self.capture_from(u64::MAX)?;
        Ok(keep_stacks(waiting, Progress::read_all(&self.visit(Visit::Ends)?)))
    }

    /// Detaches the programs: the state of each thread stays as it is.
    pub(crate) fn stop(&self) {
        self.attached.borrow_mut().drain(..).for_each(drop);
        self.detach_from_switches();
    }

    /// Follows the process of the command from its exec on.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn follow_command(&self, pid: u32) -> anyhow::Result<()> {
        let thread = MeasuredThread { phase: Phase::Pending, ..MeasuredThread::default() };
        self.insert(pid, &thread).map(drop)
    }

    /// Follows existing threads, all threads of the processes of which one is the first, and all tasks that
    /// they create. Returns the number of those that were not followed before.
    ///
    /// # Errors
    ///
    /// bpf(2), if there are too many threads.
    pub(crate) fn follow_processes(&self, threads: &[u32]) -> anyhow::Result<usize> {
        self.insert_found(threads)?;
        let added = self.visit(Visit::Follows)?.len() / size_of::<u32>();
        self.forget_exited()?;
        Ok(added)
    }

    /// Follows existing threads and all tasks that they create. Those that are followed already or
    /// have exited are left out. Returns the number of the others.
    ///
    /// # Errors
    ///
    /// bpf(2), if there are too many threads.
    pub(crate) fn follow(&self, threads: &[u32]) -> anyhow::Result<usize> {
        let added = self.insert_found(threads)?;
        if added == 0 {
            return Ok(0);
        }
        // The program reads the states of all threads at once; procfs has two files for each.
        self.progress_without_stacks()?;
        // A thread that executes another image has taken an earlier entry to another id.
        Ok(added.saturating_sub(self.forget_exited()?))
    }

    /// Removes the entries of threads that the program has not found, and returns their number: it
    /// follows the threads at their places already, or they had exited before, and a later thread of any
    /// process may get the id of one.
    fn forget_exited(&self) -> anyhow::Result<usize> {
        let mut exited = Vec::new();
        self.threads.visit(|tid, words| {
            if MeasuredThread::parse(words).is_some_and(|thread| thread.phase == Phase::Found) {
                exited.push(tid.to_vec());
            }
        })?;
        exited.iter().for_each(|tid| self.threads.remove(tid));
        Ok(exited.len())
    }

    /// Adds existing threads, which are measured once the program for the iterator has seen them. Returns
    /// the number of those that `threads` did not have.
    fn insert_found(&self, threads: &[u32]) -> anyhow::Result<usize> {
        let thread = MeasuredThread { phase: Phase::Found, ..MeasuredThread::default() };
        let mut added = 0;
        for &tid in threads {
            added += usize::from(self.insert(tid, &thread)?);
        }
        Ok(added)
    }

    /// Adds a thread. Returns false if `threads` has it already.
    fn insert(&self, tid: u32, thread: &MeasuredThread) -> anyhow::Result<bool> {
        let words: Vec<u8> = thread.words().iter().flat_map(|it| it.to_ne_bytes()).collect();
        match self.threads.set_new(&tid.to_ne_bytes(), &words) {
            Ok(()) => Ok(true),
            // The fork program may have added it since.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot follow thread {tid}")),
        }
    }

    /// Adds their stacks to threads that wait. A thread that has run since its registers were read gets
    /// none: they would be of different moments.
    pub(crate) fn with_stacks(&self, threads: Vec<Progress>) -> Vec<WaitingThread> {
        let mut threads = StackReader::default().with_stacks(threads);
        if threads.iter().all(|thread| thread.progress.capture.is_none()) {
            return threads;
        }
        let now = self.progress_without_stacks().unwrap_or_default();
        let now: FxHashMap<u32, &Progress> = now.iter().map(|it| (it.tid, it)).collect();
        for WaitingThread { progress, stack } in &mut threads {
            if now.get(&progress.tid).is_none_or(|now| now.has_run_since(progress)) {
                progress.capture = None;
                *stack = StackBytes::default();
            }
        }
        threads
    }

    /// Returns the state of each followed thread. The kernel reports a stack once: here it would be lost.
    fn progress_without_stacks(&self) -> anyhow::Result<Vec<Progress>> {
        self.capture_from(u64::MAX)?;
        let threads = self.progress();
        self.capture_from(CAPTURE_AFTER_NS)?;
        threads
    }

    /// Returns the state of each followed thread.
    ///
    /// # Errors
    ///
    /// bpf(2), read(2).
    pub(crate) fn progress(&self) -> anyhow::Result<Vec<Progress>> {
        Ok(Progress::read_all(&self.iterate()?))
    }
}

fn read_object(config: WaitConfig, last_cpu: u32) -> anyhow::Result<BpfObject> {
    let copied = u64::from(config.copied_bytes);
    let cpus = if copied == 0 { 1 } else { last_cpu + 1 };
    let hints = if copied == 0 { 1 } else { shared_array::HINT_SLOTS as u32 + cpus };
    let types = object::read_types(&USED_TYPES)?;
    let constants: [(&str, &[u8]); 13] = [
        ("run_queue_type", &types.number("rq")?.to_ne_bytes()),
        ("blocked_period", &config.blocked_period.to_ne_bytes()),
        ("runnable_period", &config.runnable_period.to_ne_bytes()),
        ("timer_period", &config.timer_period.to_ne_bytes()),
        ("call_offset", &pt_regs::CALL.to_ne_bytes()),
        ("argument_offset", &pt_regs::ARGUMENT.to_ne_bytes()),
        ("pointer_offset", &(pt_regs::SP as u32).to_ne_bytes()),
        ("mode_offset", &(pt_regs::MODE as u32).to_ne_bytes()),
        ("mode_mask", &(pt_regs::MODE_MASK as u64).to_ne_bytes()),
        ("mode_user", &(pt_regs::MODE_USER as u64).to_ne_bytes()),
        ("mode_compat", &(pt_regs::MODE_COMPAT as u64).to_ne_bytes()),
        ("register_bytes", &(pt_regs::BYTES as u32).to_ne_bytes()),
        ("copied", &copied.to_ne_bytes()),
    ];
    let entries = [
        ("threads", procfs::pid_max().map_or(THREADS_MAX, |max| max.min(THREADS_MAX))),
        ("places", PLACES),
        ("samples", last_cpu + 1),
        ("notes", last_cpu + 1),
        ("wakes", last_cpu + 1),
        ("chunks", last_cpu + 1),
        ("copies", cpus),
        ("hints", hints),
    ];
    BpfObject::read(OBJECT, &constants, &entries, types)
}

/// Returns the later states of threads, with their earlier stacks unless they have run since.
fn keep_stacks(earlier: Vec<WaitingThread>, later: Vec<Progress>) -> Vec<WaitingThread> {
    let mut earlier: FxHashMap<u32, WaitingThread> =
        earlier.into_iter().map(|thread| (thread.progress.tid, thread)).collect();
    let with_stack = |mut progress: Progress| {
        let kept = earlier.remove(&progress.tid).filter(|it| !progress.has_run_since(&it.progress));
        let (capture, stack) = kept.map(|it| (it.progress.capture, it.stack)).unwrap_or_default();
        progress.capture = capture;
        WaitingThread { progress, stack }
    };
    later.into_iter().map(with_stack).collect()
}

/// Attaches a program, with the remedy if that fails.
fn attach(program: &File, tracepoint: &CStr) -> anyhow::Result<File> {
    sys::attach_raw_tracepoint(program, tracepoint).map_err(|error| {
        anyhow!(
            "BPF programs cannot measure waiting: the tracepoint {}: {error}; it needs Linux 6.16 or later",
            tracepoint.to_string_lossy()
        )
    })
}

/// Adds the remedy.
fn explained(error: impl Into<anyhow::Error>) -> anyhow::Error {
    anyhow!(
        "BPF programs cannot measure waiting: {:#}; run as root or with CAP_BPF and CAP_PERFMON, on Linux 6.16 or \
         later",
        error.into()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::waits::data::THREAD_WORDS;
    use std::process::Command;

    /// Returns a loaded tracer; None where the kernel or the rights do not allow it.
    fn tracer() -> Option<WaitTracer> {
        let loaded = WaitTracer::load(WaitConfig::default(), 0);
        let started = loaded.and_then(|tracer| tracer.try_start().map(|()| tracer));
        started.inspect_err(|error| eprintln!("SKIPPED: {error:#}")).ok()
    }

    /// True if the programs follow a thread at its place.
    fn has_place(tracer: &WaitTracer, tid: u32) -> bool {
        let place = tracer.places.get(&(tid % PLACES).to_ne_bytes());
        place.is_some_and(|it| it.starts_with(&(!tid).to_ne_bytes()))
    }

    #[test]
    fn exited_thread_is_not_followed_under_its_id() {
        let Some(tracer) = tracer() else { return };
        let mut ended = Command::new("true").spawn().expect("it is installed");
        ended.wait().expect("it ends");
        let own = std::process::id();
        // Without the program for exits, which would hide an entry that stays.
        assert_eq!(tracer.follow(&[own, ended.id()]).expect("bpf(2)"), 1);
        assert_eq!(tracer.follow(&[own]).expect("bpf(2)"), 0, "it is followed");
        assert_eq!(tracer.threads.get(&own.to_ne_bytes()), None, "it has a place");
        let has =
            |tid: u32| has_place(&tracer, tid) || tracer.threads.get(&tid.to_ne_bytes()).is_some();
        assert!(has(own) && !has(ended.id()));
    }

    #[test]
    fn all_threads_of_a_process_are_followed_once_with_their_names() {
        let Some(tracer) = tracer() else { return };
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = std::sync::mpsc::channel();
        let waits = std::thread::Builder::new().name("follower".to_owned());
        let waiting = move || {
            // It names itself before.
            begin.send(()).expect("it is awaited");
            ended.recv()
        };
        let thread = waits.spawn(waiting).expect("a thread");
        begun.recv().expect("it runs");
        let own = std::process::id();
        let mut child = Command::new("sleep").arg("60").spawn().expect("it is installed");
        assert!(tracer.follow_processes(&[own]).expect("bpf(2)") >= 2);
        // Other tests start threads, too. Those of a child are not among them.
        assert!(tracer.progress().expect("bpf(2)").iter().all(|it| it.pid == own));
        assert_eq!(tracer.follow_processes(&[child.id()]).expect("bpf(2)"), 1);
        assert_eq!(tracer.follow_processes(&[child.id()]).expect("bpf(2)"), 0, "it is followed");
        let names = tracer.names().expect("bpf(2)");
        assert!(names[&own].iter().any(|(_, name)| name == b"follower"));
        let of_child: Vec<u32> = names[&child.id()].iter().map(|(tid, _)| *tid).collect();
        assert_eq!(of_child, [child.id()]);
        drop(end);
        assert!(thread.join().expect("it ends").is_err(), "nothing was sent");
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }

    #[test]
    fn thread_of_a_taken_place_is_followed() {
        let Some(tracer) = tracer() else { return };
        let own = std::process::id();
        let taken = u64::from(!(own + PLACES));
        let place: Vec<u8> = [&[taken][..], &[0; THREAD_WORDS]]
            .concat()
            .iter()
            .flat_map(|it| it.to_ne_bytes())
            .collect();
        tracer.places.set(&(own % PLACES).to_ne_bytes(), &place).expect("bpf(2)");
        assert_eq!(tracer.follow(&[own]).expect("bpf(2)"), 1);
        assert!(!has_place(&tracer, own));
        let progress = tracer.progress().expect("bpf(2)");
        assert_eq!(progress.iter().filter(|thread| thread.tid == own).count(), 1);
    }
}
