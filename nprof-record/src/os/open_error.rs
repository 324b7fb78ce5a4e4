//! Explains why the kernel does not open an event, and the remedy. Pure.

use std::io;

/// An event that could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenRefusal {
    /// The name of the requested event.
    pub(crate) event: String,
    /// The errno of perf_event_open(2).
    pub(crate) errno: i32,
}

/// The errno for an instruction that cannot be probed. It is internal to the kernel
/// (include/linux/errno.h), so libc does not have it.
const ENOTSUPP: i32 = 524;

/// True if privileges are missing.
pub(crate) fn is_denied(errno: i32) -> bool {
    matches!(errno, libc::EACCES | libc::EPERM)
}

/// True if the machine lacks the event, or this form of it.
pub(crate) fn is_missing(errno: i32) -> bool {
    matches!(
        errno,
        libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL
    )
}

/// Returns the meaning of an errno of perf_event_open(2).
pub(crate) fn describe(errno: i32) -> String {
    let meaning = match errno {
        // The PMU driver rejects the event, no driver knows the type, or the CPU is offline.
        libc::ENOENT | libc::ENODEV | libc::ENXIO => "this machine has no such counter",
        libc::EOPNOTSUPP => "the counter cannot be sampled here",
        libc::EINVAL => "the event cannot be sampled, or not in this form",
        libc::EACCES | libc::EPERM => "permission denied",
        libc::ENOSYS => "the kernel has no perf events (CONFIG_PERF_EVENTS)",
        libc::EBUSY => "another profiler holds the counter",
        libc::EMFILE => "too many open files",
        libc::ENFILE => "too many open files in the system",
        libc::ENOMEM => "the kernel has no memory for it",
        libc::ENOSPC => "all counters of this kind are in use",
        libc::ESRCH => "the process has exited",
        libc::E2BIG => "this kernel is too old for the requested features",
        libc::EFAULT => "the kernel cannot read the name of the probed file or function",
        ENOTSUPP => "the instruction there cannot be probed",
        errno => return io::Error::from_raw_os_error(errno).to_string(),
    };
    meaning.to_owned()
}

/// The highest kernel.perf_event_paranoid at which users may sample their own tasks in both modes
/// (Documentation/admin-guide/sysctl/kernel.rst).
const PARANOID_TASKS: i32 = 1;
/// The highest kernel.perf_event_paranoid at which users may sample whole CPUs.
const PARANOID_CPUS: i32 = 0;

/// Returns the smallest remedy. `paranoid` is kernel.perf_event_paranoid, None if it cannot be
/// read; `highest` the highest value that permits the operation. None if no remedy is known.
fn remedy(errno: i32, paranoid: Option<i32>, highest: i32) -> Option<String> {
    let remedy = match (errno, paranoid) {
        (errno, Some(level)) if is_denied(errno) && level > highest => {
            return Some(format!(
                "kernel.perf_event_paranoid is {level}; run as root, give nprof-record CAP_PERFMON, \
                 or `sysctl kernel.perf_event_paranoid={highest}`"
            ));
        }
        // Permitted by the sysctl: a security module or a seccomp filter refused.
        (errno, _) if is_denied(errno) => {
            "run as root or with CAP_PERFMON; in a container, its seccomp profile must allow \
             perf_event_open"
        }
        (libc::EMFILE, _) => "raise the limit of this process, for example `ulimit -n 65536`",
        (libc::ENFILE, _) => "raise `sysctl fs.file-max`",
        (libc::ENOSPC, _) => "end other profilers or debuggers",
        (libc::EBUSY, _) => {
            "end it or wait for it; the NMI watchdog also holds one, see \
             `sysctl kernel.nmi_watchdog`"
        }
        _ => return None,
    };
    Some(remedy.to_owned())
}

/// Returns the meaning of an errno with its remedy, for sampling of tasks.
pub(crate) fn explain(errno: i32, paranoid: Option<i32>) -> String {
    explain_at(errno, paranoid, PARANOID_TASKS)
}

/// Like [`explain`]; for sampling of whole CPUs if `whole_cpus` is true.
pub(crate) fn explain_for(errno: i32, paranoid: Option<i32>, whole_cpus: bool) -> String {
    explain_at(errno, paranoid, if whole_cpus { PARANOID_CPUS } else { PARANOID_TASKS })
}

fn explain_at(errno: i32, paranoid: Option<i32>, highest: i32) -> String {
    match remedy(errno, paranoid, highest) {
        Some(remedy) => format!("{}: {remedy}", describe(errno)),
        None => describe(errno),
    }
}

/// Returns an error with the meaning and the remedy of its errno.
pub(crate) fn explained(failure: &str, error: &io::Error) -> anyhow::Error {
    let reason = error.raw_os_error().map(|errno| explain(errno, None));
    anyhow::anyhow!("{failure}: {}", reason.unwrap_or_else(|| error.to_string()))
}

impl OpenRefusal {
    /// Returns the message with the remedy. `whole_cpus` is true if only sampling of whole CPUs was
    /// requested; `paranoid` is kernel.perf_event_paranoid, None if it cannot be read.
    pub(crate) fn explain(&self, paranoid: Option<i32>, whole_cpus: bool) -> String {
        let Self { event, errno } = self;
        let hint = if is_missing(*errno) { "; try -e cpu-clock" } else { "" };
        let reason = explain_for(*errno, paranoid, whole_cpus);
        format!("cannot open the event {event}: {reason}{hint}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_explained_with_remedy() {
        assert_eq!(explain(libc::ENOENT, Some(2)), "this machine has no such counter");
        assert!(explain(libc::EACCES, Some(3)).contains("perf_event_paranoid is 3"));
        assert!(explain(libc::EPERM, Some(1)).contains("CAP_PERFMON"));
        assert!(explain(libc::EACCES, None).contains("seccomp"));
        assert!(explain(libc::EMFILE, None).contains("ulimit -n"));
        assert!(explain(libc::EBUSY, None).contains("nmi_watchdog"));
        assert_eq!(describe(ENOTSUPP), "the instruction there cannot be probed");
    }

    #[test]
    fn missing_event_suggests_cpu_clock() {
        let refusal = OpenRefusal { event: "cycles".to_owned(), errno: libc::ENOENT };
        assert_eq!(
            refusal.explain(None, false),
            "cannot open the event cycles: this machine has no such counter; try -e cpu-clock"
        );
    }
}
