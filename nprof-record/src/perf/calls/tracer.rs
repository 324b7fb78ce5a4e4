//! The programs of `bpf/calls.bpf.c` in the running kernel: attaches them to functions, selects
//! threads, reads the counters.
//!
//! They need CAP_BPF and CAP_PERFMON, Linux 6.6 for links to many places of a file or CONFIG_FPROBE for
//! functions of the kernel, and the kernel's types in /sys/kernel/btf/vmlinux.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow, bail};

use crate::os::procfs;
use crate::perf::bpf::object::VerifierRefusal;
use crate::perf::calls::cost::CallCost;
use crate::perf::calls::data::{
    CallKey, CallRest, Counter, RoutineCount, SETTINGS, SLICE_NS, Setting, TakenOff,
};
use crate::perf::calls::loader::{self, LoadedCalls};
use crate::perf::calls::points::{Point, PointList};
use crate::perf::calls::routines::{CountedEvent, RoutineCounts};
use crate::perf::calls::slices::{Added, SliceReader};
use crate::sys::{self, ProgramKind, SavedAffinity, SharedWords};

/// The program for calls.
const CALLS: &str = "on_call";

/// The programs for tracepoints, with these.
const TRACEPOINTS: [(&str, &CStr); 3] = [
    ("on_fork", c"sched_process_fork"),
    ("on_exec", c"sched_process_exec"),
    ("on_exit", c"sched_process_exit"),
];

/// The programs for entries and ends of functions, and that for a tracepoint, if an event is counted by
/// routine.
const ENTER: &str = "on_enter";
const LEAVE: &str = "on_leave";
const SWITCH: (&str, &CStr) = ("on_switch", c"sched_switch");

/// The words of a point after those of the CPUs, and their number.
#[derive(Clone, Copy, Debug)]
enum PointWord {
    IsSampled,
    /// The calls of threads for which there was no counter.
    Overflow,
    /// 1 if the function is not counted any more.
    IsOff,
}
const POINT_WORDS: usize = 3;

/// The first number of a thread that the recorder gives: those of the programs are below.
const FIRST_OWN_SERIAL: u32 = 1 << 31;

/// The bit in the id of an idle thread, see `IDLE` in `bpf/calls.bpf.c`.
const IDLE: u32 = 1 << 31;

/// The samples of a second of all functions together at which fewer are taken.
const SAMPLES_MAX: u64 = 2000;

/// The largest part of a slice's calls that is sampled, as the exponent of 2.
const SHIFT_MAX: u64 = 7;

/// The shortest time over which calls per second are measured, in ns.
const RATE_NS: u64 = 100_000_000;

/// The calls of each function at a time.
#[derive(Debug, Default)]
struct Rates {
    at_ns: u64,
    calls: Vec<u64>,
}

/// The loaded programs with their maps.
#[derive(Debug)]
pub(crate) struct CallTracer {
    pub(crate) list: PointList,
    loaded: LoadedCalls,
    settings: SharedWords,
    points: SharedWords,
    /// Words of each point.
    width: usize,
    tracepoints: RefCell<Vec<File>>,
    /// The links of each image; none if no function of it is counted.
    links: RefCell<Vec<Vec<File>>>,
    /// True for functions that are not counted any more.
    taken_off: RefCell<Vec<bool>>,
    generation: Cell<u32>,
    serials: Cell<u32>,
    /// The calls without a sample that were returned.
    reader: RefCell<SliceReader>,
    /// The event that is counted by routine.
    pub(crate) counted: Option<CountedEvent>,
    routines: RoutineCounts,
    /// The threads that close links.
    closing: RefCell<Vec<JoinHandle<()>>>,
    overflows: RefCell<Vec<u64>>,
    /// The calls that closed links missed.
    link_misses: Cell<u64>,
    rates: RefCell<Rates>,
    is_stopped: Cell<bool>,
    /// The first failure to read counters or to attach again.
    failure: RefCell<Option<String>>,
    cost: Cell<CallCost>,
}

impl CallTracer {
    /// Loads the programs for a list, and for an event that is counted by routine, for CPUs up to
    /// `last_cpu`. They count nothing before [`Self::start`].
    ///
    /// # Errors
    ///
    /// If this kernel or these rights do not allow it, with the remedy.
    pub(crate) fn load(
        list: PointList,
        counted: Option<CountedEvent>,
        last_cpu: u32,
    ) -> anyhow::Result<Self> {
        if procfs::is_in_pid_namespace() {
            bail!(
                "calls cannot be counted from a pid namespace; run nprof-record in the initial one"
            );
        }
        let width = last_cpu as usize + 1 + POINT_WORDS;
        // One more for the function of which `measure_cost` counts the calls.
        let count = (list.points.len() + 1) * width;
        let words = u32::try_from(count).context("too many functions for this number of CPUs")?;
        let tracepoints = TRACEPOINTS.map(|(name, _)| (name, ProgramKind::RawTracepoint));
        let kind = if list.is_kernel() { ProgramKind::Kprobes } else { ProgramKind::Uprobes };
        let mut names = [&[(CALLS, kind)], &tracepoints[..]].concat();
        if counted.is_some() {
            names.extend([ENTER, LEAVE].map(|name| (name, ProgramKind::Uprobes)));
            names.push((SWITCH.0, ProgramKind::RawTracepoint));
        }
        let counts_switches = counted.as_ref().is_some_and(CountedEvent::counts_switches);
        let loaded = loader::load(words, last_cpu, counts_switches, &names).map_err(explained)?;
        for (cpu, file) in counted.iter().flat_map(|counted| &counted.files) {
            sys::bpf_map_set(&loaded.counted, *cpu, file).map_err(explained)?;
        }
        let settings = SharedWords::map(&loaded.settings, SETTINGS)?;
        let points = SharedWords::map(&loaded.points, count)?;
        settings.set(Setting::Cpus as usize, u64::from(last_cpu) + 1);
        settings.set(Setting::Floor as usize, 1);
        settings.set(Setting::Shift as usize, SHIFT_MAX);
        let (images, functions) = (list.images.len(), list.points.len());
        Ok(Self {
            list,
            loaded,
            settings,
            points,
            width,
            tracepoints: RefCell::default(),
            links: RefCell::new((0..images).map(|_| Vec::new()).collect()),
            taken_off: RefCell::new(vec![false; functions]),
            generation: Cell::default(),
            serials: Cell::new(FIRST_OWN_SERIAL),
            reader: RefCell::default(),
            counted,
            routines: RoutineCounts::default(),
            closing: RefCell::default(),
            overflows: RefCell::new(vec![0; functions]),
            link_misses: Cell::default(),
            rates: RefCell::default(),
            is_stopped: Cell::new(false),
            failure: RefCell::default(),
            cost: Cell::default(),
        })
    }

    /// Makes an event that is open on a CPU the one that writes samples.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn set_output_event(&self, cpu: u32, samples: &File) -> io::Result<()> {
        sys::bpf_map_set(&self.loaded.samples, cpu, samples)
    }

    /// Sets the start of the first slice.
    pub(crate) fn set_begin(&self, begin_ns: u64) {
        self.settings.set(Setting::Begin as usize, begin_ns);
    }

    /// Returns the start of the first slice. None if it is not set.
    pub(crate) fn begin_ns(&self) -> Option<u64> {
        Some(self.settings.get(Setting::Begin as usize)).filter(|&begin_ns| begin_ns > 0)
    }

    /// Attaches the programs. They follow no thread yet.
    ///
    /// # Errors
    ///
    /// If an image cannot be probed, with the remedy.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let mut tracepoints = self.tracepoints.borrow_mut();
        for (name, tracepoint) in
            TRACEPOINTS.into_iter().chain(self.counted.is_some().then_some(SWITCH))
        {
            let program = self.loaded.programs.get(name).context("no program")?;
            tracepoints.push(sys::attach_raw_tracepoint(program, tracepoint).map_err(explained)?);
        }
        for image in 0..self.list.images.len() {
            let links = self.attach(image)?;
            self.links.borrow_mut()[image] = links;
        }
        Ok(())
    }

    /// Attaches the programs to the functions of an image that are counted. No links if there are none.
    fn attach(&self, image: usize) -> anyhow::Result<Vec<File>> {
        let taken_off = self.taken_off.borrow();
        let generation = u64::from(self.generation.get());
        let points = || {
            let numbered = (generation << 32..).zip(&self.list.points).zip(&*taken_off);
            numbered.filter(|((_, point), is_off)| point.image == image && !**is_off)
        };
        let entries = || points().map(|((cookie, point), _)| (point.offset, cookie)).unzip();
        let (mut offsets, cookies): (Vec<u64>, Vec<u64>) = entries();
        if offsets.is_empty() {
            return Ok(Vec::new());
        }
        let path = self.list.path(image)?;
        let program = |name| self.loaded.programs.get(name).context("no program");
        let attach = |name, offsets: &[u64], cookies: &[u64]| {
            let link = match self.list.images[image].base {
                Some(_) => sys::attach_kprobes(program(name)?, offsets, cookies),
                None => sys::attach_uprobes(program(name)?, &path, offsets, cookies),
            };
            link.map_err(explained).with_context(|| path.to_string_lossy().into_owned())
        };
        if let Some(base) = self.list.images[image].base {
            offsets.iter_mut().for_each(|offset| *offset = offset.wrapping_add(base));
        }
        let mut links = vec![attach(CALLS, &offsets, &cookies)?];
        if self.counted.is_some() {
            let ends = |point: &Point, cookie: u64| {
                let ends = point.ends.iter().flatten().copied();
                ends.map(|end| (end, cookie)).collect::<Vec<_>>()
            };
            let ends = points().flat_map(|((cookie, point), _)| ends(point, cookie));
            let (ends, of): (Vec<u64>, Vec<u64>) = ends.unzip();
            // First the ends: a routine must not be entered without a way to leave it.
            if !ends.is_empty() {
                links.push(attach(LEAVE, &ends, &of)?);
            }
            let entries = points().filter(|((_, point), _)| point.ends.is_some());
            let entries = entries.map(|((cookie, point), _)| (point.offset, cookie));
            let (entries, of): (Vec<u64>, Vec<u64>) = entries.unzip();
            if !entries.is_empty() {
                links.push(attach(ENTER, &entries, &of)?);
            }
        }
        Ok(links)
    }

    /// Detaches the programs: the counters stay as they are.
    pub(crate) fn stop(&self) {
        if let Some(counted) = &self.counted {
            // The events of a running thread are added when it is switched out: for this one.
            run_on_each(counted.cpus());
            // The probes are removed one after the other: a routine may be entered and not left.
            self.settings.set(Setting::Stopped as usize, 1);
        }
        let links = std::mem::take(&mut *self.links.borrow_mut());
        links.iter().flatten().for_each(|link| self.note_misses(link));
        // One grace period of the kernel for each image: at the same time.
        let mut closing = self.closing.take();
        closing.extend(links.into_iter().flatten().map(|link| thread::spawn(move || drop(link))));
        for thread in closing {
            let _ = thread.join();
        }
        self.tracepoints.borrow_mut().clear();
        self.is_stopped.set(true);
    }

    /// Returns the counts of the event by routine, up to the end of `slice`, that were not returned
    /// before, with the ids of their threads: tid and pid.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn take_counts(&self, slice: u64) -> io::Result<Vec<(u32, u32, RoutineCount)>> {
        if self.counted.is_none() {
            return Ok(Vec::new());
        }
        let LoadedCalls { charges, paths, .. } = &self.loaded;
        self.routines.take(charges, paths, slice, |tid, key| self.lives(tid, key))
    }

    /// Returns how often there was no room for the events of a routine, and how often the event that is
    /// counted by routine could not be read.
    pub(crate) fn missed_counts(&self) -> [u64; 2] {
        [Setting::MissedRoutines, Setting::Unreadable].map(|it| self.settings.get(it as usize))
    }

    /// Returns the names of the functions of unknown ends, if an event is counted by routine: its events in
    /// them are those of their callers.
    pub(crate) fn without_ends(&self) -> Vec<Vec<u8>> {
        let points = self.list.points.iter().filter(|_| self.counted.is_some());
        points.filter(|point| point.ends.is_none()).map(|point| point.name.clone()).collect()
    }

    /// Adds the calls that a link missed, before it is closed.
    fn note_misses(&self, link: &File) {
        if self.list.is_kernel() {
            let misses = sys::link_misses(link).unwrap_or(0);
            self.link_misses.set(self.link_misses.get() + misses);
        }
    }

    /// Returns the calls of functions of the kernel that were not counted, because they came while another
    /// one was being counted on the same CPU. Calls by threads that are not followed are among them.
    pub(crate) fn missed_calls(&self) -> u64 {
        if !self.list.is_kernel() {
            return 0;
        }
        let program = self.loaded.programs.get(CALLS);
        let misses = program.and_then(|program| sys::program_misses(program).ok());
        self.link_misses.get() + misses.unwrap_or(0)
    }

    /// True if the programs were detached.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }

    /// Keeps the first failure.
    pub(crate) fn note_failure(&self, error: &anyhow::Error) {
        self.failure.borrow_mut().get_or_insert_with(|| format!("{error:#}"));
    }

    /// Returns the first failure. None if there was none.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Follows all threads of the system.
    pub(crate) fn follow_everyone(&self) {
        self.settings.set(Setting::Everyone as usize, 1);
    }

    /// Follows the process of the command from its exec on.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn follow_command(&self, pid: u32) -> anyhow::Result<()> {
        self.insert(pid, true)
    }

    /// Follows existing threads and all tasks that they create. Those that are followed already or
    /// exit are left out. Returns the number of the others.
    ///
    /// # Errors
    ///
    /// bpf(2), if there are too many threads.
    pub(crate) fn follow(&self, threads: Vec<u32>) -> anyhow::Result<usize> {
        let mut added = 0;
        for tid in threads {
            if self.loaded.threads.get(&tid.to_ne_bytes()).is_some() {
                continue;
            }
            self.insert(tid, false)?;
            // The program for exits may have run before. A later thread of any process may get the id.
            if procfs::is_exiting(tid) {
                self.loaded.threads.remove(&tid.to_ne_bytes());
            } else {
                added += 1;
            }
        }
        Ok(added)
    }

    fn insert(&self, tid: u32, is_pending: bool) -> anyhow::Result<()> {
        self.serials.set(self.serials.get() + 1);
        let thread = u64::from(self.serials.get()) | u64::from(is_pending) << 32;
        let inserted = self.loaded.threads.set(&tid.to_ne_bytes(), &thread.to_ne_bytes());
        inserted.with_context(|| format!("cannot follow thread {tid}"))
    }

    /// Returns the number of threads that were not followed, because there were too many.
    pub(crate) fn missed_threads(&self) -> u64 {
        self.settings.get(Setting::MissedThreads as usize)
    }

    /// Returns the calls of all functions so far.
    pub(crate) fn calls(&self) -> u64 {
        (0..self.list.points.len()).map(|point| self.calls_of(point)).sum()
    }

    fn calls_of(&self, point: usize) -> u64 {
        let first = point * self.width;
        let by_cpu = (first..first + self.width - POINT_WORDS).map(|word| self.points.get(word));
        by_cpu.sum::<u64>() + self.points.get(self.word(point, PointWord::Overflow))
    }

    /// Returns the number of a word of a point.
    fn word(&self, point: usize, word: PointWord) -> usize {
        (point + 1) * self.width - POINT_WORDS + word as usize
    }

    /// Returns the calls, up to the end of `slice`, that no sample has and that were not returned
    /// before, with the ids of their threads: tid and pid.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn take_rests(&self, slice: u64) -> io::Result<Vec<(u32, u32, CallRest)>> {
        let read = |raw: &[u8]| Some(Counter::read(raw)?.part(slice));
        let lives = |tid, key| self.lives(tid, key);
        let added = self.reader.borrow_mut().take(&self.loaded.counters, read, lives)?;
        let rest = |added: Added| {
            let Added { key, part, is_living } = added;
            // The program gives the idle threads numbers of their own: they share the id 0.
            let tid = if part.tid & IDLE == 0 { part.tid } else { 0 };
            (tid, part.pid, CallRest { key, calls: part.sum, slice, is_living })
        };
        let mut rests: Vec<_> = added.into_iter().map(rest).collect();
        let mut overflows = self.overflows.borrow_mut();
        for (point, known) in overflows.iter_mut().enumerate() {
            let all = self.points.get(self.word(point, PointWord::Overflow));
            let calls = all.saturating_sub(*known);
            *known += calls;
            if calls > 0 {
                let key = CallKey { point: point as u32, serial: 0 };
                rests.push((0, 0, CallRest { key, calls, slice, is_living: false }));
            }
        }
        rests.sort_unstable_by_key(|(_, _, rest)| (rest.key.serial, rest.key.point));
        Ok(rests)
    }

    /// True if the thread of a key lives.
    fn lives(&self, tid: u32, key: CallKey) -> bool {
        let thread = self.loaded.threads.get(&tid.to_ne_bytes());
        let serial = thread.as_deref().and_then(<[u8]>::first_chunk).copied();
        serial.is_some_and(|serial| u32::from_ne_bytes(serial) == key.serial)
    }

    /// Adapts the number of samples to that of the last slice.
    pub(crate) fn adapt(&self) {
        let all = self.settings.get(Setting::Sampled as usize);
        let before = Setting::SampledBefore as usize;
        let samples = all - self.settings.get(before);
        self.settings.set(before, all);
        let (shift, floor) = (Setting::Shift as usize, Setting::Floor as usize);
        let (now, least) = (self.settings.get(shift), self.settings.get(floor).max(1));
        if samples > SAMPLES_MAX {
            match now {
                0 => self.settings.set(floor, least.saturating_mul(2)),
                _ => self.settings.set(shift, now - 1),
            }
        } else if samples < SAMPLES_MAX / 4 {
            match least {
                1 => self.settings.set(shift, (now + 1).min(SHIFT_MAX)),
                _ => self.settings.set(floor, least / 2),
            }
        }
    }

    /// Stops counting the functions that were called more than `limit` times per second since the last
    /// look, or took as much time where counts are slow, and returns them.
    ///
    /// # Errors
    ///
    /// If the others cannot be attached again.
    pub(crate) fn take_off(&self, now_ns: u64, limit: u64) -> anyhow::Result<Vec<TakenOff>> {
        let mut rates = self.rates.borrow_mut();
        let elapsed_ns = now_ns.saturating_sub(rates.at_ns);
        // With a third link, `on_call` would count calls twice.
        self.closing.borrow_mut().retain(|thread| !thread.is_finished());
        if elapsed_ns < RATE_NS || !self.closing.borrow().is_empty() {
            return Ok(Vec::new());
        }
        let calls: Vec<u64> =
            (0..self.list.points.len()).map(|point| self.calls_of(point)).collect();
        let before = std::mem::replace(&mut *rates, Rates { at_ns: now_ns, calls });
        if before.calls.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for (point, (now, before)) in rates.calls.iter().zip(&before.calls).enumerate() {
            let calls = u128::from(now.saturating_sub(*before));
            let rate = calls * u128::from(SLICE_NS) / u128::from(elapsed_ns);
            let cost = rate * u128::from(self.cost_times(point));
            if cost > u128::from(limit) && !self.taken_off.borrow()[point] {
                let rate = u64::try_from(rate).unwrap_or(u64::MAX);
                found.push(TakenOff { point: point as u32, rate });
                self.taken_off.borrow_mut()[point] = true;
                // From now on no probe is at its ends.
                self.points.set(self.word(point, PointWord::IsOff), 1);
            }
        }
        self.replace_links(&found)?;
        Ok(found)
    }

    /// Replaces the links of the images with these functions.
    fn replace_links(&self, found: &[TakenOff]) -> anyhow::Result<()> {
        let mut images: Vec<usize> =
            found.iter().map(|it| self.list.points[it.point as usize].image).collect();
        images.dedup();
        images.sort_unstable();
        images.dedup();
        if !images.is_empty() {
            self.generation.set(self.generation.get() + 1);
        }
        for image in images {
            // First the new one: both count each call once together, see `on_call`.
            let links = self.attach(image)?;
            let before = std::mem::replace(&mut self.links.borrow_mut()[image], links);
            before.iter().for_each(|link| self.note_misses(link));
            // The kernel waits for a grace period.
            self.closing.borrow_mut().push(thread::spawn(move || drop(before)));
        }
        Ok(())
    }
}

/// Runs on each of these CPUs for a moment, as far as the recorder may.
fn run_on_each(cpus: impl Iterator<Item = u32>) {
    let Ok(affinity) = SavedAffinity::of_this_thread() else { return };
    for cpu in cpus {
        let _ = affinity.stay_on(cpu as usize);
    }
}

/// Adds the remedy.
fn explained(error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    if error.is::<VerifierRefusal>() {
        return anyhow!(
            "calls cannot be counted: {error:#}; use Linux 6.6 or later, and report this as an error of \
             nprof if it is"
        );
    }
    anyhow!(
        "calls cannot be counted: {error:#}; run as root or with CAP_BPF and CAP_PERFMON, on Linux 6.6 \
         or later, for functions of the kernel 6.1"
    )
}

mod cost;

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn exited_thread_is_not_followed_under_its_id() {
        let list = PointList::parse(b"f\t/f\t\t0x1004\t0x1000\n").expect("a list");
        let tracer = match CallTracer::load(list, None, 0) {
            Ok(tracer) => tracer,
            Err(error) => return eprintln!("SKIPPED: {error:#}"),
        };
        let mut ended = Command::new("true").spawn().expect("it is installed");
        ended.wait().expect("it ends");
        let own = std::process::id();
        assert_eq!(tracer.follow(vec![own, ended.id()]).expect("bpf(2)"), 1);
        assert_eq!(tracer.follow(vec![own]).expect("bpf(2)"), 0, "it is followed");
        let has = |tid: u32| tracer.loaded.threads.get(&tid.to_ne_bytes()).is_some();
        assert!(has(own) && !has(ended.id()));
    }
}
