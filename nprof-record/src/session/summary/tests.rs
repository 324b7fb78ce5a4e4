use super::*;
use crate::convert::allocations::state::Unseen;
use crate::event::{EventSpec, PreloadPeriod};
use crate::session::delays::DelayCause;

fn summary() -> Summary {
    Summary {
        samples: 90,
        task_ns: Some(100_000_000),
        clock: Some(Sum { samples: 90, weight: 95_000_000 }),
        recorder_ns: 1_500_000,
        recorder_bytes: 3 << 20,
        frequency: 997,
        period_ns: None,
        ..Summary::default()
    }
}

/// Returns the plan of an event of the preloaded library.
fn plan(event: &str) -> PreloadPlan {
    let specs = EventSpec::expanded_all(&[EventSpec::parse(event).expect("a name")]);
    let mut specs = specs.expect("a group or an event");
    PreloadPlan::split(&mut specs, PreloadPeriod::of_all(None, None))
        .expect("valid")
        .expect("an event")
}

#[test]
fn program_without_instrumented_functions_is_explained() {
    let unseen = Unseen { processes: 2, ..Unseen::default() };
    let missed = Missed { unseen, ..Missed::default() };
    let preloaded = Some(plan("calls"));
    let summary = Summary { preloaded, has_no_calls: true, missed, ..summary() };
    let [calls, unseen] = &summary.warnings()[..] else { panic!("{:?}", summary.warnings()) };
    assert!(calls.contains("compile it with -finstrument-functions or -pg"), "{calls}");
    assert!(unseen.starts_with("2 processes without calls;"), "{unseen}");
    assert!(unseen.ends_with("count calls with --calls"), "{unseen}");
}

#[test]
fn estimated_losses_are_at_most_those_for_which_there_is_cpu_time() {
    let lost = BTreeMap::from([(Cause::Ring, 80), (Cause::Throttle, 0)]);
    let mut estimated = Summary { lost: lost.clone(), lost_others: 7, ..summary() };
    estimated.bound_losses();
    // 90 samples represent 95 of 100 ms.
    assert_eq!((estimated.lost[&Cause::Ring], estimated.lost_others), (5, 82));
    let mut counted = Summary { lost, ..summary() };
    counted.bound_losses();
    assert_eq!((counted.lost[&Cause::Ring], counted.lost_others), (80, 0));
}

#[test]
fn missing_callers_of_other_users_processes_are_explained() {
    let mut summary = summary();
    summary.unreadable = 995;
    let warning = "995 samples of other users' processes have no callers: their mappings may \
                   not be read; run as root";
    assert_eq!(summary.warnings(), [warning]);
}

#[test]
fn program_that_is_not_unwound_since_it_is_32_bit_is_named() {
    let mut summary = summary();
    summary.compat = CompatSamples { samples: 42, comm: b"old\n".to_vec() };
    let warning = "32-bit programs are named, but not unwound: 42 samples without callers, the \
                   first of old\\n; record programs with frame pointers with --unwind fp";
    assert_eq!(summary.warnings(), [warning]);
}

#[test]
fn summary_line_lists_all_counts() {
    let mut summary = summary();
    let line = "90 samples, 0 lost, 0 incomplete; 100 ms CPU at 900 Hz, coverage 95.0 %; \
                recorder 1.5 ms CPU, 3.0 MiB";
    assert_eq!(summary.line(), line);
    assert!(summary.warnings().is_empty());
    summary.incomplete = BTreeMap::from([(Mark::StackTruncated, 4), (Mark::NoUnwindInfo, 1)]);
    summary.lost_others = 325;
    summary.lost = BTreeMap::from([(Cause::Ring, 36)]);
    let start = "90 samples, about 36 lost (ring 36), without 325 of other processes, 5 inc";
    assert!(summary.line().starts_with(start), "{}", summary.line());
    summary.lost_others = 0;
    summary.lost = BTreeMap::from([(Cause::Throttle, 0)]);
    (summary.stitched, summary.late) = (7, 2);
    let start = "90 samples, 0 lost (throttle), 5 incomplete (stack-truncated 4, \
                 no-unwind-info 1), 7 completed from earlier stacks, 2 samples out of order; 100";
    assert!(summary.line().starts_with(start), "{}", summary.line());
}

#[test]
fn events_that_share_a_counter_are_a_warning() {
    let mut summary = summary();
    summary.lost = BTreeMap::from([(Cause::Multiplex, 68)]);
    let start = "90 samples, 68 lost (multiplex 68), 0 incomplete";
    assert!(summary.line().starts_with(start), "{}", summary.line());
    let warning = |count: &str| {
        format!(
            "{count} were not taken: there are more events than counters; record fewer at a time"
        )
    };
    assert_eq!(summary.warnings(), [warning("about 68 samples")]);
    summary.lost = BTreeMap::from([(Cause::Multiplex, 0)]);
    assert_eq!(summary.warnings(), [warning("all samples of an event")]);
}

#[test]
fn calls_that_are_not_in_the_stream_are_a_warning() {
    let mut summary = summary();
    let counted = CallSummary { calls: 9, written: 9, ..CallSummary::default() };
    summary.calls = Some(counted.clone());
    assert!(summary.warnings().is_empty());
    summary.calls = Some(CallSummary { written: 7, ..counted });
    assert_eq!(summary.warnings(), ["the stream lacks 2 of 9 calls"]);
}

#[test]
fn unknown_cpu_time_is_left_out() {
    let summary = Summary { task_ns: None, ..summary() };
    assert!(summary.line().contains("incomplete; recorder"), "{}", summary.line());
}

/// A summary without samples, of a command that ran for 2 s.
fn none(used_ns: u64) -> Summary {
    Summary {
        samples: 0,
        clock: Some(Sum::default()),
        task_ns: Some(used_ns),
        elapsed_ns: 2_000_000_000,
        subject: Some("the command"),
        ..summary()
    }
}

#[test]
fn missing_samples_are_explained_by_the_cpu_time() {
    let waited = "no samples: the command used 0.8 ms of CPU time in 2.00 s; waiting is not \
                  sampled";
    assert_eq!(none(800_000).warnings(), [waited]);
    let short = Summary { elapsed_ns: 3_000_000, ..none(800_000) };
    assert!(short.warnings().is_empty(), "too short for a sample");
    // Samples of the few milliseconds of a short command are missing together on a busy machine.
    let burst = Summary { elapsed_ns: 7_000_000, ..none(3_300_000) };
    assert!(burst.warnings().is_empty(), "{:?}", burst.warnings());
    let unexplained = Summary { elapsed_ns: 110_000_000, ..none(15_000_000) };
    assert!(
        unexplained.warnings()[0].ends_with("too little to find the reason; record a longer run")
    );
    let warnings = none(969_000_000).warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("no samples in 969 ms of CPU time: the event does not"));
    assert!(!warnings[0].contains("-F"), "no rate helps");
    let rare = Summary { frequency: 1, ..none(1_900_000_000) };
    let seldom =
        "no samples: the command used 1900 ms of CPU time in 2.00 s, too little for 1 Hz; raise -F";
    assert_eq!(rare.warnings(), [seldom.replace("1900 ms", &duration(1_900_000_000))]);
    let long = Summary { period_ns: Some(5_000_000_000), ..none(1_900_000_000) };
    assert!(
        long.warnings()[0].ends_with("too little for a period of 5.00 s; select a shorter one")
    );
    let system = Summary { subject: None, is_in_namespace: true, ..none(969_000_000) };
    assert!(system.warnings()[0].contains("of other pid namespaces"));
}

#[test]
fn cpu_time_that_is_less_than_that_of_the_samples_is_left_out() {
    let left_out = |task_ns, samples: u64| {
        let clock = Some(Sum { samples, weight: 1_072_000_000 });
        let mut summary = Summary { samples, task_ns: Some(task_ns), clock, ..summary() };
        summary.leave_out_low_time();
        summary.task_ns.is_none()
    };
    assert!(left_out(703_000_000, 1072));
    assert!(!left_out(1_000_000_000, 1072), "as in many short recordings");
    assert!(!left_out(703_000_000, 3), "few samples are more by chance");
}

#[test]
fn low_coverage_is_more_than_chance() {
    // 11 samples at 997 Hz where 13.8 are expected.
    let clock = Some(Sum { samples: 11, weight: 11_033_000 });
    let few = Summary { samples: 11, task_ns: Some(13_800_000), clock, ..summary() };
    assert!((few.coverage().expect("known") - 0.8).abs() < 0.01);
    assert!(few.warnings().is_empty(), "{:?}", few.warnings());
    let clock = Some(Sum { samples: 1100, weight: 1_103_300_000 });
    let many = Summary { samples: 1100, task_ns: Some(1_380_000_000), clock, ..summary() };
    let notes = "only 79 % of the CPU time was sampled: see the reasons in nprof-record(1), \
                 NOTES";
    assert_eq!(many.warnings(), [notes]);
    // Samples of waits represent no CPU time.
    let with_waits = Summary { samples: 9000, ..many.clone() };
    assert_eq!(with_waits.warnings(), [notes]);
    // 5 % of a long recording is no chance, however small a part it is.
    let clock = Some(Sum { samples: 9471, weight: 9_499_400_000 });
    let long = Summary { samples: 9471, task_ns: Some(10_000_000_000), clock, ..summary() };
    assert!(long.warnings()[0].starts_with("only 94 % of the CPU time was sampled: see"));
    let clock = Some(Sum { samples: 9671, weight: 9_700_000_000 });
    let nearly = Summary { samples: 9671, clock, ..long };
    assert!(nearly.warnings().is_empty());
    let inherited = Summary { open_mode: OpenMode::Task, ..nearly };
    assert!(
        inherited.warnings()[0].starts_with("only 97 % of the CPU time was sampled: inherited")
    );
    let inherited = Summary { open_mode: OpenMode::Task, ..many.clone() };
    assert!(inherited.warnings()[0].contains("inherited events miss"));
    assert!(inherited.warnings()[0].ends_with("record as root with --follow system"));
    let by_root = Summary { may_open_system: true, ..inherited };
    assert!(by_root.warnings()[0].ends_with("at a time; select --follow system"));
    let container = Summary { is_in_namespace: true, ..many.clone() };
    assert!(container.warnings()[0].contains("of other pid namespaces"));
    let lost = Summary { lost: BTreeMap::from([(Cause::Ring, 280)]), ..many };
    assert_eq!(lost.warnings().len(), 1, "the losses explain it");
    assert!(lost.warnings()[0].starts_with("the rings were full"));
}

#[test]
fn waiting_is_stated() {
    let clock = Some(Sum { samples: 11, weight: 11_033_000 });
    let waiting = Summary {
        samples: 11,
        task_ns: Some(11_000_000),
        elapsed_ns: 1_270_000_000,
        subject: Some("the command"),
        clock,
        ..summary()
    };
    let remark = "the command ran at most 1 % of the time; waiting, also for a CPU, is not sampled: \
                  record it with -e wall";
    assert_eq!(waiting.warnings(), [remark]);
    let system = Summary { subject: None, ..waiting.clone() };
    assert!(system.warnings().is_empty(), "an idle machine");
    let memory = Summary { clock: None, preloaded: Some(plan("heap")), ..waiting.clone() };
    assert!(
        !memory.warnings().iter().any(|warning| warning.contains("waiting")),
        "no time is sampled"
    );
    let busy = Summary { task_ns: Some(1_000_000_000), ..waiting };
    assert!(!busy.warnings().iter().any(|warning| warning.contains("waiting")));
}

#[test]
fn full_rings_name_their_cause_and_its_remedy() {
    let warning = |cause, has_priority, open_mode| {
        let delay = Some(Delay { cause, longest_ns: 600_000_000 });
        let lost = BTreeMap::from([(Cause::Ring, 3)]);
        let subject = Some("the command");
        let has_reader = true;
        let summary =
            Summary { lost, delay, has_priority, open_mode, subject, has_reader, ..summary() };
        summary.warnings().remove(0)
    };
    let system = OpenMode::System;
    assert_eq!(
        warning(DelayCause::Output, true, system),
        "the rings were full: nprof-record waited 600 ms for the reader of its output; write \
         to a file with -o, and read it later"
    );
    assert!(warning(DelayCause::Stopped, true, system).contains("was stopped for 600 ms; let"));
    for mode in [system, OpenMode::Task] {
        let no_cpu = warning(DelayCause::NoCpu, false, mode);
        assert!(no_cpu.ends_with("run it as root or with CAP_SYS_NICE"), "{no_cpu}");
    }
    let (delay, lost) =
        (Delay { cause: DelayCause::Output, longest_ns: 600_000_000 }, [(Cause::Ring, 3)].into());
    let of_file = Summary { lost, delay: Some(delay), ..summary() }.warnings().remove(0);
    assert!(of_file.contains("for writes to its file") && !of_file.contains("-o"), "{of_file}");
    let delay = Some(Delay { cause: DelayCause::NoCpu, longest_ns: 600_000_000 });
    let (lost, lost_others) = (BTreeMap::from([(Cause::Ring, 3)]), 4);
    let subject = Some("the command");
    let others = Summary { lost, lost_others, delay, subject, ..summary() };
    let no_cpu = others.warnings().remove(0);
    assert!(no_cpu.ends_with("CAP_SYS_NICE, or select --follow inherit"), "{no_cpu}");
    let no_cpu = warning(DelayCause::NoCpu, true, system);
    assert!(no_cpu.contains("`chrt -R -f 99`, so that no real-time program"), "{no_cpu}");
    let work = warning(DelayCause::Work, true, system);
    assert!(work.ends_with("sample less often with -F or -c"), "{work}");
    let delay = Some(Delay { cause: DelayCause::Work, longest_ns: 1_000_000 });
    let burst = Summary { lost: BTreeMap::from([(Cause::Ring, 3)]), delay, ..summary() };
    assert!(burst.warnings()[0].contains("records came in a burst; lower --stack-size, or sample"));
    let weighed = Summary { is_weighed: true, ..burst.clone() };
    assert!(weighed.warnings()[0].contains("every occurrence of the event is written"));
    let forks = Summary { sideband_lost: 49, delay, ..summary() };
    let warnings = forks.warnings();
    assert!(warnings[0].ends_with("wrong: processes started or mapped memory in a burst"));
    let subject = Some("the command");
    let others = Summary { subject, open_mode: OpenMode::System, ..forks };
    let warnings = others.warnings();
    assert!(warnings[0].ends_with(
        "in a burst; if they are others than the recorded ones, --follow cgroup omits them"
    ));
    let delay = Some(Delay { cause: DelayCause::Work, longest_ns: 60_000_000 });
    let storm = Summary { sideband_lost: 9, delay, ..summary() };
    assert_eq!(storm.warnings().len(), 1);
    assert!(storm.warnings()[0].contains("map memory faster than nprof-record reads (60 ms"));
}

#[test]
fn lost_records_of_processes_propose_no_option_for_samples() {
    let causes = [DelayCause::Output, DelayCause::Stopped, DelayCause::NoCpu, DelayCause::Work];
    let long = causes.map(|cause| Some(Delay { cause, longest_ns: 60_000_000 }));
    let short = causes.map(|cause| Some(Delay { cause, longest_ns: 1_000_000 }));
    for delay in long.into_iter().chain(short).chain([None]) {
        for open_mode in [OpenMode::Task, OpenMode::Group, OpenMode::System] {
            for has_priority in [false, true] {
                let lost =
                    Summary { sideband_lost: 2, delay, open_mode, has_priority, ..summary() };
                let warnings = lost.warnings();
                assert_eq!(warnings.len(), 1);
                let is_for_samples =
                    warnings[0].contains("--stack-size") || warnings[0].contains("-F");
                assert!(!is_for_samples, "{warnings:?}");
            }
        }
    }
    let inherit = Summary { sideband_lost: 2, may_open_system: true, ..summary() };
    let inherit = Summary { open_mode: OpenMode::Task, ..inherit }.warnings();
    assert!(
        inherit[0].ends_with("in a burst; select --follow system, which has larger rings for them")
    );
}

#[test]
fn one_of_a_kind_is_singular() {
    let one = Summary { sideband_lost: 1, unreadable: 1, unmeasured: 1, late: 1, ..summary() };
    let one = Summary { unread_stacks: 1, unread_images: 1, ..one };
    let one = Summary { rare_looks_ns: Some(170_500_000), ..one };
    let one =
        Summary { samples: 1, compat: CompatSamples { samples: 1, comm: b"old".to_vec() }, ..one };
    let text = format!("{} {}", one.warnings().join(" "), one.line());
    for part in [
        "1 record of processes and mappings was lost",
        "1 sample of other users' processes has no callers",
        "1 thread was not measured",
        "1 thread has no stacks of waits",
        "looked at each 170 ms only",
        "too many open files: 1 file of code could not be opened",
        "not unwound: 1 sample without callers",
        "1 sample, 0 lost",
        ", 1 sample out of order",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn warnings_state_a_remedy() {
    let little = Summary { clock: Some(Sum { samples: 2, weight: 2_000_000 }), ..summary() };
    assert!(little.warnings()[0].starts_with("only 2 % of the CPU time"));
    let idle = Summary { samples: 0, task_ns: Some(0), existing_descendants: Some(3), ..summary() };
    let message = "no samples: the processes used 0.0 ms of CPU time; 3 existing descendants \
                   are not recorded, see --descendants";
    assert_eq!(idle.warnings(), [message]);
    let lost = BTreeMap::from([(Cause::Ring, 3)]);
    let full = Summary { lost, sideband_lost: 1, ..summary() };
    assert_eq!(full.warnings().len(), 2);
    assert!(full.warnings()[1].ends_with("was lost, so some frames may be wrong"));
    let hidden = Summary { may_miss_processes: true, ..full };
    assert!(hidden.warnings()[1].contains("lost, so processes that ended soon after may be"));
}

#[test]
fn missing_processes_explain_low_coverage() {
    let little = Summary { clock: Some(Sum { samples: 2, weight: 2_000_000 }), ..summary() };
    let ended = Summary { ended_by_exec: 1, ..little.clone() };
    assert_eq!(ended.warnings().len(), 1);
    assert!(ended.warnings()[0].contains("of a task that executed a set-user-ID or"));
    assert!(ended.warnings()[0].ends_with("children; record as root with --follow system"));
    let as_root = Summary { may_open_system: true, ..ended };
    assert!(as_root.warnings()[0].ends_with("of later children; select --follow system"));
    let several = Summary { ended_by_exec: 2, samples: 0, ..little.clone() };
    assert_eq!(several.warnings().len(), 1);
    assert!(several.warnings()[0].contains("of 2 tasks"));
    let leaver = Summary { left_group: 1, ..little.clone() };
    assert!(leaver.warnings()[0].starts_with("1 process left the control group"));
    let left = Summary { outside_ns: 98_000_000, ..little };
    assert_eq!(left.warnings().len(), 1);
    assert!(left.warnings()[0].contains("98 ms of CPU time outside of its control group"));
}

#[test]
fn time_of_one_mode_is_named_and_judged_by_ticks() {
    // As find(1) for an ordinary user who may not sample the kernel: ten ticks, six of them sampled.
    let clock = Some(Sum { samples: 60, weight: 60_180_000 });
    let find = Summary {
        samples: 60,
        task_ns: Some(100_000_000),
        elapsed_ns: 1_500_000_000,
        subject: Some("the command"),
        clock,
        cpu_mode: CpuMode::User,
        ..summary()
    };
    assert!(
        find.line().contains("; 100 ms user CPU at 600 Hz, coverage 60.2 %"),
        "{}",
        find.line()
    );
    assert!(find.warnings().is_empty(), "it ran in the kernel: {:?}", find.warnings());
    let both = Summary { cpu_mode: CpuMode::Both, ..find.clone() };
    assert!(both.warnings()[0].starts_with("only 60 % of the CPU time was sampled"));
    assert!(both.warnings()[1].contains("waiting, also for a CPU, is not sampled"));
    // Of a hundred ticks, 40 are not missing by chance.
    let clock = Some(Sum { samples: 600, weight: 601_800_000 });
    let long = Summary { samples: 600, task_ns: Some(1_000_000_000), clock, ..find };
    assert!(long.warnings()[0].starts_with("only 60 % of the user CPU time was sampled"));
    // 1000 ticks, 60 of them missing: chance only if the command also ran in the kernel.
    let clock = Some(Sum { samples: 3760, weight: 3_760_000_000 });
    let half = Summary {
        samples: 3760,
        task_ns: Some(4_000_000_000),
        mode_share: Some(0.5),
        clock,
        ..long.clone()
    };
    assert!(half.warnings().is_empty(), "{:?}", half.warnings());
    let nearly_all = Summary { mode_share: Some(0.97), ..half };
    assert!(nearly_all.warnings()[0].starts_with("only 94 % of the user CPU time was sampled"));
    // Of five ticks, all were in user mode by chance.
    let clock = Some(Sum { samples: 10, weight: 10_000_000 });
    let few = Summary { samples: 10, task_ns: Some(20_000_000), clock, ..nearly_all.clone() };
    assert!(few.warnings().is_empty(), "{:?}", few.warnings());
    let none = Summary { cpu_mode: CpuMode::User, ..none(800_000) };
    let text = "no samples: the command used 0.8 ms of user CPU time in 2.00 s; the kernel and \
                waiting are not sampled";
    assert_eq!(none.warnings(), [text]);
}

#[test]
fn routines_without_events_are_named() {
    let mut summary = summary();
    let calls = CallSummary { unended: vec![b"f\n".to_vec()], ..CallSummary::default() };
    summary.calls = Some(calls.clone());
    let one = "--calls-event: f\\n: where the function ends is not known; its events are those of its \
               callers";
    assert_eq!(summary.warnings(), [one]);
    let calls = CallSummary { unended: vec![b"f".to_vec(); 3], missed_routines: 1, ..calls };
    summary.calls = Some(calls);
    let warnings = summary.warnings();
    assert!(warnings[0].contains("1 time there was no room"), "{warnings:?}");
    assert!(warnings[1].starts_with("--calls-event: f and 2 more: where"), "{warnings:?}");
}
