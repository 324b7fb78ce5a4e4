//! Which events to open, and how: what was asked for, tried from the best to what this kernel
//! and these rights allow. Pure but for a [`Perf`], so that every refusal can be played.
//!
//! The order of preference:
//! 1. *reach*: all CPUs, filtered by process tree; else the command's tasks by inheritance, with
//!    the kernel's part; else without it. Inherited events lose most of what short-lived tasks
//!    do: every task waits a full period for its first sample.
//! 2. *event*: what was named; for the default the cycle counter, else the CPU clock.
//! 3. *stacks*: copied and unwound by tables; else, when the choice is ours, by frame pointers.
//! 4. *features* of newer kernels, dropped newest first while the kernel says EINVAL or E2BIG.

use perf_event_open_sys::bindings::perf_event_attr;

use crate::arch;
use crate::event::{Event, Scope, Unwind, candidates};
use crate::ring::Layout;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// One of [`crate::event::names`].
    pub(crate) event: &'static str,
    /// Samples per second.
    pub(crate) frequency: u64,
    /// None: what works best.
    pub(crate) unwind: Option<Unwind>,
    /// Bytes copied of each stack, a multiple of 8.
    pub(crate) stack_size: u32,
    pub(crate) scope: Scope,
}

/// Whose samples the kernel is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Everyone's, on every CPU.
    System,
    /// Those of one task and the tasks it will make.
    Task,
}

/// Features of newer kernels, each level with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Linux 4.4: mmap2, comm_exec, clockid.
    Base,
    /// 5.1: ksymbol.
    Ksymbol,
    /// 6.0: the number of lost records can be read.
    Lost,
    /// 6.13: values in inherited samples, which has the side effect that events stay with their
    /// tasks when two related ones are switched. Only for [`Reach::Task`].
    InheritRead,
}

impl Level {
    const DESCENDING: [Self; 4] = [Self::InheritRead, Self::Lost, Self::Ksymbol, Self::Base];
}

/// What will be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) event: Event,
    /// Why it is not the first choice; empty when it is.
    pub(crate) fallback: String,
    pub(crate) reach: Reach,
    pub(crate) scope: Scope,
    pub(crate) unwind: Unwind,
    /// Samples asked for per second.
    pub(crate) frequency: u64,
    /// Bytes copied of each stack.
    pub(crate) stack_size: u32,
    pub(crate) level: Level,
}

/// Nothing could be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The event that was asked for.
    pub(crate) event: &'static str,
    /// The kernel's answer.
    pub(crate) errno: i32,
}

/// Opens events, and says the errno if it cannot.
pub(crate) trait Perf {
    /// Tries to open an event, on CPU `cpu`, of everyone or of this process.
    ///
    /// # Errors
    ///
    /// The errno of perf_event_open(2).
    fn attempt(&self, attr: &perf_event_attr, reach: Reach, cpu: u32) -> Result<(), i32>;
}

/// Finds the best that can be opened, by trying on one CPU.
///
/// # Errors
///
/// See [`Refusal`].
pub(crate) fn plan(perf: &impl Perf, request: &Request, cpu: u32) -> Result<Plan, Refusal> {
    let mut refusal = Refusal { event: request.event, errno: libc::EACCES };
    for (reach, scope) in reaches(request.scope) {
        let mut fallback = String::new();
        for event in candidates(request.event) {
            for unwind in unwinds(request.unwind) {
                let level = Level::InheritRead;
                let mut plan = Plan {
                    event,
                    fallback: fallback.clone(),
                    reach,
                    scope,
                    unwind,
                    frequency: request.frequency,
                    stack_size: request.stack_size,
                    level,
                };
                match attempt(perf, &mut plan, cpu) {
                    Ok(()) => return Ok(plan),
                    Err(errno) => refusal.errno = errno,
                }
            }
            if !is_missing(refusal.errno) {
                break;
            }
            fallback = format!("{}: {}", event.name, describe(refusal.errno));
        }
        if !is_denied(refusal.errno) {
            break;
        }
    }
    Err(refusal)
}

/// Tries a plan, at the highest level of features the kernel takes.
fn attempt(perf: &impl Perf, plan: &mut Plan, cpu: u32) -> Result<(), i32> {
    let mut last = libc::EINVAL;
    for level in Level::DESCENDING {
        if level == Level::InheritRead && plan.reach == Reach::System {
            continue;
        }
        plan.level = level;
        let side = perf.attempt(&plan.side_attr(0), plan.reach, cpu);
        match side.and_then(|()| perf.attempt(&plan.sample_attr(0), plan.reach, cpu)) {
            Ok(()) => return Ok(()),
            Err(errno @ (libc::EINVAL | libc::E2BIG)) => last = errno,
            Err(errno) => return Err(errno),
        }
    }
    Err(last)
}

fn reaches(scope: Scope) -> Vec<(Reach, Scope)> {
    let mut reaches = vec![(Reach::System, scope), (Reach::Task, scope)];
    if scope == Scope::Both {
        reaches.push((Reach::Task, Scope::User));
    }
    reaches
}

fn unwinds(asked: Option<Unwind>) -> Vec<Unwind> {
    match asked {
        Some(unwind) => vec![unwind],
        None => vec![Unwind::Dwarf, Unwind::FramePointer],
    }
}

fn is_denied(errno: i32) -> bool {
    matches!(errno, libc::EACCES | libc::EPERM)
}

/// Whether the machine does not have the event, or not in this form.
fn is_missing(errno: i32) -> bool {
    matches!(
        errno,
        libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL
    )
}

/// What an errno of perf_event_open(2) means.
fn describe(errno: i32) -> String {
    match errno {
        libc::ENOENT | libc::ENODEV | libc::ENXIO => "this machine has no such counter".to_owned(),
        libc::EOPNOTSUPP => "the counter cannot be sampled here".to_owned(),
        libc::ENOSYS => "the kernel has no perf events".to_owned(),
        libc::EBUSY => "another profiler holds the counter".to_owned(),
        errno => std::io::Error::from_raw_os_error(errno).to_string(),
    }
}

impl Refusal {
    /// What happened and what to do, given kernel.perf_event_paranoid if it can be read.
    pub(crate) fn explain(&self, paranoid: Option<i32>) -> String {
        let Self { event, errno } = self;
        let why = describe(*errno);
        let remedy = match (*errno, paranoid) {
            (errno, Some(level)) if is_denied(errno) && level > 1 => format!(
                ": kernel.perf_event_paranoid is {level}; run as root, give nprof-record CAP_PERFMON, \
                 or `sysctl kernel.perf_event_paranoid=1`"
            ),
            (errno, _) if is_denied(errno) => {
                ": run as root or with CAP_PERFMON; in a container, its seccomp profile must allow perf_event_open".to_owned()
            }
            (errno, _) if is_missing(errno) => ": try -e cpu-clock".to_owned(),
            _ => String::new(),
        };
        format!("cannot open the event {event}: {why}{remedy}")
    }
}

impl Plan {
    /// The fields of the samples.
    pub(crate) fn layout(&self) -> Layout {
        let lost = usize::from(self.level >= Level::Lost);
        Layout {
            read: if self.level == Level::InheritRead { 1 + lost } else { 0 },
            callchain: self.has_callchain(),
            registers: if self.unwind == Unwind::Dwarf { arch::COUNT } else { 0 },
        }
    }

    /// Whether an event, read, tells how many of its records were lost.
    pub(crate) fn tells_lost(&self) -> bool {
        self.level >= Level::Lost
    }

    /// How many bytes of records a busy CPU makes per second, at most.
    pub(crate) fn bytes_per_second(&self) -> u64 {
        let stack = if self.unwind == Unwind::Dwarf { u64::from(self.stack_size) } else { 0 };
        self.frequency.saturating_mul(stack + 1024)
    }

    /// The largest record, bytes.
    pub(crate) fn largest_record(&self) -> usize {
        (self.stack_size as usize + 4096).min(1 << 16)
    }

    /// Whether samples carry the kernel's call chain.
    pub(crate) fn has_callchain(&self) -> bool {
        match self.unwind {
            Unwind::Dwarf => self.scope != Scope::User,
            Unwind::FramePointer => true,
            Unwind::None => false,
        }
    }
}

/// The bytes of a ring for samples, at most. The kernel clears them all before the command may
/// start, which takes a millisecond or two for each MiB.
const RING_MAX: u64 = 32 << 20;

/// The bytes of all rings for samples together, at most.
const RINGS_MAX: u64 = 256 << 20;

/// How large the rings for samples are at first, bytes: a quarter of a second's worth per CPU.
pub(crate) fn ring_size(bytes_per_second: u64, cpus: usize, page: usize) -> usize {
    let share = RINGS_MAX / cpus.max(1) as u64;
    let wanted = (bytes_per_second / 4).min(share).min(RING_MAX).max(page as u64);
    let size = usize::try_from(wanted).unwrap_or(usize::MAX);
    1 << size.ilog2() // a power of two, and not below a page, which is one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::DEFAULT_EVENT;
    use perf_event_open_sys::bindings as perf;
    use std::cell::RefCell;

    /// Refuses by a rule, and keeps what was tried.
    struct Refuses<F>(F, RefCell<u32>);

    impl<F: Fn(&perf_event_attr, Reach) -> i32> Perf for Refuses<F> {
        fn attempt(&self, attr: &perf_event_attr, reach: Reach, _cpu: u32) -> Result<(), i32> {
            *self.1.borrow_mut() += 1;
            match (self.0)(attr, reach) {
                0 => Ok(()),
                errno => Err(errno),
            }
        }
    }

    fn planned(
        request: &Request,
        rule: impl Fn(&perf_event_attr, Reach) -> i32,
    ) -> Result<Plan, Refusal> {
        plan(&Refuses(rule, RefCell::new(0)), request, 0)
    }

    fn request(event: &'static str) -> Request {
        Request { event, frequency: 997, unwind: None, stack_size: 32768, scope: Scope::Both }
    }

    fn is_hardware(attr: &perf_event_attr) -> bool {
        attr.type_ == perf::PERF_TYPE_HARDWARE
    }

    fn samples(attr: &perf_event_attr) -> bool {
        attr.config != u64::from(perf::PERF_COUNT_SW_DUMMY)
    }

    #[test]
    fn with_every_right_cycles_are_sampled_everywhere() {
        let plan = planned(&request(DEFAULT_EVENT), |_, _| 0).expect("a plan");
        assert_eq!((plan.event.name, plan.event.unit), ("cycles", "cycles"));
        assert_eq!(
            (plan.reach, plan.scope, plan.unwind),
            (Reach::System, Scope::Both, Unwind::Dwarf)
        );
        assert_eq!(plan.fallback, "");
        let attr = plan.sample_attr(0);
        assert_eq!(
            (attr.inherit(), attr.exclude_callchain_user(), attr.exclude_kernel()),
            (0, 1, 0)
        );
    }

    #[test]
    fn the_default_falls_back_by_name_and_a_named_event_fails() {
        let none = |attr: &perf_event_attr, _| if is_hardware(attr) { libc::ENOENT } else { 0 };
        let plan = planned(&request(DEFAULT_EVENT), none).expect("a plan");
        assert_eq!(plan.event.name, "cpu-clock");
        assert_eq!(plan.fallback, "cycles: this machine has no such counter");
        let refusal = planned(&request("cycles"), none).expect_err("no fallback");
        assert_eq!(refusal, Refusal { event: "cycles", errno: libc::ENOENT });
        assert!(refusal.explain(None).contains("cycles: this machine has no such counter"));
    }

    #[test]
    fn without_rights_tasks_are_sampled_and_then_only_their_user_code() {
        let no_system =
            |_: &perf_event_attr, reach| if reach == Reach::System { libc::EACCES } else { 0 };
        let plan = planned(&request("cpu-clock"), no_system).expect("a plan");
        assert_eq!((plan.reach, plan.scope), (Reach::Task, Scope::Both));
        let no_kernel = |attr: &perf_event_attr, reach| match reach {
            Reach::Task if attr.exclude_kernel() == 1 => 0,
            _ => libc::EPERM,
        };
        let plan = planned(&request("cpu-clock"), no_kernel).expect("a plan");
        assert_eq!((plan.reach, plan.scope), (Reach::Task, Scope::User));
        let attr = plan.sample_attr(0);
        assert_eq!((attr.inherit(), attr.enable_on_exec()), (1, 1));
        assert_eq!(attr.sample_type & u64::from(perf::PERF_SAMPLE_CALLCHAIN), 0);
        let attr = Plan { unwind: Unwind::FramePointer, ..plan }.sample_attr(0);
        assert_eq!((attr.exclude_callchain_kernel(), attr.exclude_callchain_user()), (1, 0));
    }

    #[test]
    fn nobody_gets_what_was_not_asked_for() {
        let no_kernel =
            |attr: &perf_event_attr, _| if attr.exclude_kernel() == 1 { 0 } else { libc::EACCES };
        let asked = Request { scope: Scope::Kernel, ..request("cpu-clock") };
        let refusal = planned(&asked, no_kernel).expect_err("the kernel is closed");
        assert!(refusal.explain(Some(2)).contains("perf_event_paranoid is 2"));
        assert!(refusal.explain(None).contains("CAP_PERFMON"));
    }

    #[test]
    fn features_are_dropped_newest_first() {
        let no_lost =
            |attr: &perf_event_attr, _| if attr.read_format != 0 { libc::EINVAL } else { 0 };
        let plan = planned(&request("cpu-clock"), no_lost).expect("a plan");
        assert_eq!((plan.level, plan.tells_lost()), (Level::Ksymbol, false));
        assert_eq!(plan.side_attr(0).ksymbol(), 1);
        let old = |attr: &perf_event_attr, _| match attr.read_format != 0 || attr.ksymbol() == 1 {
            true => libc::E2BIG,
            false => 0,
        };
        let plan = planned(&request("cpu-clock"), old).expect("a plan");
        assert_eq!((plan.level, plan.side_attr(0).ksymbol()), (Level::Base, 0));
    }

    #[test]
    fn inherited_samples_carry_values_where_the_kernel_allows() {
        let tasks = |attr: &perf_event_attr, reach| match (
            reach,
            attr.sample_type & u64::from(perf::PERF_SAMPLE_READ),
        ) {
            (Reach::System, _) => libc::EACCES,
            _ => 0,
        };
        assert_eq!(planned(&request("cpu-clock"), tasks).expect("a plan").layout().read, 2);
        let old = |attr: &perf_event_attr, reach| match (
            reach,
            attr.sample_type & u64::from(perf::PERF_SAMPLE_READ),
        ) {
            (Reach::System, _) => libc::EACCES,
            (Reach::Task, 0) => 0,
            _ => libc::EINVAL,
        };
        let plan = planned(&request("cpu-clock"), old).expect("a plan");
        assert_eq!((plan.layout().read, plan.tells_lost()), (0, true));
    }

    #[test]
    fn stacks_fall_back_to_frame_pointers_only_when_the_choice_is_ours() {
        let no_copy = |attr: &perf_event_attr, _| {
            if samples(attr) && attr.sample_stack_user > 0 { libc::EOPNOTSUPP } else { 0 }
        };
        let plan = planned(&request("cpu-clock"), no_copy).expect("a plan");
        assert_eq!((plan.unwind, plan.layout().registers), (Unwind::FramePointer, 0));
        let asked = Request { unwind: Some(Unwind::Dwarf), ..request("cpu-clock") };
        assert!(planned(&asked, no_copy).is_err());
    }

    #[test]
    fn rings_are_powers_of_two_within_their_share() {
        assert_eq!(ring_size(33 << 20, 2, 4096), 8 << 20);
        assert_eq!(ring_size(330 << 20, 2, 4096), 32 << 20);
        assert_eq!(ring_size(330 << 20, 256, 4096), 1 << 20);
        assert_eq!(ring_size(0, 4, 4096), 4096);
        assert_eq!(ring_size(u64::MAX, 0, 65536).count_ones(), 1);
    }
}
