//! The message about an event that cannot be opened. Pure.

use crate::event::DEFAULT_EVENT;
use crate::os::open_error::{self, Access};

/// An event that could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenRefusal {
    /// The name of the requested event.
    pub(crate) event: String,
    /// The errno of perf_event_open(2).
    pub(crate) errno: i32,
    pub(crate) access: Access,
}

/// Returns the access that an event with this name gives. `whole_cpus` is true if only sampling of whole
/// CPUs was requested.
pub(crate) fn access(event: &str, whole_cpus: bool) -> Access {
    match event.split_once(':') {
        Some(("uprobe", _)) => Access::ProgramProbes,
        Some(("kprobe", _)) => Access::KernelProbes,
        _ if whole_cpus => Access::Cpus,
        _ => Access::Tasks,
    }
}

impl OpenRefusal {
    /// Returns the message with the remedy. `paranoid` is kernel.perf_event_paranoid, None if it cannot
    /// be read.
    pub(crate) fn explain(&self, paranoid: Option<i32>) -> String {
        let Self { event, errno, access } = self;
        let reason = open_error::explain(*errno, paranoid, *access);
        if event == DEFAULT_EVENT {
            return format!("cannot sample CPU time ({event}): {reason}");
        }
        // No clock is a substitute for a tracepoint or a probe.
        let has_substitute = open_error::is_missing(*errno) && !event.contains(':');
        let hint = if has_substitute { "; try -e cpu-clock" } else { "" };
        format!("cannot open the event {event}: {reason}{hint}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(event: &str, errno: i32) -> String {
        let access = access(event, false);
        OpenRefusal { event: event.to_owned(), errno, access }.explain(Some(2))
    }

    #[test]
    fn missing_event_suggests_cpu_clock_where_it_is_a_substitute() {
        assert_eq!(
            explained("cycles", libc::ENOENT),
            "cannot open the event cycles: this machine has no such counter; try -e cpu-clock"
        );
        for event in [DEFAULT_EVENT, "sched:sched_switch", "uprobe:/bin/a:0x1"] {
            let message = explained(event, libc::EINVAL);
            assert!(message.contains(event) && !message.contains("cpu-clock"), "{message}");
        }
    }

    #[test]
    fn remedy_is_that_of_the_accessed_thing() {
        for (event, remedy) in [
            ("cycles", "kernel.perf_event_paranoid=1"),
            ("sched:sched_switch", "kernel.perf_event_paranoid=1"),
            ("uprobe:/bin/a:0x1", "CAP_SYS_ADMIN"),
            ("kprobe:vfs_read", "CAP_PERFMON"),
        ] {
            let message = explained(event, libc::EACCES);
            assert!(message.contains(remedy), "{message}");
        }
        assert_eq!(access("cycles", true), Access::Cpus);
    }
}
