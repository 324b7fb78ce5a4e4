//! How much CPU time was really used by what is recorded, counted by the kernel and not by
//! samples: what coverage is a share of.
//!
//! Processes have a CPU clock, which ends with them; their parent's count of the children it has
//! waited for goes on. Counting events would see processes nobody waits for, too, but cost each
//! new process 30 us, which short-lived ones feel.

use std::fs;
use std::path::PathBuf;

use rustc_hash::FxHashMap;

use crate::event::CpuMode;
use crate::os::procfs::{self, Stat};
use crate::sys::{self, Usage};

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CpuTimeScope {
    /// The processes of the tree.
    Processes,
    /// All that these CPUs do but idle.
    Cpus(Vec<u32>),
    /// The directory of a control group (cgroup v2).
    Cgroup(PathBuf),
}

/// A process that was there at the beginning.
#[derive(Clone, Copy, Debug, Default)]
struct ProcessBaseline {
    /// What it had used at the beginning, with the children it had waited for, ns.
    before: u64,
    /// What it had used when it was last asked, ns.
    last: u64,
    /// Whether its time becomes that of a followed process which waits for it.
    inherited: bool,
    /// Whether it is followed; if not, its parent is.
    followed: bool,
}

impl ProcessBaseline {
    /// What it adds to what was used since the beginning, ns, when it has used `now`, or is gone.
    fn part(&self, now: Option<u64>) -> i128 {
        let (before, last) = (i128::from(self.before), i128::from(self.last));
        match now {
            Some(now) if self.followed => i128::from(now) - before,
            Some(_) => 0,
            // Whoever waited for it has it all.
            None if !self.followed => -last,
            None if self.inherited => -before,
            None => last - before,
        }
    }
}

/// Measures from a moment on.
#[derive(Debug)]
pub(crate) struct CpuTimeMeter {
    cpu_time_scope: CpuTimeScope,
    /// Which part of the time counts.
    scope: CpuMode,
    /// What the group had used at the beginning, ns, or the CPUs been idle.
    before: Option<u64>,
    /// When it began, ns.
    began: u64,
    processes: FxHashMap<u32, ProcessBaseline>,
    /// What the command used, ns, once it has ended.
    ended: i128,
}

impl CpuTimeMeter {
    /// Begins now, with the processes there are.
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
        };
        // CPUs and groups are measured as a whole.
        let is_by_process = meter.cpu_time_scope == CpuTimeScope::Processes;
        let followed: Vec<u32> = processes.filter(|_| is_by_process).collect();
        for &pid in &followed {
            meter.note(pid, true);
        }
        for child in followed.into_iter().flat_map(procfs::children) {
            meter.note(child, false);
        }
        meter
    }

    fn note(&mut self, pid: u32, followed: bool) {
        let Some(used) = used_by_process(pid, self.scope) else { return };
        let baseline = ProcessBaseline { before: used, last: used, inherited: !followed, followed };
        self.processes.entry(pid).or_insert(baseline).inherited |= !followed;
    }

    /// Asks the processes it began with, so that not much is missed when one ends.
    pub(crate) fn poll(&mut self) {
        for (&pid, baseline) in &mut self.processes {
            baseline.last = used_by_process(pid, self.scope).unwrap_or(baseline.last);
        }
    }

    /// The command ended, and used this much with the children it waited for.
    pub(crate) fn ended(&mut self, pid: u32, usage: Usage) {
        let used = match self.scope {
            CpuMode::User => usage.user_ns,
            CpuMode::Kernel => usage.kernel_ns,
            CpuMode::Both => usage.user_ns + usage.kernel_ns,
        };
        let before = self.processes.remove(&pid).unwrap_or_default().before;
        self.ended += i128::from(used) - i128::from(before);
    }

    /// CPU time used since the beginning, ns, given the processes that live; `None` when it
    /// cannot be told.
    pub(crate) fn read(&self, living: impl Iterator<Item = u32>) -> Option<u64> {
        let elapsed = sys::monotonic_ns().saturating_sub(self.began);
        match &self.cpu_time_scope {
            CpuTimeScope::Cgroup(path) => {
                Some(used_by_group(path, self.scope)?.saturating_sub(self.before?))
            }
            CpuTimeScope::Cpus(_) if self.scope != CpuMode::Both => None,
            CpuTimeScope::Cpus(cpus) => {
                let idle = idle(cpus)?.saturating_sub(self.before?);
                Some((elapsed * cpus.len() as u64).saturating_sub(idle))
            }
            CpuTimeScope::Processes => {
                let used = |pid| used_by_process(pid, self.scope);
                let baseline =
                    self.processes.iter().map(|(&pid, baseline)| baseline.part(used(pid)));
                let new = living.filter(|pid| !self.processes.contains_key(pid));
                let new = new.filter_map(used).map(i128::from);
                let total = self.ended + baseline.sum::<i128>() + new.sum::<i128>();
                Some(u64::try_from(total.max(0)).unwrap_or(u64::MAX))
            }
        }
    }
}

/// What a process used by now, with the children it waited for, ns; `None` when it is gone. All
/// but its own whole time is as coarse as a tick of the clock.
fn used_by_process(pid: u32, scope: CpuMode) -> Option<u64> {
    let Stat { used_ticks: used, children_ticks: waited, .. } = Stat::of(pid)?;
    let ns = |ticks: u64| ticks.saturating_mul(sys::clock_tick_ns());
    Some(match scope {
        CpuMode::Both => sys::cpu_time_ns(pid)?.saturating_add(ns(waited[0] + waited[1])),
        CpuMode::User => ns(used[0] + waited[0]),
        CpuMode::Kernel => ns(used[1] + waited[1]),
    })
}

fn used_by_group(path: &std::path::Path, scope: CpuMode) -> Option<u64> {
    usage(&fs::read_to_string(path.join("cpu.stat")).ok()?, scope)
}

/// The CPU time in the text of cpu.stat, ns.
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

/// The ticks these CPUs were idle, waited for a disk, or were stolen by the hypervisor, in the
/// text of /proc/stat.
fn idle_ticks(text: &str, cpus: &[u32]) -> Option<u64> {
    let of_cpu = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split(' ');
        let cpu: u32 = fields.next()?.parse().ok()?;
        let fields: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        let [_user, _nice, _system, idle, disk, _irq, _softirq, stolen, ..] = fields[..] else {
            return None;
        };
        cpus.contains(&cpu).then_some(idle + disk + stolen)
    };
    let found: Vec<_> = text.lines().filter_map(of_cpu).collect();
    (found.len() == cpus.len()).then(|| found.into_iter().sum())
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
        assert_eq!(baseline(true, false).part(None), -30, "its parent has what is not followed");
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
