//! Reads facts about the machine from /proc and /sys. Unreadable ones are empty.

use std::fs;
use std::ops::RangeInclusive;

use crate::arch;

/// Returns the online CPUs; CPU 0 if they cannot be read.
pub(crate) fn online_cpus() -> Vec<u32> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let mut cpus = cpu_list(list.trim());
    if cpus.is_empty() {
        // In a chroot, /sys is often not mounted. Events of CPU 0 alone would miss a program that runs on
        // another CPU.
        cpus = cpus_of_stat(&fs::read_to_string("/proc/stat").unwrap_or_default());
    }
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Returns the CPUs of /proc/stat, which has lines of online ones.
fn cpus_of_stat(stat: &str) -> Vec<u32> {
    let names = stat.lines().filter_map(|line| line.split_whitespace().next()?.strip_prefix("cpu"));
    // The first line has the sums of all.
    names.filter_map(|number| number.parse().ok()).collect()
}

/// The largest believed number of CPUs; the kernel's NR_CPUS is at most 8192 on x86-64.
const CPUS_MAX: u32 = 1 << 16;

/// Parses a list like `0-3,5`; malformed parts are skipped.
pub(crate) fn cpu_list(list: &str) -> Vec<u32> {
    list.split(',').filter_map(cpu_range).flatten().collect()
}

/// Parses `3` or `0-3`. None if it is malformed.
fn cpu_range(part: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    Some(first.parse().ok()?..=last.parse().ok().filter(|&last| last < CPUS_MAX)?)
}

/// Reads a value of /proc/sys, without its newline.
pub(crate) fn sysctl(name: &str) -> String {
    fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default().trim_end().to_owned()
}

/// Returns the operating system and its release.
pub(crate) fn system() -> String {
    format!("{} {}", sysctl("kernel/ostype"), sysctl("kernel/osrelease")).trim().to_owned()
}

/// Returns the model of the processor.
pub(crate) fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = info.lines().filter_map(|line| line.split_once(':'));
    let model = named.into_iter().find(|(key, _)| key.trim() == arch::MODEL_KEY);
    model.map_or_else(String::new, |(_, model)| model.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lists_cpus() {
        let stat = "cpu  9 0 8\ncpu0 4 0 4\ncpu10 5 0 4\nintr 7 cpu3\nctxt 8\n";
        assert_eq!(cpus_of_stat(stat), [0, 10]);
        assert_eq!(cpus_of_stat(""), [] as [u32; 0]);
    }

    #[test]
    fn parses_cpu_lists() {
        assert_eq!(cpu_list("0-2,5,7-8"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(cpu_list("3"), [3]);
        assert_eq!(cpu_list(""), [] as [u32; 0]);
        assert_eq!(cpu_list("x,9-,2,0-4294967295"), [2]);
    }
}
