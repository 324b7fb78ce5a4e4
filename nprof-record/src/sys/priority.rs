//! Raises the scheduling priority of the recorder: rings overflow if it has to wait for a CPU.

use std::io;

use crate::sys::system::check;

/// The slice in ns of a recorder without the right to a real-time priority: the shortest that the
/// kernel accepts (Linux 6.12; before, it ignores slices). A task that wakes up with a shorter
/// slice than the running one preempts it (PREEMPT_SHORT, kernel/sched/features.h).
const SLICE_NS: u64 = 100_000;

/// The priority that the recorder could get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// A real-time priority: it runs before all ordinary programs.
    Realtime,
    /// That of an ordinary program, as far as limits allow above it.
    Ordinary,
}

/// Raises the priority of this process as far as its rights and limits allow. Child processes that
/// it forks later do not inherit the priority.
pub(crate) fn raise_priority() -> Priority {
    let Ok(current) = scheduling() else { return Priority::Ordinary };
    match current.sched_policy as libc::c_int {
        libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE => return Priority::Realtime,
        _ => {}
    }
    for (wanted, priority) in candidates(&current) {
        if set_scheduling(&wanted).is_ok() {
            return priority;
        }
    }
    Priority::Ordinary
}

/// Calls a function with the priority of an ordinary program: for calls in which the kernel waits in a loop for
/// a thread, which cannot run before a real-time program on its CPU.
pub(crate) fn with_ordinary_priority<T>(call: impl FnOnce() -> T) -> T {
    let realtime = scheduling().ok().filter(|current| {
        matches!(current.sched_policy as libc::c_int, libc::SCHED_FIFO | libc::SCHED_RR)
    });
    let Some(realtime) = realtime else { return call() };
    let ordinary = libc::sched_attr {
        sched_policy: libc::SCHED_OTHER as u32,
        sched_priority: 0,
        sched_nice: 0,
        ..realtime
    };
    let is_lowered = set_scheduling(&ordinary).is_ok();
    let result = call();
    if is_lowered {
        // Without the right to it, the priority was that of the program before this one.
        let _ = set_scheduling(&realtime);
    }
    result
}

/// Returns the attributes to try, the best first.
fn candidates(current: &libc::sched_attr) -> [(libc::sched_attr, Priority); 3] {
    let reset = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the structure consists of integers, for which zero bits are valid.
    let empty: libc::sched_attr = unsafe { std::mem::zeroed() };
    let empty = libc::sched_attr { size, sched_flags: reset, ..empty };
    // The lowest one precedes all ordinary programs.
    let realtime =
        libc::sched_attr { sched_policy: libc::SCHED_RR as u32, sched_priority: 1, ..empty };
    let short = libc::sched_attr {
        sched_policy: libc::SCHED_OTHER as u32,
        sched_nice: current.sched_nice,
        sched_runtime: SLICE_NS,
        ..empty
    };
    let nice = libc::sched_attr { sched_nice: -20, ..short };
    [(realtime, Priority::Realtime), (nice, Priority::Ordinary), (short, Priority::Ordinary)]
}

/// Returns the attributes of this process.
fn scheduling() -> io::Result<libc::sched_attr> {
    // SAFETY: the structure consists of integers, for which zero bits are valid.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: the kernel writes at most `size` bytes to a live structure of that size.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    check(result as libc::c_int)?;
    Ok(attr)
}

/// Sets the attributes of this process.
fn set_scheduling(attr: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the kernel reads a live structure, which states its own size.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(attr), 0) };
    check(result as libc::c_int).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_candidate_is_inherited_or_lowers_the_priority() {
        let mut current = scheduling().expect("of this process");
        current.sched_nice = -7;
        for (wanted, priority) in candidates(&current) {
            assert_eq!(wanted.sched_flags, libc::SCHED_FLAG_RESET_ON_FORK as u64);
            let is_realtime = wanted.sched_policy == libc::SCHED_RR as u32;
            assert_eq!(is_realtime, priority == Priority::Realtime);
            assert!(is_realtime || wanted.sched_nice <= -7);
        }
    }
    #[test]
    fn realtime_priority_is_that_of_an_ordinary_program_for_a_call() {
        let policy = || scheduling().expect("of this thread").sched_policy;
        let before = scheduling().expect("of this thread");
        let [(realtime, _), ..] = candidates(&before);
        if set_scheduling(&realtime).is_err() {
            return eprintln!("SKIPPED: no right to a real-time priority");
        }
        assert_eq!(with_ordinary_priority(policy), libc::SCHED_OTHER as u32);
        assert_eq!(policy(), libc::SCHED_RR as u32);
        set_scheduling(&before).expect("as before");
        assert_eq!(with_ordinary_priority(policy), before.sched_policy);
    }
}
