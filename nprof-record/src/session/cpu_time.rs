//! The CPU time that the workload used, as the kernel counts it. Coverage is the sampled share of it.
//!
//! Each process has a CPU clock, which ends with the process; then its parent counts it among the
//! children it has waited for. A counting event would also see processes that no parent waits for,
//! but it costs each new process 30 us, too much for short-lived ones.

use std::fs;
use std::path::PathBuf;

use rustc_hash::FxHashMap;

use crate::event::CpuMode;
use crate::os::procfs::{self, Stat};
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
}

/// The CPU time of a process that existed when the measurement began.
#[derive(Clone, Copy, Debug, Default)]
struct ProcessBaseline {
    /// Its CPU time at the beginning in ns, with the children it had waited for.
    before: u64,
    /// The same at the last poll.
    last: u64,
    /// True if a followed process counts its time after waiting for it.
    inherited: bool,
    /// True if it is followed; if not, its parent is.
    followed: bool,
}

impl ProcessBaseline {
    /// Returns its part in the CPU time since the beginning, in ns; `now` is its present CPU time,
    /// none if it has exited.
    fn part(&self, now: Option<u64>) -> i128 {
        let (before, last) = (i128::from(self.before), i128::from(self.last));
        match now {
            Some(now) if self.followed => i128::from(now) - before,
            Some(_) => 0,
            // Its parent has waited for it and counts all of it, also the part before.
            None if !self.followed => -last,
            None if self.inherited => -before,
            None => last - before,
        }
    }
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
    processes: FxHashMap<u32, ProcessBaseline>,
    /// The CPU time of the command in ns, once it has exited.
    ended: i128,
    /// The CPU time that the command used outside of its control group, in ns.
    outside_ns: u64,
}

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
            CpuTimeScope::Cgroup(path) => used_by_group(path, scope),
        };
        let mut meter = Self {
            cpu_time_scope,
            scope,
            before,
            began: sys::monotonic_ns(),
            processes: FxHashMap::default(),
            ended: 0,
            outside_ns: 0,
        };
        // CPUs and groups are measured as a whole, without their processes.
        let is_by_process = meter.cpu_time_scope == CpuTimeScope::Processes;
        let followed: Vec<u32> = processes.filter(|_| is_by_process).collect();
        for &pid in &followed {
            meter.note(pid, true);
        }
        // A child that exits later adds its whole time to its parent, also that before the
        // beginning.
        for child in followed.into_iter().flat_map(procfs::children) {
            meter.note(child, false);
        }
        meter
    }

    fn note(&mut self, pid: u32, followed: bool) {
        let Some(used) = used_by_process(pid, self.scope) else { return };
        let baseline = ProcessBaseline { before: used, last: used, inherited: !followed, followed };
        // A process can be both followed itself and the child of a followed one.
        self.processes.entry(pid).or_insert(baseline).inherited |= !followed;
    }

    /// Reads the CPU time of all processes, so that little is missed when one exits.
    pub(crate) fn poll(&mut self) {
        for (&pid, baseline) in &mut self.processes {
            // A process that has exited keeps the last value that could be read.
            baseline.last = used_by_process(pid, self.scope).unwrap_or(baseline.last);
        }
    }

    /// Adds the CPU time of the command, which has exited, with the children it waited for.
    pub(crate) fn ended(&mut self, pid: u32, usage: Usage) {
        let used = match self.scope {
            CpuMode::User => usage.user_ns,
            CpuMode::Kernel => usage.kernel_ns,
            CpuMode::Both => usage.user_ns + usage.kernel_ns,
        };
        // Removed, or `read` would count the command a second time.
        let before = self.processes.remove(&pid).unwrap_or_default().before;
        self.ended += i128::from(used) - i128::from(before);
        // The group was created for the command: it counts all of its time, from before the
        // beginning, too.
        if let CpuTimeScope::Cgroup(path) = &self.cpu_time_scope {
            let inside = used_by_group(path, self.scope).unwrap_or(u64::MAX);
            self.outside_ns = outside(used, inside);
        }
    }

    /// Returns the CPU time that the exited command, and the children it waited for, used outside
    /// of its control group, in ns.
    pub(crate) fn outside_ns(&self) -> u64 {
        self.outside_ns
    }

    /// Returns the CPU time since the beginning in ns, given the live processes. None if it cannot
    /// be read.
    pub(crate) fn read(&self, living: impl Iterator<Item = u32>) -> Option<u64> {
        let elapsed = sys::monotonic_ns().saturating_sub(self.began);
        match &self.cpu_time_scope {
            CpuTimeScope::Cgroup(path) => {
                let inside = used_by_group(path, self.scope)?.saturating_sub(self.before?);
                Some(inside.saturating_add(self.outside_ns))
            }
            // Elapsed time without idle time covers both modes.
            CpuTimeScope::Cpus(_) if self.scope != CpuMode::Both => None,
            CpuTimeScope::Cpus(cpus) => {
                let idle = idle(cpus)?.saturating_sub(self.before?);
                // Idle time counts in clock ticks, so it may exceed a short elapsed time.
                Some((elapsed * cpus.len() as u64).saturating_sub(idle))
            }
            CpuTimeScope::Processes => {
                let used = |pid| used_by_process(pid, self.scope);
                let baseline =
                    self.processes.iter().map(|(&pid, baseline)| baseline.part(used(pid)));
                let new = living.filter(|pid| !self.processes.contains_key(pid));
                let new = new.filter_map(used).map(i128::from);
                // Parts may be negative: an exited child can take back time that its parent
                // counts.
                let total = self.ended + baseline.sum::<i128>() + new.sum::<i128>();
                Some(u64::try_from(total.max(0)).unwrap_or(u64::MAX))
            }
        }
    }
}

/// Returns the CPU time of a process in ns, with the children it waited for. None if it has exited.
/// Only its own time in both modes is exact; the rest has the resolution of a clock tick.
fn used_by_process(pid: u32, scope: CpuMode) -> Option<u64> {
    let Stat { used_ticks: used, children_ticks: waited, .. } = Stat::of(pid)?;
    let ns = |ticks: u64| ticks.saturating_mul(sys::clock_tick_ns());
    Some(match scope {
        CpuMode::Both => sys::cpu_time_ns(pid)?.saturating_add(ns(waited[0] + waited[1])),
        CpuMode::User => ns(used[0] + waited[0]),
        CpuMode::Kernel => ns(used[1] + waited[1]),
    })
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
    fn own_cpu_time_is_measured() {
        let pid = std::process::id();
        let meter = CpuTimeMeter::begin(CpuTimeScope::Processes, CpuMode::Both, [pid].into_iter());
        let before = sys::own_usage();
        while sys::own_usage().user_ns < before.user_ns + 5_000_000 {
            std::hint::black_box(0);
        }
        let used = meter.read([pid].into_iter()).expect("ours");
        assert!(used >= 4_000_000, "{used}");
    }

    #[test]
    fn cpu_time_of_waited_child_counts_once() {
        let baseline =
            |inherited, followed| ProcessBaseline { before: 10, last: 30, inherited, followed };
        assert_eq!(baseline(false, true).part(Some(50)), 40);
        assert_eq!(baseline(false, true).part(None), 20, "as it was last asked");
        assert_eq!(baseline(true, true).part(None), -10, "its parent has waited for all of it");
        assert_eq!(baseline(true, false).part(Some(50)), 0);
        assert_eq!(baseline(true, false).part(None), -30, "its parent counts the part before");
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
        let baseline = ProcessBaseline { before: 10, last: 30, inherited: false, followed: true };
        meter.processes.insert(u32::MAX, baseline);
        meter.ended(u32::MAX, Usage { user_ns: 30, kernel_ns: 20, peak_bytes: 0 });
        assert_eq!(meter.read(std::iter::empty()), Some(40));
    }
}
