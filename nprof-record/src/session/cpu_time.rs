//! The CPU time that the workload used, as the kernel counts it. Coverage is the sampled share of it.
//!
//! Each process has a CPU clock, which ends with the process, see [`ProcessTimes`]. A counting event
//! would also see processes that live too short to be read and that no parent waits for, but it costs
//! each new process 30 us, too much for short-lived ones.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::convert::process_tree::ProcessEnd;
use crate::event::CpuMode;
use crate::os::cgroup;
use crate::os::procfs::{self, Stat};
use crate::session::process_times::{Listing, ProcessTimes, Reading};
use crate::sys::{self, Usage};

/// The scope of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CpuTimeScope {
    /// The processes of the tree.
    Processes,
    /// All but the idle time of these CPUs.
    Cpus(Vec<u32>),
    /// The directory of a control group (cgroup v2).
    Cgroup(PathBuf),
    /// That of the group of the command: all of its processes belong there.
    OwnCgroup(PathBuf),
}

/// Measures CPU time from its creation on.
#[derive(Debug)]
pub(crate) struct CpuTimeMeter {
    cpu_time_scope: CpuTimeScope,
    /// The CPU mode that counts.
    scope: CpuMode,
    /// At the beginning: the CPU time of the group, or the idle time of the CPUs, in ns.
    before: Option<u64>,
    /// The time of the beginning, in ns.
    began: u64,
    processes: ProcessTimes,
    /// The command, once it has exited.
    ended: Option<u32>,
    /// The time of the last reading of all processes, and how long that took.
    polled: Poll,
    /// The time of the last reading in /proc of all processes, in ns.
    listed_ns: u64,
    /// The CPU time that the command used outside of its control group, in ns.
    outside_ns: u64,
    /// The processes that were seen outside of it while they lived.
    left: FxHashSet<u32>,
    /// The share of the measured mode in the CPU time of the command and the children it waited for. None if they
    /// used none.
    mode_share: Option<f64>,
    /// The CPU time from the beginning to the end, as far as it is not in `processes`, in ns. None if it
    /// is unknown.
    whole_ns: Option<u64>,
}

/// A reading of all processes, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Poll {
    at: u64,
    took: u64,
}

/// The time from one reading of all processes to the next is at least this multiple of the time that
/// it takes, up to [`PAUSE_MAX`]: the kernel sums the times of all threads for each reading of a process.
const POLL_TIMES: u64 = 2000;

/// The longest such time, unless [`POLL_TIMES_MIN`] requires more.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The same as a part of the time since the beginning, as a divisor: the time since the last reading is
/// missing of a process that exits and is waited for by another program.
const PAUSE_SHARE: u64 = 20;

/// The least such multiple: there may be thousands of processes.
const POLL_TIMES_MIN: u64 = 50;

/// The time from one reading in /proc to the next of a process that has had no children, if there are
/// few. Between them its clock is read, which takes two system calls instead of a file with 52 fields.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// CPU time outside of the control group below which a command counts as inside: it is forked
/// before it enters the group.
const OUTSIDE_MIN_NS: u64 = 10_000_000;

impl CpuTimeMeter {
    /// Begins a measurement, with the live processes.
    pub(crate) fn begin(
        cpu_time_scope: CpuTimeScope,
        scope: CpuMode,
        processes: impl Iterator<Item = u32>,
    ) -> Self {
        let before = match &cpu_time_scope {
            CpuTimeScope::Processes => None,
            CpuTimeScope::Cpus(cpus) => idle(cpus),
            CpuTimeScope::Cgroup(path) | CpuTimeScope::OwnCgroup(path) => {
                used_by_group(path, scope)
            }
        };
        let began = sys::monotonic_ns();
        let mut meter = Self {
            cpu_time_scope,
            scope,
            before,
            began,
            processes: ProcessTimes::new(began),
            ended: None,
            polled: Poll::default(),
            listed_ns: began,
            outside_ns: 0,
            left: FxHashSet::default(),
            mode_share: None,
            whole_ns: None,
        };
        // CPUs and groups are measured as a whole, without their processes.
        let is_by_process = meter.cpu_time_scope == CpuTimeScope::Processes;
        let followed: Vec<u32> = processes.filter(|_| is_by_process).collect();
        for &pid in &followed {
            meter.note(pid, true);
        }
        // A child that exits later adds its whole time to its parent, also that before the
        // beginning.
        for child in procfs::children_of(&followed) {
            meter.note(child, false);
        }
        meter
    }

    fn note(&mut self, pid: u32, followed: bool) {
        if let Some(reading) = read_process(pid, self.scope) {
            self.processes.add_existing(pid, reading, followed);
        }
    }

    /// Reads the CPU time of the followed processes, so that little is missed when one exits.
    pub(crate) fn poll(&mut self, living: impl Iterator<Item = u32>) {
        let now = sys::monotonic_ns();
        self.read_after(pause_ns(self.polled.took, now.saturating_sub(self.began)), now, living);
    }

    /// The same, after attached processes have `exited`: the time of each is in /proc until its parent
    /// has waited for it.
    pub(crate) fn poll_exited(&mut self, exited: &[u32], living: impl Iterator<Item = u32>) {
        let now = sys::monotonic_ns();
        exited.iter().for_each(|&pid| self.processes.note_end(pid, now));
        self.read_after(pause_ns(self.polled.took, 0), now, living);
    }

    /// Reads the followed processes, unless the last reading was less than `pause_ns` ago.
    fn read_after(&mut self, pause_ns: u64, now: u64, living: impl Iterator<Item = u32>) {
        if now.saturating_sub(self.polled.at) < pause_ns {
            return;
        }
        match &self.cpu_time_scope {
            CpuTimeScope::Processes => {
                let is_due = now.saturating_sub(self.listed_ns) >= sys::duration_ns(LIST_INTERVAL);
                let listing = if is_due { Listing::Part } else { Listing::None };
                self.read_processes(now, living, listing);
            }
            CpuTimeScope::OwnCgroup(path) => {
                self.left.extend(living.filter(|&pid| cgroup::has_left(pid, path)));
                self.polled = Poll { at: now, took: sys::monotonic_ns().saturating_sub(now) };
            }
            CpuTimeScope::Cpus(_) | CpuTimeScope::Cgroup(_) => {}
        }
    }

    /// Reads all processes, those of `listing` in /proc.
    fn read_processes(&mut self, now: u64, living: impl Iterator<Item = u32>, listing: Listing) {
        let (scope, ended) = (self.scope, self.ended);
        let of_command = ended.and_then(|pid| self.processes.last(pid));
        // Nothing is in /proc of a command that was waited for.
        let read = |pid, before: Option<Reading>| match before {
            _ if Some(pid) == ended => of_command,
            Some(before) if scope == CpuMode::Both => {
                read_clock(pid, before).or_else(|| read_process(pid, scope))
            }
            _ => read_process(pid, scope),
        };
        self.processes.read(now, listing, living, read);
        if listing != Listing::None {
            self.listed_ns = now;
        }
        self.polled = Poll { at: now, took: sys::monotonic_ns().saturating_sub(now) };
    }

    /// Adds the CPU time of the command, which has exited, with the children it waited for.
    pub(crate) fn ended(&mut self, pid: u32, usage: Usage) {
        let used = match self.scope {
            CpuMode::User => usage.user_ns,
            CpuMode::Kernel => usage.kernel_ns,
            CpuMode::Both => usage.user_ns + usage.kernel_ns,
        };
        let both_ns = usage.user_ns + usage.kernel_ns;
        self.mode_share = (both_ns > 0).then(|| used as f64 / both_ns as f64);
        self.processes.end_command(pid, used);
        self.ended = Some(pid);
        // The group was created for the command: it counts all of its time, from before the
        // beginning, too.
        if let CpuTimeScope::OwnCgroup(path) = &self.cpu_time_scope {
            let inside = used_by_group(path, self.scope).unwrap_or(u64::MAX);
            self.outside_ns = outside(used, inside);
        }
    }

    /// Returns the number of processes that were seen outside of the control group.
    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    /// Returns the CPU time that the exited command, and the children it waited for, used outside
    /// of its control group, in ns.
    pub(crate) fn outside_ns(&self) -> u64 {
        self.outside_ns
    }

    /// Returns the share of the measured mode in the CPU time of the exited command. None if it is unknown.
    pub(crate) fn mode_share(&self) -> Option<f64> {
        self.mode_share
    }

    /// Takes the ends of followed processes by their records.
    pub(crate) fn note_records(&mut self, ended: Vec<ProcessEnd>) {
        if self.cpu_time_scope == CpuTimeScope::Processes {
            ended.into_iter().for_each(|end| self.processes.note_records(end));
        }
    }

    /// Reads the CPU time at the end, given the live processes.
    pub(crate) fn end(&mut self, living: impl Iterator<Item = u32>) {
        let elapsed = sys::monotonic_ns().saturating_sub(self.began);
        self.whole_ns = match &self.cpu_time_scope {
            CpuTimeScope::Cgroup(path) | CpuTimeScope::OwnCgroup(path) => {
                used_by_group(path, self.scope)
                    .zip(self.before)
                    .map(|(now, before)| now.saturating_sub(before).saturating_add(self.outside_ns))
            }
            // Elapsed time without idle time covers both modes.
            CpuTimeScope::Cpus(_) if self.scope != CpuMode::Both => None,
            // Idle time counts in clock ticks, so it may exceed a short elapsed time.
            CpuTimeScope::Cpus(cpus) => idle(cpus).zip(self.before).and_then(|(now, before)| {
                let all_ns = elapsed * cpus.len() as u64;
                let used_ns = all_ns.saturating_sub(now.saturating_sub(before));
                is_precise(used_ns, sys::clock_tick_ns(), cpus.len()).then_some(used_ns)
            }),
            CpuTimeScope::Processes => {
                let living: Vec<u32> = living.collect();
                self.read_processes(sys::monotonic_ns(), living.iter().copied(), Listing::All);
                // There may be more than are read again and again.
                let others = living.into_iter().filter(|&pid| !self.processes.has(pid));
                let others = others.filter_map(|pid| read_process(pid, self.scope));
                Some(others.map(|reading| reading.total_ns).sum())
            }
        };
    }

    /// Returns the CPU time from the beginning to the end in ns. None if it cannot be read.
    pub(crate) fn used_ns(&self) -> Option<u64> {
        match self.cpu_time_scope {
            CpuTimeScope::Processes => self.processes.sum_ns(self.whole_ns),
            _ => self.whole_ns,
        }
    }
}

/// Returns the shortest time from a reading that took `took_ns` to the next, `elapsed_ns` after the
/// beginning.
fn pause_ns(took_ns: u64, elapsed_ns: u64) -> u64 {
    let longest_ns = sys::duration_ns(PAUSE_MAX).min(elapsed_ns / PAUSE_SHARE);
    let pause_ns = took_ns.saturating_mul(POLL_TIMES).min(longest_ns);
    pause_ns.max(took_ns.saturating_mul(POLL_TIMES_MIN))
}

/// Reads the CPU time of a process. None if it has exited. Only its own time in both modes is exact;
/// the rest has the resolution of a clock tick.
fn read_process(pid: u32, scope: CpuMode) -> Option<Reading> {
    let ns = |ticks: u64| ticks.saturating_mul(sys::clock_tick_ns());
    let (stat, own_ns, children_ns) = if scope == CpuMode::Both {
        let stat = Stat::of(pid)?;
        (stat, sys::cpu_time_ns(pid)?, ns(stat.children_ticks.iter().sum()))
    } else {
        let stat = Stat::of_process(pid)?;
        let mode = usize::from(scope == CpuMode::Kernel);
        (stat, ns(stat.used_ticks[mode]), ns(stat.children_ticks[mode]))
    };
    let total_ns = own_ns.saturating_add(children_ns);
    Some(Reading { parent: stat.parent, start_ticks: stat.start_ticks, total_ns, children_ns })
}

/// Reads the CPU time of a process again, by its clock. None if that does not suffice: the process may
/// have waited for children since, its parent or itself has exited, or another one has its id.
fn read_clock(pid: u32, before: Reading) -> Option<Reading> {
    if !before.needs_only_clock() {
        return None;
    }
    // A later process with the same id begins at 0.
    let total_ns = sys::cpu_time_ns(pid).filter(|&now_ns| now_ns >= before.total_ns)?;
    Some(Reading { total_ns, ..before })
}

/// Returns the part of the CPU time of a command that its control group has not counted; 0 if the
/// difference may come from the accounting.
fn outside(used: u64, inside: u64) -> u64 {
    let outside = used.saturating_sub(inside);
    if outside >= OUTSIDE_MIN_NS && outside > used / 100 { outside } else { 0 }
}

fn used_by_group(path: &std::path::Path, scope: CpuMode) -> Option<u64> {
    usage(&fs::read_to_string(path.join("cpu.stat")).ok()?, scope)
}

/// Returns the CPU time in the text of cpu.stat, in ns.
fn usage(text: &str, scope: CpuMode) -> Option<u64> {
    let key = match scope {
        CpuMode::Both => "usage_usec ",
        CpuMode::User => "user_usec ",
        CpuMode::Kernel => "system_usec ",
    };
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.trim().parse::<u64>().ok()?.checked_mul(1000)
}

fn idle(cpus: &[u32]) -> Option<u64> {
    let ticks = idle_ticks(&fs::read_to_string("/proc/stat").ok()?, cpus)?;
    Some(ticks.saturating_mul(sys::clock_tick_ns()))
}

/// True if the CPU time of all processes is known to some 5 %: the kernel cuts off the parts of ticks of each of the
/// three kinds of idle time of each CPU, at the beginning and at the end.
fn is_precise(used_ns: u64, tick_ns: u64, cpus: usize) -> bool {
    // Uniform, with a variance of 1/12: 0.7 ticks for a CPU.
    used_ns as f64 >= 20.0 * tick_ns as f64 * (cpus as f64).sqrt()
}

/// Returns the ticks in the text of /proc/stat that these CPUs were idle, waited for a disk, or were
/// stolen by the hypervisor.
fn idle_ticks(text: &str, cpus: &[u32]) -> Option<u64> {
    let all = text.lines().filter_map(idle_ticks_of_line);
    let found: Vec<_> = all.filter(|(cpu, _)| cpus.contains(cpu)).collect();
    // A CPU that went offline has no line: its idle time is unknown.
    (found.len() == cpus.len()).then(|| found.into_iter().map(|(_, ticks)| ticks).sum())
}

/// Returns the CPU of a line and its ticks, see [`idle_ticks`].
fn idle_ticks_of_line(line: &str) -> Option<(u32, u64)> {
    let mut fields = line.strip_prefix("cpu")?.split(' ');
    // The line `cpu ` of all CPUs has no number.
    let cpu = fields.next()?.parse().ok()?;
    let fields: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let [_user, _nice, _system, idle, disk, _irq, _softirq, stolen, ..] = fields[..] else {
        return None;
    };
    Some((cpu, idle + disk + stolen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_usage_is_read() {
        let text = "usage_usec 1234\nuser_usec 1000\n";
        assert_eq!(usage(text, CpuMode::Both), Some(1_234_000));
        assert_eq!(usage(text, CpuMode::User), Some(1_000_000));
        assert_eq!(usage(text, CpuMode::Kernel), None);
    }

    #[test]
    fn idle_time_covers_the_requested_cpus() {
        let text = "cpu  1 1 1 1 1 1 1 1 1 1\ncpu0 9 9 9 100 20 9 9 3 0 0\ncpu1 9 9 9 7 0 9 9 0 0 0\nintr 5\n";
        assert_eq!(idle_ticks(text, &[0]), Some(123));
        assert_eq!(idle_ticks(text, &[0, 1]), Some(130));
        assert_eq!(idle_ticks(text, &[0, 5]), None);
    }

    #[test]
    fn little_time_of_all_processes_is_unknown() {
        let ms = 1_000_000;
        assert!(!is_precise(199 * ms, 10 * ms, 1) && is_precise(200 * ms, 10 * ms, 1));
        assert!(!is_precise(1599 * ms, 10 * ms, 64) && is_precise(1600 * ms, 10 * ms, 64));
    }

    #[test]
    fn own_cpu_time_is_measured() {
        let pid = std::process::id();
        let mut meter =
            CpuTimeMeter::begin(CpuTimeScope::Processes, CpuMode::Both, [pid].into_iter());
        let before = sys::own_usage();
        while sys::own_usage().user_ns < before.user_ns + 5_000_000 {
            std::hint::black_box(0);
        }
        meter.end([pid].into_iter());
        let used = meter.used_ns().expect("ours");
        assert!(used >= 4_000_000, "{used}");
    }

    #[test]
    fn clock_suffices_only_for_the_same_process_without_children() {
        let pid = std::process::id();
        let before = Reading { parent: 7, start_ticks: 9, total_ns: 1, children_ns: 0 };
        let read = read_clock(pid, before).expect("it runs");
        assert!(read.total_ns > 1, "{read:?}");
        assert_eq!(Reading { total_ns: 1, ..read }, before);
        assert_eq!(read_clock(pid, Reading { total_ns: u64::MAX, ..before }), None, "another one");
        assert_eq!(read_clock(pid, Reading { children_ns: 1, ..before }), None);
        assert_eq!(read_clock(pid, Reading { parent: 0, ..before }), None, "an orphan");
        // Above the largest id of a process (PID_MAX_LIMIT), and within the bits that a clock has for it.
        assert_eq!(read_clock(1 << 28, before), None, "it has exited");
    }

    #[test]
    fn costly_readings_are_rare() {
        let minute_ns = 60_000_000_000;
        assert_eq!(pause_ns(10_000, minute_ns), 20_000_000);
        assert_eq!(pause_ns(1_000_000, minute_ns), 500_000_000);
        assert_eq!(pause_ns(30_000_000, minute_ns), 1_500_000_000);
    }

    #[test]
    fn little_of_a_short_recording_is_unread() {
        let second_ns = 1_000_000_000;
        assert_eq!(pause_ns(10_000, second_ns), 20_000_000);
        assert_eq!(pause_ns(300_000, second_ns), 50_000_000);
        assert_eq!(pause_ns(30_000_000, second_ns), 1_500_000_000, "its cost is bounded first");
    }

    #[test]
    fn time_outside_of_the_group_is_noticed() {
        assert_eq!(outside(400_000_000, 3_000_000), 397_000_000);
        assert_eq!(outside(8_000_000, 0), 0, "it may have been used before it entered");
        assert_eq!(outside(5_000_000_000, 4_960_000_000), 0, "less than 1 %");
        assert_eq!(outside(400_000_000, 900_000_000), 0, "a child it did not wait for");
        assert_eq!(outside(400_000_000, u64::MAX), 0, "unknown");
    }

    #[test]
    fn command_counts_from_sampling_start() {
        let mut meter =
            CpuTimeMeter::begin(CpuTimeScope::Processes, CpuMode::Both, std::iter::empty());
        let before = Reading { total_ns: 10, ..Reading::default() };
        meter.processes.add_existing(u32::MAX, before, true);
        meter.ended(u32::MAX, Usage { user_ns: 30, kernel_ns: 20, peak_bytes: 0 });
        meter.end(std::iter::empty());
        assert_eq!(meter.used_ns(), Some(40));
    }
}
