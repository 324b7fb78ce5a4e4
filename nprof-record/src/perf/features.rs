//! The features of a recording that need rights or a newer kernel, each tried.

use std::io;

use crate::event::{self, CpuMode, EventClass, EventListing, EventRate, StackMode};
use crate::os::open_error;
use crate::perf::bpf::stack_copier::BpfStackCopier;
use crate::perf::calls::points::PointList;
use crate::perf::calls::tracer::CallTracer;
use crate::perf::plan::{self, OpenMode, Request, RequestedEvent, TryOpen};

/// Bytes of a stack that the kernel copies while the copier is tried.
const TRIAL_STACK_BYTES: u32 = 8192;

/// Bytes of stack chunks while the copier is tried.
const TRIAL_ROOM_BYTES: usize = 1 << 20;

/// Tries all features. `paranoid` is kernel.perf_event_paranoid, None if it cannot be read.
pub(crate) fn list(perf: &impl TryOpen, cpus: &[u32], paranoid: Option<i32>) -> Vec<EventListing> {
    let cpu = cpus.first().copied().unwrap_or(0);
    let both = [OpenMode::System, OpenMode::Task];
    vec![
        listing("kernel-code", try_clock(perf, &both, CpuMode::Kernel, cpu, paranoid)),
        listing("system-wide", try_clock(perf, &both[..1], CpuMode::User, cpu, paranoid)),
        listing("deep-stacks", try_copier(cpus)),
        listing("counted-calls", try_calls(cpus)),
    ]
}

fn listing(name: &str, state: Result<(), String>) -> EventListing {
    let state = state.map(|()| String::new());
    EventListing { class: EventClass::Feature, name: name.to_owned(), unit: "-", state }
}

/// Tries to sample by the CPU clock.
fn try_clock(
    perf: &impl TryOpen,
    open_modes: &[OpenMode],
    scope: CpuMode,
    cpu: u32,
    paranoid: Option<i32>,
) -> Result<(), String> {
    let clock = event::Event {
        name: String::new(),
        measure: nprof_stream::Measure::Count,
        rate: EventRate::EveryEvent,
        configs: vec![event::cpu_clock()],
        value_period: None,
    };
    let requested = RequestedEvent {
        name: String::new(),
        candidates: vec![clock],
        period: Some(1 << 20),
        scope: None,
    };
    let request = Request {
        events: vec![requested],
        frequency: 1,
        unwind: Some(StackMode::None),
        stack_size: 0,
        scope,
        open_modes: open_modes.to_vec(),
        delayed: false,
    };
    plan::plan(perf, &request, &[cpu])
        .map(drop)
        .map_err(|refusal| open_error::explain(refusal.errno, paranoid, refusal.access))
}

/// Tries to load the program that copies deep stacks.
fn try_copier(cpus: &[u32]) -> Result<(), String> {
    let last = cpus.last().copied().unwrap_or(0);
    let loaded = BpfStackCopier::load(TRIAL_STACK_BYTES, TRIAL_ROOM_BYTES, last);
    loaded.map(drop).map_err(|error| explain_copier(&error))
}

/// Returns the reason why the program that copies deep stacks was not loaded, and its remedy.
fn explain_copier(error: &io::Error) -> String {
    let reason = match error.raw_os_error() {
        Some(libc::EPERM) => {
            "no right to load BPF programs; run as root, or give nprof-record CAP_BPF and CAP_PERFMON"
        }
        Some(libc::EINVAL | libc::EACCES) => {
            "the verifier of this kernel rejects the BPF program; use Linux 5.8 or newer"
        }
        Some(libc::ENOSYS) => "this kernel has no bpf(2); build it with CONFIG_BPF_SYSCALL",
        _ => return format!("{error}; breakpoints complete deep stacks"),
    };
    format!("{reason}; breakpoints complete deep stacks")
}

/// Tries to load the programs that count calls.
fn try_calls(cpus: &[u32]) -> Result<(), String> {
    let last = cpus.last().copied().unwrap_or(0);
    let loaded = CallTracer::load(PointList::default(), None, last);
    loaded.map(drop).map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event_open_sys::bindings::perf_event_attr;

    use crate::event::PerfEventConfig;

    /// A kernel with kernel.perf_event_paranoid at 2: tasks in user mode only.
    struct Paranoid;

    impl TryOpen for Paranoid {
        fn try_open(
            &self,
            attr: &perf_event_attr,
            _encoding: &PerfEventConfig,
            open_mode: OpenMode,
            _cpu: u32,
        ) -> Result<(), i32> {
            let is_allowed = open_mode == OpenMode::Task && attr.exclude_kernel() == 1;
            if is_allowed { Ok(()) } else { Err(libc::EACCES) }
        }
    }

    #[test]
    fn remedy_for_deep_stacks_is_that_of_the_error() {
        let explained = |errno| explain_copier(&io::Error::from_raw_os_error(errno));
        assert!(explained(libc::EPERM).contains("CAP_BPF"));
        assert!(explained(libc::EINVAL).contains("verifier"));
        assert!(!explained(libc::EINVAL).contains("root"));
        assert!(explained(libc::ENOSYS).contains("CONFIG_BPF_SYSCALL"));
        assert!(explained(libc::ENOMEM).contains("memory"));
    }

    #[test]
    fn refused_features_have_the_remedy_of_their_level() {
        let listed = list(&Paranoid, &[0], Some(2));
        let reason = |name: &str| {
            let line = listed.iter().find(|line| line.name == name).expect("listed");
            line.state.clone().expect_err("refused")
        };
        assert!(reason("kernel-code").contains("`sysctl kernel.perf_event_paranoid=1`"));
        assert!(reason("system-wide").contains("`sysctl kernel.perf_event_paranoid=0`"));
        assert!(listed.iter().all(|line| line.class == EventClass::Feature));
    }
}
