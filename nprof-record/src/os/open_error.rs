//! Explains why the kernel does not open an event, and the remedy. Pure.

use std::io;

/// The kind of access that an event gives: the kernel checks permissions for each in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Tasks of the user, in user and kernel mode.
    Tasks,
    /// Whole CPUs.
    Cpus,
    /// Functions of the kernel, by kprobes.
    KernelProbes,
    /// Instructions of programs, by uprobes.
    ProgramProbes,
}

impl Access {
    /// Returns the highest kernel.perf_event_paranoid at which users without capabilities have it
    /// (Documentation/admin-guide/sysctl/kernel.rst). None if they never do.
    fn highest_paranoid(self) -> Option<i32> {
        match self {
            Self::Tasks => Some(1),
            Self::Cpus => Some(0),
            Self::KernelProbes | Self::ProgramProbes => None,
        }
    }
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

/// Returns the smallest remedy where kernel.perf_event_paranoid is not the cause. None if no remedy is
/// known.
fn remedy(errno: i32, access: Access) -> Option<&'static str> {
    let remedy = match errno {
        // CAP_PERFMON is enough for older kernels: a uprobe in the middle of an instruction changes the
        // program (perf_uprobe_event_init, kernel/events/core.c).
        errno if is_denied(errno) && access == Access::ProgramProbes => {
            "run as root, or give nprof-record CAP_SYS_ADMIN"
        }
        // Permitted by the sysctl: a security module or a seccomp filter refused.
        errno if is_denied(errno) => {
            "run as root or with CAP_PERFMON; in a container, its seccomp profile must allow \
             perf_event_open"
        }
        libc::EMFILE => "raise the limit of this process, for example `ulimit -n 65536`",
        libc::ENFILE => "raise `sysctl fs.file-max`",
        libc::ENOSPC => "end other profilers or debuggers",
        libc::EBUSY => {
            "end it or wait for it; the NMI watchdog also holds one, see \
             `sysctl kernel.nmi_watchdog`"
        }
        _ => return None,
    };
    Some(remedy)
}

/// Returns the meaning of an errno with its remedy. `paranoid` is kernel.perf_event_paranoid, None if it
/// cannot be read.
pub(crate) fn explain(errno: i32, paranoid: Option<i32>, access: Access) -> String {
    let meaning = describe(errno);
    match (paranoid.zip(access.highest_paranoid()), remedy(errno, access)) {
        (Some((level, highest)), _) if is_denied(errno) && level > highest => format!(
            "{meaning}: kernel.perf_event_paranoid is {level}; run as root, give nprof-record \
             CAP_PERFMON, or `sysctl kernel.perf_event_paranoid={highest}`"
        ),
        (_, Some(remedy)) => format!("{meaning}; {remedy}"),
        (_, None) => meaning,
    }
}

/// Returns an error with the meaning and the remedy of its errno.
pub(crate) fn explained(failure: &str, error: &io::Error) -> anyhow::Error {
    let reason = error.raw_os_error().map(|errno| explain(errno, None, Access::Tasks));
    anyhow::anyhow!("{failure}: {}", reason.unwrap_or_else(|| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_explained_with_remedy() {
        let explained = |errno, paranoid| explain(errno, paranoid, Access::Tasks);
        assert_eq!(explained(libc::ENOENT, Some(2)), "this machine has no such counter");
        assert!(explained(libc::EACCES, Some(3)).contains("perf_event_paranoid is 3"));
        assert!(explained(libc::EPERM, Some(1)).contains("CAP_PERFMON"));
        assert!(explained(libc::EACCES, None).contains("seccomp"));
        assert!(explained(libc::EMFILE, None).contains("ulimit -n"));
        assert!(explained(libc::EBUSY, None).contains("nmi_watchdog"));
        assert_eq!(describe(ENOTSUPP), "the instruction there cannot be probed");
    }

    #[test]
    fn remedy_for_probes_is_never_a_sysctl() {
        for paranoid in [Some(4), Some(-1), None] {
            assert_eq!(
                explain(libc::EACCES, paranoid, Access::ProgramProbes),
                "permission denied; run as root, or give nprof-record CAP_SYS_ADMIN"
            );
            let kernel = explain(libc::EACCES, paranoid, Access::KernelProbes);
            assert!(kernel.contains("CAP_PERFMON") && !kernel.contains("sysctl"), "{kernel}");
        }
    }
}
