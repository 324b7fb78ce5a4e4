use super::*;
use nprof_stream::Measure;
use perf_event_open_sys::bindings as perf;

/// Refuses by a rule.
struct Refuses<F>(F);

impl<F: Fn(&perf_event_attr, OpenMode) -> i32> TryOpen for Refuses<F> {
    fn try_open(
        &self,
        attr: &perf_event_attr,
        _encoding: &PerfEventConfig,
        open_mode: OpenMode,
        _cpu: u32,
    ) -> Result<(), i32> {
        match (self.0)(attr, open_mode) {
            0 => Ok(()),
            errno => Err(errno),
        }
    }
}

fn planned(
    request: &Request,
    rule: impl Fn(&perf_event_attr, OpenMode) -> i32,
) -> Result<Plan, OpenRefusal> {
    plan(&Refuses(rule), request, &[0, 1])
}

fn event(name: &str, measure: Measure, kind: u32, config: u32) -> Event {
    let encoding =
        PerfEventConfig { kind, config: u64::from(config), ..PerfEventConfig::default() };
    let rate = if measure == Measure::CpuTime {
        EventRate::PerCpuSecond(1_000_000_000)
    } else {
        EventRate::Unknown
    };
    Event { name: name.to_owned(), measure, rate, configs: vec![encoding], value_period: None }
}

fn cycles() -> Event {
    event("cycles", Measure::Cycles, perf::PERF_TYPE_HARDWARE, perf::PERF_COUNT_HW_CPU_CYCLES)
}

fn clock() -> Event {
    event("cpu-clock", Measure::CpuTime, perf::PERF_TYPE_SOFTWARE, perf::PERF_COUNT_SW_CPU_CLOCK)
}

fn requested(name: &str, candidates: Vec<Event>) -> RequestedEvent {
    RequestedEvent { name: name.to_owned(), candidates, period: None, scope: None }
}

fn request(events: Vec<RequestedEvent>) -> Request {
    Request {
        events,
        frequency: 997,
        unwind: None,
        stack_size: 32768,
        scope: CpuMode::Both,
        open_modes: vec![OpenMode::System, OpenMode::Task],
        delayed: false,
    }
}

fn default_request() -> Request {
    request(vec![requested("nprof.clk_unhalted", vec![cycles(), clock()])])
}

fn clock_request() -> Request {
    request(vec![requested("cpu-clock", vec![clock()])])
}

fn is_hardware(attr: &perf_event_attr) -> bool {
    attr.type_ == perf::PERF_TYPE_HARDWARE
}

fn samples(attr: &perf_event_attr) -> bool {
    attr.config != u64::from(perf::PERF_COUNT_SW_DUMMY)
}

fn attr(plan: &Plan) -> perf_event_attr {
    let planned = &plan.events[0];
    plan.common.sample_attr(&planned.event.configs[0], planned.period, planned.scope, 0)
}

#[test]
fn privileged_user_samples_cycles_on_all_cpus() {
    let plan = planned(&default_request(), |_, _| 0).expect("a plan");
    let (planned, common) = (&plan.events[0], plan.common);
    assert_eq!((planned.event.name.as_str(), planned.fallback.as_str()), ("cycles", ""));
    assert_eq!(
        (common.open_mode, common.scope, common.unwind),
        (OpenMode::System, CpuMode::Both, StackMode::Dwarf)
    );
    let attr = attr(&plan);
    assert_eq!((attr.inherit(), attr.exclude_callchain_user(), attr.exclude_kernel()), (0, 1, 0));
}

#[test]
fn default_event_falls_back_and_named_event_fails() {
    let none = |attr: &perf_event_attr, _| if is_hardware(attr) { libc::ENOENT } else { 0 };
    let plan = planned(&default_request(), none).expect("a plan");
    assert_eq!(plan.events[0].event.name, "cpu-clock");
    assert!(plan.events[0].fallback.starts_with("cycles: "), "{}", plan.events[0].fallback);
    let named = request(vec![requested("cycles", vec![cycles()])]);
    let refusal = planned(&named, none).expect_err("there is no counter");
    assert!(refusal.explain(None).contains("the event cycles"), "{}", refusal.explain(None));
}

#[test]
fn default_event_needs_its_counter_on_all_cpus() {
    let mut partial = cycles();
    partial.configs[0].cpus = Some(vec![1]);
    let default = request(vec![requested("nprof.clk_unhalted", vec![partial.clone(), clock()])]);
    let chosen = planned(&default, |_, _| 0).expect("a plan").events.remove(0);
    assert_eq!(chosen.event.name, "cpu-clock");
    assert!(chosen.fallback.starts_with("cycles: "), "{}", chosen.fallback);
    let named = request(vec![requested("cycles", vec![partial.clone()])]);
    assert_eq!(planned(&named, |_, _| 0).expect("a plan").events[0].event, partial);
    let on_other = plan(&Refuses(|_: &_, _| 0), &named, &[0]).expect_err("CPU 0 has none");
    assert_eq!(on_other.errno, libc::ENODEV);
}

#[test]
fn busy_counter_does_not_fall_back() {
    let held = |attr: &perf_event_attr, _| if is_hardware(attr) { libc::EBUSY } else { 0 };
    assert_eq!(planned(&default_request(), held).expect_err("it is held").errno, libc::EBUSY);
}

#[test]
fn several_events_keep_their_own_settings() {
    let mut kernel = requested("cpu-clock", vec![clock()]);
    kernel.period = Some(50_000);
    kernel.scope = Some(CpuMode::Kernel);
    let requested_name = request(vec![requested("cycles", vec![cycles()]), kernel]);
    let plan = planned(&requested_name, |_, _| 0).expect("a plan");
    let [first, second] = &plan.events[..] else { panic!("{plan:?}") };
    assert_eq!((first.scope, second.scope), (CpuMode::Both, CpuMode::Kernel));
    assert_eq!(second.period, SamplingPeriod::Fixed(50_000));
    let encoding = &second.event.configs[0];
    let attr = plan.common.sample_attr(encoding, second.period, second.scope, 0);
    assert_eq!((attr.exclude_user(), attr.freq()), (1, 0));
    let none = |attr: &perf_event_attr, _| if is_hardware(attr) { libc::ENOENT } else { 0 };
    assert_eq!(planned(&requested_name, none).expect_err("one is missing").event, "cycles");
}

#[test]
fn unprivileged_user_samples_tasks_by_inheritance() {
    let tasks =
        |_: &perf_event_attr, open_mode| if open_mode == OpenMode::Task { 0 } else { libc::EACCES };
    let plan = planned(&clock_request(), tasks).expect("a plan");
    assert_eq!((plan.common.open_mode, plan.common.scope), (OpenMode::Task, CpuMode::Both));
    let no_kernel = |attr: &perf_event_attr, open_mode| match (open_mode, attr.exclude_kernel()) {
        (OpenMode::Task, 1) => 0,
        _ => libc::EACCES,
    };
    let plan = planned(&clock_request(), no_kernel).expect("a plan");
    assert_eq!((plan.common.open_mode, plan.common.scope), (OpenMode::Task, CpuMode::User));
    assert_eq!((attr(&plan).inherit(), attr(&plan).enable_on_exec()), (1, 1));
    assert_eq!(attr(&plan).sample_type & u64::from(perf::PERF_SAMPLE_CALLCHAIN), 0);
    let common = CommonAttr { unwind: StackMode::FramePointer, ..plan.common };
    let by_chain = attr(&Plan { common, ..plan });
    assert_eq!(by_chain.exclude_callchain_kernel(), 1);
    assert_eq!(by_chain.exclude_callchain_user(), 0);
}

#[test]
fn requested_open_mode_is_not_widened() {
    let tasks =
        |_: &perf_event_attr, open_mode| if open_mode == OpenMode::Task { 0 } else { libc::EACCES };
    let requested_name = Request { open_modes: vec![OpenMode::System], ..clock_request() };
    assert_eq!(planned(&requested_name, tasks).expect_err("no rights").errno, libc::EACCES);
    let requested_name = Request { open_modes: vec![OpenMode::Group], ..clock_request() };
    assert_eq!(
        planned(&requested_name, |_, _| 0).expect("a plan").common.open_mode,
        OpenMode::Group
    );
}

#[test]
fn rights_to_sample_all_tasks_are_known_in_each_open_mode() {
    let may_open_system = |open_modes: &[OpenMode], rule: fn(&perf_event_attr, OpenMode) -> i32| {
        let request = Request { open_modes: open_modes.to_vec(), ..clock_request() };
        planned(&request, rule).expect("a plan").may_open_system
    };
    let tasks =
        |_: &perf_event_attr, open_mode| if open_mode == OpenMode::Task { 0 } else { libc::EACCES };
    for open_modes in [&[OpenMode::Task][..], &[OpenMode::System, OpenMode::Task]] {
        assert!(may_open_system(open_modes, |_, _| 0), "{open_modes:?}");
        assert!(!may_open_system(open_modes, tasks), "{open_modes:?}");
    }
}

#[test]
fn cpu_mode_is_never_widened() {
    let no_kernel =
        |attr: &perf_event_attr, _| if attr.exclude_kernel() == 1 { 0 } else { libc::EACCES };
    let requested_name = Request { scope: CpuMode::Kernel, ..clock_request() };
    let refusal = planned(&requested_name, no_kernel).expect_err("the kernel is closed");
    assert!(refusal.explain(Some(2)).contains("perf_event_paranoid is 2"));
    assert!(refusal.explain(None).contains("CAP_PERFMON"));
    let mut kernel = requested("cpu-clock", vec![clock()]);
    kernel.scope = Some(CpuMode::Kernel);
    let requested_name = request(vec![requested("cpu-clock", vec![clock()]), kernel]);
    assert_eq!(planned(&requested_name, no_kernel).expect_err("closed").errno, libc::EACCES);
}

#[test]
fn event_modifier_overrides_the_global_cpu_mode() {
    let mut kernel = requested("cpu-clock", vec![clock()]);
    kernel.scope = Some(CpuMode::Kernel);
    let mut both = requested("cpu-clock", vec![clock()]);
    both.scope = Some(CpuMode::Both);
    let events = vec![requested("cpu-clock", vec![clock()]), kernel, both];
    let requested_name = Request { scope: CpuMode::User, ..request(events) };
    let plan = planned(&requested_name, |_, _| 0).expect("a plan");
    let scopes: Vec<_> = plan.events.iter().map(|planned| planned.scope).collect();
    assert_eq!(scopes, [CpuMode::User, CpuMode::Kernel, CpuMode::Both]);
}

#[test]
fn features_are_dropped_newest_first() {
    let no_lost = |attr: &perf_event_attr, _| if attr.read_format != 0 { libc::EINVAL } else { 0 };
    let common = planned(&clock_request(), no_lost).expect("a plan").common;
    assert_eq!((common.features, common.counts_lost()), (KernelFeatures::Ksymbol, false));
    assert_eq!(common.sideband_attr(0).ksymbol(), 1);
    let old = |attr: &perf_event_attr, _| match attr.read_format != 0 || attr.ksymbol() == 1 {
        true => libc::E2BIG,
        false => 0,
    };
    let common = planned(&clock_request(), old).expect("a plan").common;
    assert_eq!((common.features, common.sideband_attr(0).ksymbol()), (KernelFeatures::Base, 0));
}

#[test]
fn inherited_samples_carry_values_where_the_kernel_allows() {
    let values = |attr: &perf_event_attr| attr.sample_type & u64::from(perf::PERF_SAMPLE_READ);
    let tasks =
        |_: &perf_event_attr, open_mode| if open_mode == OpenMode::Task { 0 } else { libc::EACCES };
    let common = planned(&clock_request(), tasks).expect("a plan").common;
    let counter = PerfEventConfig::new(perf::PERF_TYPE_HARDWARE, perf::PERF_COUNT_HW_CPU_CYCLES);
    // The value and the lost records; of a counter also its times.
    assert_eq!(common.words_in_samples(&event::cpu_clock()), 2);
    assert_eq!(common.words_in_samples(&counter), 4);
    let old = |attr: &perf_event_attr, open_mode| match (open_mode, values(attr)) {
        (OpenMode::Task, 0) => 0,
        (OpenMode::Task, _) => libc::EINVAL,
        _ => libc::EACCES,
    };
    let common = planned(&clock_request(), old).expect("a plan").common;
    assert_eq!((common.words_in_samples(&counter), common.counts_lost()), (0, true));
}

#[test]
fn explicit_unwind_mode_does_not_fall_back() {
    let no_copy = |attr: &perf_event_attr, _| {
        if samples(attr) && attr.sample_stack_user > 0 { libc::EOPNOTSUPP } else { 0 }
    };
    let common = planned(&clock_request(), no_copy).expect("a plan").common;
    assert_eq!(
        (common.unwind, common.layout(SamplingPeriod::Adaptive(1)).registers),
        (StackMode::FramePointer, 0)
    );
    let requested_name = Request { unwind: Some(StackMode::Dwarf), ..clock_request() };
    assert!(planned(&requested_name, no_copy).is_err());
}

#[test]
fn refusal_names_the_least_remedy() {
    for (errno, paranoid, named) in [
        (libc::ENOSYS, 2, "CONFIG_PERF_EVENTS"),
        (libc::EACCES, 3, "sysctl kernel.perf_event_paranoid=1"),
        (libc::EPERM, 2, "CAP_PERFMON"),
        // A denial that the setting does not explain comes from the filter of a container.
        (libc::EPERM, -1, "seccomp profile must allow perf_event_open"),
        (libc::EACCES, 1, "seccomp"),
        (libc::EMFILE, 2, "ulimit -n"),
        (libc::ENFILE, 2, "sysctl fs.file-max"),
        (libc::ENOMEM, 2, "no memory"),
        (libc::EBUSY, 2, "kernel.nmi_watchdog"),
        (libc::ENOSPC, 2, "end other profilers"),
    ] {
        let refusal = planned(&default_request(), |_, _| errno).expect_err("refused");
        assert_eq!(refusal.errno, errno);
        let explained = refusal.explain(Some(paranoid));
        assert!(explained.contains("nprof.clk_unhalted"), "{explained}");
        assert!(explained.contains(named) && !explained.contains('\n'), "{explained}");
    }
    let whole_cpus = Request { open_modes: vec![OpenMode::System], ..default_request() };
    let refusal = planned(&whole_cpus, |_, _| libc::EACCES).expect_err("refused");
    let explained = refusal.explain(Some(1));
    assert!(explained.contains("kernel.perf_event_paranoid=0"), "{explained}");
}

#[test]
fn error_other_than_denied_stops_the_search() {
    for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOSYS] {
        let reached = std::cell::Cell::new(0);
        let count = |_: &perf_event_attr, open_mode| {
            reached.set(reached.get() + u32::from(open_mode == OpenMode::Task));
            errno
        };
        assert_eq!(planned(&clock_request(), count).expect_err("refused").errno, errno);
        assert_eq!(reached.get(), 0, "less would be recorded than there are rights to");
    }
}

#[test]
fn delayed_sampling_opens_events_disabled() {
    let tasks =
        |_: &perf_event_attr, open_mode| if open_mode == OpenMode::Task { 0 } else { libc::EACCES };
    let requested_name = Request { delayed: true, ..clock_request() };
    let plan = planned(&requested_name, tasks).expect("a plan");
    assert_eq!((attr(&plan).disabled(), attr(&plan).enable_on_exec()), (1, 0));
    assert_eq!(plan.common.sideband_attr(0).enable_on_exec(), 1);
}

#[test]
fn bpf_copier_serves_events_that_do_not_interrupt_each_other() {
    let task = || {
        event(
            "task-clock",
            Measure::CpuTime,
            perf::PERF_TYPE_SOFTWARE,
            perf::PERF_COUNT_SW_TASK_CLOCK,
        )
    };
    let faults = || {
        event(
            "page-faults",
            Measure::Count,
            perf::PERF_TYPE_SOFTWARE,
            perf::PERF_COUNT_SW_PAGE_FAULTS,
        )
    };
    let traced = || event("sched:x", Measure::Count, perf::PERF_TYPE_TRACEPOINT, 7);
    let with_bpf_copier = |events: Vec<Event>| {
        let requested = |event: Event| requested(&event.name.clone(), vec![event]);
        let plan = planned(&request(events.into_iter().map(requested).collect()), |_, _| 0);
        plan.expect("a plan").with_bpf_copier()
    };
    assert_eq!(with_bpf_copier(vec![traced(), clock(), cycles(), faults(), task()]), [1, 4]);
    assert_eq!(with_bpf_copier(vec![cycles(), clock(), cycles()]), [0, 2]);
    assert_eq!(
        with_bpf_copier(vec![faults(), faults(), clock()]),
        [0],
        "it has no interrupt of its own"
    );
    assert!(with_bpf_copier(vec![traced()]).is_empty());
}

#[test]
fn timers_of_cpus_have_phases() {
    let phases = |request: &Request| planned(request, |_, _| 0).expect("a plan").timer_phases(4);
    let none = TimerPhases::default();
    assert_eq!(phases(&clock_request()), TimerPhases::new(Duration::from_nanos(1_003_010), 4));
    assert_eq!(phases(&default_request()), TimerPhases::new(Duration::ZERO, 4), "counters");
    let of_task = Request { open_modes: vec![OpenMode::Task], ..clock_request() };
    assert_eq!(phases(&of_task), none);
}

#[test]
fn ring_has_room_for_one_sample_of_both_parts_of_a_wait() {
    let bytes_per_second = |names: &[&str]| {
        let waits = |&name: &&str| {
            let event = event(name, Measure::WaitTime, perf::PERF_TYPE_SOFTWARE, 0);
            requested(name, vec![event])
        };
        let plan = planned(&request(names.iter().map(waits).collect()), |_, _| 0);
        plan.expect("a plan").bytes_per_second(&[])
    };
    let one = bytes_per_second(&["blocked"]);
    assert!(one > 0);
    assert_eq!(bytes_per_second(&["runnable"]), one);
    assert_eq!(bytes_per_second(&["runnable", "blocked"]), one);
    assert_eq!(bytes_per_second(&["blocked", "wakes"]), 2 * one);
}
