//! Finds out whether other programs keep the CPUs busy, and whether the recorder may run before them.

use std::fs;

/// The number of CAP_SYS_NICE (include/uapi/linux/capability.h), which permits a real-time priority.
const CAP_SYS_NICE: u32 = 23;

/// True if the recorder will have to wait for a CPU: others keep this number busy, and it has no right
/// to a real-time priority.
pub(crate) fn must_wait_for_cpu(cpus: usize) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    !has_capability(&status, CAP_SYS_NICE) && is_busy(&load, cpus)
}

/// True if the text of /proc/self/status has a capability among the effective ones.
fn has_capability(status: &str, number: u32) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> number & 1 != 0)
}

/// True if the text of /proc/loadavg has a task for each CPU, now and on average: the number of now
/// varies from one moment to the next, and the average lasts a minute longer than the load.
fn is_busy(load: &str, cpus: usize) -> bool {
    let mut fields = load.split(' ');
    let average = fields.next().and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    let now = fields.nth(2).and_then(|field| field.split_once('/')?.0.parse::<usize>().ok());
    // This process runs, too.
    let others = now.unwrap_or(0).saturating_sub(1);
    average >= cpus as f64 && others >= cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_machine_has_task_for_each_cpu_now_and_on_average() {
        assert!(is_busy("2.10 1.00 0.50 3/160 4711\n", 2));
        assert!(!is_busy("2.10 1.00 0.50 2/160 4711\n", 2), "this process is one of them");
        assert!(!is_busy("1.90 9.00 9.50 7/160 4711\n", 2));
        assert!(!is_busy("", 1));
    }

    #[test]
    fn capability_is_a_bit_of_the_effective_set() {
        let status = "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000800000\n";
        assert!(has_capability(status, CAP_SYS_NICE) && !has_capability(status, 22));
        assert!(!has_capability("", CAP_SYS_NICE));
    }
}
