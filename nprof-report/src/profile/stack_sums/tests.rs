//! Sums across epochs, streams and damage.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::writer::{Encoding, Writer};
use proptest::prelude::*;

use super::*;
use crate::profile::sample_label::sample_label;

const TWO_EPOCHS: &str = "\
@nprof\t1.1\trun=0x1\tclock=monotonic\tcommand=./a
@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time
I\t1\telf\t-\t/usr/bin/a
T\t1\t5\t10\t10\t0\ta
F\t1\t1\t0x10\tu
F\t2\t1\t0x20\tu
F\t3\t0\t0x0\tu,stack-truncated
N\t1\t0\t1\t2
N\t3\t0\t3\t2
S\t6\t1\t1\t0\t2\t10\t1
S\t7\t1\t1\t0\t2\t10\t1
S\t8\t1\t1\t0\t3\t10\t1
S\t8\t1\t1\t0\t4\t10\t1
@epoch\tnumber=1
@event\tid=2\tname=cpu-clock\tunit=ns\tmeasure=cpu-time
I\t7\telf\t-\t/usr/bin/a
F\t9\t7\t0x20\tu
N\t1\t0\t9
S\t9\t2\t0\t0\t1\t5\t2
L\t9\t2\t0\t0\t3\tring
@end\tsamples=5\trecords=19\tlost=3
";

/// Samples and weight by the function of the leaf.
fn leaves(profile: &mut Profile, stream: &str) -> BTreeMap<String, (u64, u64)> {
    leaves_by(CallKey::Function, profile, stream)
}

/// Samples and weight by a label of the leaf.
fn leaves_by(key: CallKey, profile: &mut Profile, stream: &str) -> BTreeMap<String, (u64, u64)> {
    let mut labels = Labels::new();
    let mut leaves: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    profile
        .read("x", stream.as_bytes(), |tables, group, sum| {
            let leaf = tables.stack_calls(group.node).next();
            let name = leaf.map_or(NameId::default(), |call| labels.label(tables, call, key));
            let name = String::from_utf8_lossy(labels.names.get(name)).into_owned();
            let entry = leaves.entry(name).or_default();
            entry.0 += sum.samples;
            entry.1 += sum.weight;
        })
        .unwrap();
    leaves
}

#[test]
fn sums_are_right_across_epochs_and_ids_that_change() {
    // Node 1 is another stack in the second epoch.
    let mut profile = Profile::new(GroupBy::default());
    let leaves = leaves(&mut profile, TWO_EPOCHS);
    assert_eq!(leaves["a+0x20"], (5, 35));
    assert_eq!(leaves["[incomplete:stack-truncated]"], (1, 10));
    let summary = &profile.summary;
    assert!(summary.is_complete(), "{:?}", summary.incomplete_inputs);
    assert_eq!(summary.events.len(), 1);
    let sum = summary.events[0].sum;
    assert_eq!((sum.samples, sum.weight), (6, 45));
    assert_eq!(summary.events[0].incomplete, BTreeMap::from([(Mark::StackTruncated, 2)]));
    assert_eq!(summary.events[0].lost_samples(), 3);
    assert_eq!(summary.runs[0].samples, 6);
}

#[test]
fn streams_read_one_after_another_are_runs_of_one_profile() {
    let mut profile = Profile::new(GroupBy { task: true, cpu: true, ..GroupBy::default() });
    leaves(&mut profile, TWO_EPOCHS);
    let twice = [TWO_EPOCHS, TWO_EPOCHS].concat();
    leaves(&mut profile, &twice);
    assert_eq!(profile.summary.runs.len(), 3);
    assert_eq!(profile.summary.samples(), 18);
}

#[test]
fn lost_records_and_samples_of_others_are_no_lost_samples() {
    let stream = TWO_EPOCHS.replacen(
        "\n@epoch",
        "\nL\t9\t0\t-\t0\t0\tring\trecords=156047\n\
        L\t9\t1\t-\t0\t2\tring\tothers=9452\n@epoch",
        1,
    );
    let stream = stream.replace("lost=3", "lost=5");
    let mut profile = Profile::new(GroupBy::default());
    leaves(&mut profile, &stream);
    let summary = &profile.summary;
    assert_eq!(summary.events[0].lost, BTreeMap::from([(Cause::Ring, 5)]));
    assert_eq!((summary.events[0].lost_others, summary.lost_records), (9452, 156_047));
    let heading = summary.heading().join("\n");
    let lost = "lost 5 (estimated; without 9452 of other processes), with";
    assert!(heading.contains(lost), "{heading}");
    let records = "\nrecords: 156047 of processes and mappings were lost, so frames may be wrong";
    assert!(heading.contains(records), "{heading}");
}

#[test]
fn absence_of_samples_is_explained_by_the_cpu_time() {
    let heading_of = |event: &str, task_ns: &str| {
        let stream = format!(
            "@nprof\t1.1\trun=0x1\n@event\tid=1\t{event}\n\
             @end\tsamples=0\trecords=1\tlost=0{task_ns}\n"
        );
        let mut profile = Profile::new(GroupBy::default());
        profile.read("x", stream.as_bytes(), |_, _, _| {}).unwrap();
        profile.summary.heading().pop().unwrap_or_default()
    };
    let heading = |task_ns| heading_of("name=cpu-clock\tmeasure=cpu-time\tfrequency=997", task_ns);
    let idle = "no samples in 0.0006 s of CPU time at 997 Hz; waiting is not sampled";
    assert_eq!(heading("\ttask_ns=600000"), idle);
    let unseen = "no samples in 0.97 s of CPU time: see the messages of nprof-record";
    assert_eq!(heading("\ttask_ns=969000000"), unseen);
    assert_eq!(heading(""), "no samples: run the program for longer, and on the recorded CPUs");
    let user = "name=cpu-clock\tmeasure=cpu-time\tfrequency=997\tscope=user";
    let idle = "no samples in 0.0006 s of user CPU time at 997 Hz; waiting is not sampled";
    assert_eq!(heading_of(user, "\ttask_ns=600000"), idle);
    let rare = "no samples: the recorded events did not happen, or too seldom for a sample";
    for event in ["name=fd.open", "name=heap.alloc\tmeasure=bytes", "name=page-faults"] {
        assert_eq!(heading_of(event, "\ttask_ns=969000000"), rare);
    }
}

#[test]
fn events_beyond_the_limit_are_counted_together() {
    let mut stream = "@nprof\t1.1\trun=0x1\nF\t1\t0\t0x0\tu\nN\t1\t0\t1\n".to_owned();
    for id in 1..=10_000 {
        stream += &format!("@event\tid={id}\tname=e{id}\nS\t1\t{id}\t0\t0\t1\t7\t1\n");
    }
    let mut profile = Profile::new(GroupBy::default());
    profile.read("x", stream.as_bytes(), |_, _, _| {}).unwrap();
    let events = &profile.summary.events;
    assert!(events.len() == 4097 && profile.summary.has_omissions, "{}", events.len());
    let other = events.last().unwrap();
    assert_eq!((&other.event.name[..], other.sum.samples), (&b"(other)"[..], 10_000 - 4096));
    assert_eq!(profile.summary.samples(), 10_000);
}

#[test]
fn counts_that_cannot_be_stop_at_the_largest_number() {
    let sample = format!("S\t1\t1\t0\t0\t1\t{0}\t{0}\n", u64::MAX);
    let lost = format!("L\t1\t1\t-\t0\t{}\tring\n", u64::MAX);
    let stream = format!(
        "@nprof\t1.1\trun=0x1\nF\t1\t0\t0x0\tu,stack-truncated\nN\t1\t0\t1\n{sample}{sample}{lost}{lost}"
    );
    let mut profile = Profile::new(GroupBy::default());
    profile.read("x", stream.repeat(2).as_bytes(), |_, _, _| {}).unwrap();
    let summary = &profile.summary;
    assert_eq!(summary.samples(), u64::MAX);
    assert_eq!(summary.events[0].lost_samples(), u64::MAX);
    assert_eq!(summary.events[0].incomplete_samples(), u64::MAX);
    assert!(!summary.heading().is_empty());
}

#[test]
fn what_damage_took_is_told_and_not_guessed() {
    let stream =
        "@nprof\t1.1\trun=0x1\nN\t5\t4\t8\nS\t1\t3\t9\t0\t5\t7\t1\nS\t1\t3\t9\t0\t77\t7\t1\n";
    let mut profile = Profile::new(GroupBy { task: true, ..GroupBy::default() });
    let leaves = leaves(&mut profile, stream);
    assert_eq!(leaves["[damaged]"], (2, 14));
    assert_eq!(profile.summary.events[0].event.name, b"[damaged]");
    assert_eq!(profile.summary.incomplete_inputs[0].verdict, Verdict::Truncated);
}

#[test]
fn names_that_recorder_found_late_hold_for_earlier_samples() {
    let stream = "\
@nprof\t1.1\trun=0x1\n@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\n\
I\t1\tanon\t-\t[anon]\nI\t2\tjit\t-\tf\nI\t3\tanon\t-\t[anon]\tsince=5\n\
F\t1\t1\t0x10\tu\nF\t2\t2\t0x0\tu\nF\t3\t3\t0x10\tu\nF\t4\t1\t0x20\tu\n\
N\t1\t0\t1\nN\t2\t0\t2\nN\t3\t0\t3\nN\t4\t0\t4\n\
S\t6\t1\t0\t0\t1\t10\t1\nS\t7\t1\t0\t0\t2\t10\t1\nS\t8\t1\t0\t0\t3\t10\t1\nS\t9\t1\t0\t0\t4\t10\t1\n\
U\t1\tf\t-\nU\t2\tg\t-\nY\t1\tnamed\t1,0,0,0\nY\t3\tnamed\t2,0,0,0\n\
@end\tsamples=4\trecords=16\tlost=0\n";
    for (key, expected) in [
        (CallKey::Function, &[("[anon]+0x20", 1), ("f", 1), ("f+0x0", 1), ("g", 1)][..]),
        (CallKey::ImageName, &[("[anon]", 1), ("[jit]", 3)]),
    ] {
        let mut profile = Profile::new(GroupBy::default());
        let leaves = leaves_by(key, &mut profile, stream);
        let counts: Vec<_> = leaves.iter().map(|(name, sums)| (name.as_str(), sums.0)).collect();
        assert_eq!(counts, expected);
        assert!(!profile.summary.symbolized, "nprof-symbolize has not run");
        assert!(profile.summary.is_complete(), "{:?}", profile.summary.incomplete_inputs);
    }
}

/// The properties of a sample: event, task, CPU, node, weight, count.
type Properties = (u32, u32, u32, u32, u64, u64);

/// Samples of which many in a row have the same properties.
fn samples() -> impl Strategy<Value = Vec<Properties>> {
    // Small enough that no sum saturates.
    let weight = prop_oneof![6 => Just(10), 1 => Just(11), 1 => 0..1_u64 << 40];
    let count = prop_oneof![9 => Just(1), 1 => 0..4_u64];
    let properties = (1..3_u32, 1..3_u32, 0..2_u32, 0..40_u32, weight, count);
    let repeated = (properties, 1..30_usize);
    prop::collection::vec(repeated, 0..20).prop_map(|runs| {
        let mut samples = Vec::new();
        for ((event, task, cpu, node, weight, count), times) in runs {
            // Successive samples differ in their stacks.
            samples
                .extend((0..times as u32).map(|i| (event, task, cpu, node + i % 5, weight, count)));
        }
        samples
    })
}

/// Returns a stream of these samples in text.
fn text_of(samples: &[Properties]) -> String {
    let mut text = "@nprof\t1.1\trun=0x1\n@event\tid=1\tname=a\n@event\tid=2\tname=b\n\
                    T\t1\t5\t10\t10\t0\ta\nT\t2\t5\t10\t11\t0\tb\n"
        .to_owned();
    for (time, (event, task, cpu, node, weight, count)) in samples.iter().enumerate() {
        text.push_str(&format!("S\t{time}\t{event}\t{task}\t{cpu}\t{node}\t{weight}\t{count}\n"));
    }
    text
}

fn binary_of(text: &str) -> Vec<u8> {
    let mut reader = Reader::new(text.as_bytes());
    let mut writer = Writer::new(Vec::new(), Encoding::Binary);
    while let Some(record) = reader.next().unwrap() {
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap()
}

proptest! {
    #[test]
    fn sums_are_those_of_adding_each_sample(
        samples in samples(),
        task in any::<bool>(),
        cpu in any::<bool>(),
        slice in prop_oneof![Just(None), Just(NonZeroU64::new(50))],
    ) {
        let mut expected: BTreeMap<(usize, u32, u32, Option<u64>, u32), Sum> = BTreeMap::new();
        for (time, &(event, of_task, on_cpu, node, weight, count)) in samples.iter().enumerate() {
            // The first sample, at time 0, begins the run.
            let slice = slice.map_or(0, |slice| time as u64 / slice);
            let key = (
                event as usize - 1,
                if task { of_task } else { 0 },
                if cpu { on_cpu } else { NO_CPU },
                Some(slice),
                node,
            );
            expected.entry(key).or_default().add(Sum::of(count, weight));
        }
        let text = text_of(&samples);
        for stream in [text.as_bytes(), &binary_of(&text)] {
            let time = TimeSplit { slice, span: None };
            let mut profile = Profile::new(GroupBy { task, cpu, time, ..GroupBy::default() });
            let mut sums: BTreeMap<(usize, u32, u32, Option<u64>, u32), Sum> = BTreeMap::new();
            profile
                .read("x", stream, |_, group, sum| {
                    let GroupKey { event, task, cpu, slice, node, .. } = *group;
                    sums.entry((event, task.0, cpu, slice, node.0)).or_default().add(sum);
                })
                .unwrap();
            prop_assert_eq!(&sums, &expected);
        }
    }
}

#[test]
fn heading_states_the_share_without_names_and_the_remedy_of_the_first_image() {
    let stream = "@nprof\t1.1\trun=0x1\tclock=monotonic\tcommand=./a
@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time
I\t1\telf\t-\t/usr/bin/a
I\t2\telf\t-\t/usr/lib/libx.so
I\t3\tanon\t-\t[anon]
F\t1\t1\t0x10\tu
F\t2\t2\t0x20\tu
F\t3\t3\t0x30\tu
F\t4\t2\t0x40\tu
N\t1\t0\t1\t2
N\t3\t1\t3
N\t4\t2\t1
U\t1\tmain\t-
U\t2\tlibx.so+0x20 (after f)\t-
Y\t1\tnamed\t1,0,0,0
Y\t2\tno-symbol\t2,0,0,0
Y\t3\tanonymous
S\t6\t1\t0\t0\t1\t10\t1
S\t7\t1\t0\t0\t2\t10\t1
S\t8\t1\t0\t0\t2\t10\t1
S\t9\t1\t0\t0\t3\t10\t1
S\t9\t1\t0\t0\t4\t60\t1
@naming\timage=/usr/lib/libx.so\tkind=elf\tnamed=0\tunnamed=1\tremedy=apt install x\\t-dbg
@naming\timage=[anon]\tkind=anon\tnamed=0\tunnamed=1\tremedy=java
@end\tsamples=5\trecords=22\tlost=0
";
    let mut profile = Profile::new(GroupBy::default());
    leaves(&mut profile, stream);
    let heading = profile.summary.heading();
    let at = heading.iter().position(|line| line.starts_with("names:")).expect("a line");
    assert_eq!(
        heading[at..at + 2],
        [
            "names:   30.0 % of self is in code without names: libx.so 20.0 %, [anon] 10.0 %",
            "         libx.so: apt install x\\t-dbg",
        ]
    );
    let facts = &profile.summary.facts()["events"][0]["unnamed"];
    assert_eq!((&facts["samples"], &facts["percent"]), (&3.into(), &30.0.into()));
    assert_eq!(
        facts["images"][0],
        serde_json::json!({
            "image": "/usr/lib/libx.so", "samples": 2, "weight": 20, "percent": 20.0,
            "remedy": "apt install x\\t-dbg",
        })
    );
    // Without symbols the share says nothing.
    profile.summary.symbolized = false;
    assert!(profile.summary.facts()["events"][0]["unnamed"].is_null());
    // A name of another build is one, and marked.
    let of_another_build = stream.replace("no-symbol", "mismatch").replace("anonymous", "mismatch");
    let mut profile = Profile::new(GroupBy::default());
    leaves(&mut profile, &of_another_build);
    let heading = profile.summary.heading();
    let line = "names:   10.0 % of self is in code without names: [anon]";
    assert!(heading.iter().any(|it| it == line), "{heading:?}");
    // All of them have names.
    let named = stream.replace("no-symbol", "named").replace("anonymous", "named\t1,0,0,0");
    let mut profile = Profile::new(GroupBy::default());
    leaves(&mut profile, &named);
    let heading = profile.summary.heading();
    assert!(!heading.iter().any(|line| line.starts_with("names:")), "{heading:?}");
}

#[test]
fn samples_are_separated_by_the_extras_that_a_report_groups_by() {
    let stream = "@nprof\t1.1\trun=0x1\n@event\tid=1\tname=blocked\tunit=ns\tmeasure=wait-time\n\
        S\t1\t1\t0\t0\t0\t10\t1\tcall=read\ton=fd:3=a\\tb\tlasted=10\n\
        S\t2\t1\t0\t0\t0\t10\t1\n\
        S\t3\t1\t0\t0\t0\t10\t1\tcall=read\ton=fd:4=c\n\
        S\t4\t1\t0\t0\t0\t10\t1\tstate=D\n";
    let labels = |keys: &[SampleExtra]| {
        let (time, mut group_by) = (TimeSplit::default(), GroupBy::default());
        keys.iter().for_each(|&key| group_by.add_key(Key::Extra(key)));
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for input in [stream.as_bytes(), &binary_of(stream)] {
            let mut profile = Profile::new(group_by);
            profile
                .read("x", input, |context, group, sum| {
                    let label = |&key| sample_label(context, group, Key::Extra(key), time);
                    let label: Vec<Vec<u8>> = keys.iter().map(label).collect();
                    let label = label.join(&b' ').escape_ascii().to_string();
                    *sums.entry(label).or_default() += sum.weight;
                })
                .unwrap();
        }
        sums
    };
    let expected = |rows: &[(&str, u64)]| -> BTreeMap<String, u64> {
        rows.iter().map(|&(label, weight)| (label.to_owned(), 2 * weight)).collect()
    };
    assert_eq!(labels(&[SampleExtra::Call]), expected(&[("read", 20), ("-", 20)]));
    let objects = [("read fd:3=a\\tb", 10), ("read fd:4=c", 10), ("- -", 20)];
    assert_eq!(labels(&[SampleExtra::Call, SampleExtra::On]), expected(&objects));
    assert_eq!(labels(&[SampleExtra::State]), expected(&[("D", 10), ("-", 30)]));
}

#[test]
fn waits_for_a_cpu_that_state_no_cause_were_preempted() {
    let mut group_by = GroupBy::default();
    let keys = SampleExtra::ALL.map(Key::Extra);
    keys.iter().for_each(|&key| group_by.add_key(key));
    let labels = |event: &str| {
        let stream = format!(
            "@nprof\t1.1\trun=0x1\n@event\tid=1\tname={event}\n\
             S\t1\t1\t0\t0\t0\t1\t1\nS\t2\t1\t0\t0\t0\t1\t1\tcall=read\n\
             S\t3\t1\t0\t0\t0\t1\t1\tcall=read\ton=fd:3\tstate=S\n"
        );
        let mut labels = Vec::new();
        let read = |context: &Context<'_>, group: &GroupKey, _: Sum| {
            let label = |&key| sample_label(context, group, key, TimeSplit::default());
            labels.push(String::from_utf8(keys.iter().map(label).collect::<Vec<_>>().join(&b' ')));
        };
        Profile::new(group_by).read("x", stream.as_bytes(), read).unwrap();
        labels.into_iter().map(Result::unwrap).collect::<BTreeSet<_>>()
    };
    let expected = |first: &str, second: &str| {
        BTreeSet::from([first.to_owned(), second.to_owned(), "read S fd:3".to_owned()])
    };
    assert_eq!(labels("runnable\tmeasure=wait-time"), expected("preempted R -", "read R -"));
    assert_eq!(labels("blocked\tmeasure=wait-time"), expected("- - -", "read - -"));
    assert_eq!(labels("runnable"), expected("- - -", "read - -"), "of another program");
}

#[test]
fn estimated_losses_of_a_run_are_at_most_those_at_its_end() {
    let run = |losses: &str, end: &str| {
        format!(
            "@nprof | 1.1 | run=0x1\n@event | id=1 | name=cpu-clock | unit=ns\n{losses}\
             @end | samples=0 | records=3 | lost={end}\n"
        )
    };
    let lost = |stream: String| {
        let mut profile = Profile::new(GroupBy::default());
        profile.read("in", stream.replace(" | ", "\t").as_bytes(), |_, _, _| {}).expect("read");
        let event = &profile.summary.events[0];
        (event.lost_samples(), event.lost_others)
    };
    let estimated =
        "L | 2 | 1 | - | 0 | 30 | ring | others=4\nL | 3 | 1 | - | 0 | 5 | ring | others=1\n";
    assert_eq!(lost(run(estimated, "8")), (8, 32));
    assert_eq!(lost(run(estimated, "35")), (35, 5));
    let counted = "L | 2 | 1 | - | 0 | 30 | ring\n";
    assert_eq!(lost(run(counted, "8")), (30, 0), "none is an estimate");
    assert_eq!(lost(run(estimated, "8") + &run(estimated, "35")), (43, 37));
}
