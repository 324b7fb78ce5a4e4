//! Facts about the machine, read from /proc and /sys; what cannot be read stays empty.

use std::fs;

use crate::arch;

/// The CPUs that are on line; CPU 0 when that cannot be read.
pub(crate) fn online_cpus() -> Vec<u32> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = cpu_list(list.trim());
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// No machine has more CPUs.
const CPUS_MAX: u32 = 1 << 16;

/// The numbers in a list like `0-3,5`; what is none of that is passed over.
pub(crate) fn cpu_list(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok().filter(|&last| last < CPUS_MAX)?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// A value of /proc/sys, without its newline.
pub(crate) fn setting(name: &str) -> String {
    fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default().trim_end().to_owned()
}

/// The operating system and its release.
pub(crate) fn system() -> String {
    format!("{} {}", setting("kernel/ostype"), setting("kernel/osrelease")).trim().to_owned()
}

/// The processor's model.
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
    fn lists_of_cpus_are_read() {
        assert_eq!(cpu_list("0-2,5,7-8"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(cpu_list("3"), [3]);
        assert_eq!(cpu_list(""), [] as [u32; 0]);
        assert_eq!(cpu_list("x,9-,2,0-4294967295"), [2]);
    }
}
