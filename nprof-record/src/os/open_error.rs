//! What it means when the kernel does not open an event, and what to do about it. Pure.

use std::io;

/// An event could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The event that was asked for.
    pub(crate) event: String,
    /// The kernel's answer.
    pub(crate) errno: i32,
}

/// What the kernel says of an instruction it cannot probe; user space has no name for it
/// (include/linux/errno.h).
const ENOTSUPP: i32 = 524;

/// Whether rights are missing.
pub(crate) fn is_denied(errno: i32) -> bool {
    matches!(errno, libc::EACCES | libc::EPERM)
}

/// Whether the machine does not have the event, or not in this form.
pub(crate) fn is_missing(errno: i32) -> bool {
    matches!(
        errno,
        libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL
    )
}

/// What an errno of perf_event_open(2) means.
pub(crate) fn describe(errno: i32) -> String {
    let meaning = match errno {
        libc::ENOENT | libc::ENODEV | libc::ENXIO => "this machine has no such counter",
        libc::EOPNOTSUPP => "the counter cannot be sampled here",
        libc::EINVAL => "it cannot be sampled, or not in this form",
        libc::EACCES | libc::EPERM => "permission denied",
        libc::ENOSYS => "the kernel has no perf events (CONFIG_PERF_EVENTS)",
        libc::EBUSY => "another profiler holds the counter",
        libc::EMFILE => "too many open files",
        libc::ENFILE => "too many open files in the system",
        libc::ENOMEM => "the kernel has no memory for it",
        libc::ENOSPC => "there are no more counters of its kind",
        libc::ESRCH => "the process is gone",
        libc::E2BIG => "this kernel is too old to know what was asked",
        libc::EFAULT => "the kernel cannot read what is to be probed",
        ENOTSUPP => "the instruction there cannot be probed",
        errno => return io::Error::from_raw_os_error(errno).to_string(),
    };
    meaning.to_owned()
}

/// The highest levels of kernel.perf_event_paranoid at which users may sample their own tasks, in
/// the kernel too, and whole CPUs (Documentation/admin-guide/sysctl/kernel.rst).
const TASKS: i32 = 1;
const CPUS: i32 = 0;

/// The least that would help, given kernel.perf_event_paranoid if it can be read, and the highest
/// level at which users may do this.
fn remedy(errno: i32, paranoid: Option<i32>, highest: i32) -> Option<String> {
    let remedy = match (errno, paranoid) {
        (errno, Some(level)) if is_denied(errno) && level > highest => {
            return Some(format!(
                "kernel.perf_event_paranoid is {level}; run as root, give nprof-record CAP_PERFMON, \
                 or `sysctl kernel.perf_event_paranoid={highest}`"
            ));
        }
        (errno, _) if is_denied(errno) => {
            "run as root or with CAP_PERFMON; in a container, its seccomp profile must allow \
             perf_event_open"
        }
        (libc::EMFILE, _) => "raise the limit of this process, as with `ulimit -n 65536`",
        (libc::ENFILE, _) => "raise `sysctl fs.file-max`",
        (libc::ENOSPC, _) => "end other profilers or debuggers",
        (libc::EBUSY, _) => {
            "end it, or wait for it; the NMI watchdog is one, see `sysctl kernel.nmi_watchdog`"
        }
        _ => return None,
    };
    Some(remedy.to_owned())
}

/// What happened, and what to do where that is known.
pub(crate) fn in_words(errno: i32, paranoid: Option<i32>) -> String {
    of_level(errno, paranoid, TASKS)
}

fn of_level(errno: i32, paranoid: Option<i32>, highest: i32) -> String {
    match remedy(errno, paranoid, highest) {
        Some(remedy) => format!("{}: {remedy}", describe(errno)),
        None => describe(errno),
    }
}

/// What could not be done, why, and what to do where that is known.
pub(crate) fn explained(what: &str, error: &io::Error) -> anyhow::Error {
    let why = error.raw_os_error().map(|errno| in_words(errno, None));
    anyhow::anyhow!("{what}: {}", why.unwrap_or_else(|| error.to_string()))
}

impl Refusal {
    /// What happened and what to do, given kernel.perf_event_paranoid if it can be read, where
    /// tasks are sampled or whole CPUs.
    pub(crate) fn explain(&self, paranoid: Option<i32>, whole: bool) -> String {
        let Self { event, errno } = self;
        let hint = if is_missing(*errno) { ": try -e cpu-clock" } else { "" };
        let highest = if whole { CPUS } else { TASKS };
        format!("cannot open the event {event}: {}{hint}", of_level(*errno, paranoid, highest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_helped_says_how() {
        assert_eq!(in_words(libc::ENOENT, Some(2)), "this machine has no such counter");
        assert!(in_words(libc::EACCES, Some(3)).contains("perf_event_paranoid is 3"));
        assert!(in_words(libc::EPERM, Some(1)).contains("CAP_PERFMON"));
        assert!(in_words(libc::EACCES, None).contains("seccomp"));
        assert!(in_words(libc::EMFILE, None).contains("ulimit -n"));
        assert!(in_words(libc::EBUSY, None).contains("nmi_watchdog"));
        assert_eq!(describe(ENOTSUPP), "the instruction there cannot be probed");
    }

    #[test]
    fn a_missing_event_has_another_in_its_place() {
        let refusal = Refusal { event: "cycles".to_owned(), errno: libc::ENOENT };
        assert_eq!(
            refusal.explain(None, false),
            "cannot open the event cycles: this machine has no such counter: try -e cpu-clock"
        );
    }
}
