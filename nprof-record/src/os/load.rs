//! Finds out whether other programs keep the CPUs busy, and whether the recorder may run before them.

use std::fs;

use crate::sys::{self, Priority};

/// True if the recorder will have to wait for a CPU: others keep this number busy, and it may not have
/// a real-time priority.
pub(crate) fn must_wait_for_cpu(cpus: usize) -> bool {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    is_busy(&load, cpus) && !may_have_realtime_priority()
}

/// True if the recorder may have a real-time priority. A capability does not show it: in a user
/// namespace it gives no such right, and RLIMIT_RTPRIO gives the right without it. So a thread that
/// ends at once tries.
fn may_have_realtime_priority() -> bool {
    let tried = std::thread::Builder::new().spawn(sys::raise_priority);
    let priority = tried.ok().and_then(|thread| thread.join().ok());
    priority == Some(Priority::Realtime)
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
    fn trying_a_priority_does_not_change_this_thread() {
        let policy = || {
            let stat = fs::read_to_string("/proc/thread-self/stat").expect("its own");
            let after_name = stat.rsplit_once(") ").expect("a name").1;
            // Fields by number as in proc(5): the state is 3, the policy 41.
            after_name.split(' ').nth(38).map(str::to_owned)
        };
        let before = policy();
        may_have_realtime_priority();
        assert!(before.is_some());
        assert_eq!(policy(), before);
    }
}
