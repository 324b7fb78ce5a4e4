//! Merging, by streams in text.

use std::collections::BTreeMap;

use nprof_report::profile::{GroupBy, Profile};
use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::{Encoding, End, Reader, Record, RunId, Verdict};

use super::*;

const HEAD: &str = "@nprof\t1.1\trun=0x1\tclock=monotonic\ttime=100\tutc=5100\thost=h\n";

fn merge_texts(limit: usize, texts: &[&str]) -> Result<(String, Merged), Error> {
    let inputs = (b'a'..).zip(texts);
    let inputs = inputs.map(|(name, text)| (char::from(name).to_string(), text.as_bytes()));
    let mut writer = Writer::new(Vec::new(), Encoding::Text);
    let step = Step { tool: b"merge".to_vec(), ..Step::default() };
    let merged = merge_within(limit, inputs.collect(), &step, &mut writer)?;
    let text = String::from_utf8(writer.finish().unwrap()).unwrap();
    assert_eq!(verdict(&text), Verdict::Complete, "{text}");
    Ok((text, merged))
}

fn verdict(text: &str) -> Verdict {
    let mut reader = Reader::new(text.as_bytes());
    while reader.next().unwrap().is_some() {}
    reader.verdict()
}

/// The lines that begin with one of these words.
fn lines<'a>(text: &'a str, words: &[&str]) -> Vec<&'a str> {
    let word = |line: &&str| words.contains(&line.split('\t').next().unwrap_or(line));
    text.lines().filter(word).collect()
}

fn end(text: &str) -> End {
    let mut reader = Reader::new(text.as_bytes());
    while let Some(record) = reader.next().unwrap() {
        if let Record::End(end) = record {
            return *end;
        }
    }
    panic!("no end: {text}");
}

#[test]
fn merged_streams_share_ids_and_order() {
    let a = "\
@event\tid=7\tname=cpu-clock\tunit=ns\tmeasure=cpu-time
I\t3\telf\taa\t/bin/a
T\t5\t100\t10\t10\t0\tone
F\t9\t3\t0x10\tu
N\t4\t0\t9
S\t110\t7\t5\t0\t4\t1\t1
S\t130\t7\t5\t0\t4\t1\t1
@end\treason=exit\tstatus=1\ttime=140\tsamples=2\trecords=7\tlost=0\tstitched=3\ttask_ns=5\twall_ns=9
";
    let b = a.replace("\t110\t", "\t15\t").replace("\t130\t", "\t16\t");
    let b = b.replace("T\t5\t100\t", "T\t5\t10\t").replace("one", "two");
    let b = b.replace("F\t9\t3", "F\t8\t3").replace("N\t4\t0\t9", "N\t4\t0\t8");
    let b = format!("@nprof\t1.1\trun=0x2\ttime=0\tutc=5105\thost=g\n{b}");
    let (text, merged) = merge_texts(100, &[&format!("{HEAD}{a}"), &b]).unwrap();
    assert!(merged.incomplete_inputs.is_empty());
    assert_eq!(
        lines(&text, &["S", "F", "N", "I"]),
        [
            "I\t1\telf\taa\t/bin/a",
            "F\t1\t1\t0x10\tu",
            "N\t1\t0\t1",
            "S\t5110\t1\t1\t0\t1\t1\t1",
            "S\t5120\t1\t2\t0\t1\t1\t1",
            "S\t5121\t1\t2\t0\t1\t1\t1",
            "S\t5130\t1\t1\t0\t1\t1\t1",
        ]
    );
    assert_eq!(
        lines(&text, &["T", "@run"]),
        [
            "@run\trun=0x1\tclock=monotonic\ttime=100\tutc=5100\thost=h",
            "@run\trun=0x2\ttime=0\tutc=5105\thost=g",
            "T\t1\t5100\t10\t10\t0\tone\trun=0x1",
            "T\t2\t5115\t10\t10\t0\ttwo\trun=0x2",
        ]
    );
    assert!(text.starts_with("@nprof\t1.1\trun=0x3\tclock=realtime\ttime=5100\tutc=5100"));
    let end = end(&text);
    assert_eq!((end.status, end.task_ns, end.late), (Some(1), Some(10), Some(0)));
    assert_eq!((end.stitched, end.incomplete), (Some(6), None));
    assert_eq!((end.wall_ns, end.blocked_ns), (Some(18), None));
    assert_eq!(end.time, Some(5245));
    assert!(text.contains("@run_end\trun=0x2\treason=exit\tstatus=1\ttime=140\tsamples=2\t"));
}

#[test]
fn frames_with_different_names_stay_apart() {
    let plain = format!("{HEAD}F\t1\t0\t0x10\tu\nN\t1\t0\t1\nS\t1\t0\t0\t0\t1\t1\t1\n");
    let named = plain
        .replace("N\t1", "U\t1\tmain\t-\nY\t1\tnamed\t1,0,3,0\nN\t1")
        .replace("run=0x1", "run=0x2");
    let (text, _) = merge_texts(100, &[&plain, &named, &named.replace("0x2", "0x4")]).unwrap();
    assert_eq!(
        lines(&text, &["F", "Y", "N"]),
        [
            "F\t1\t0\t0x10\tu",
            "N\t1\t0\t1",
            "F\t2\t0\t0x10\tu",
            "Y\t2\tnamed\t1,0,3,0",
            "N\t2\t0\t2"
        ]
    );
}

#[test]
fn ids_in_extras_are_translated() {
    let a = format!("{HEAD}T\t8\t100\t5\t5\t0\tone\nT\t9\t100\t6\t6\t8\ttwo\n");
    let a = format!(
        "{a}I\t1\tanon\t-\t-\ttask=9\nF\t1\t1\t0x1\tu\nN\t1\t0\t1\nS\t9\t0\t9\t0\t1\t1\t1\n"
    );
    let b = a.replace("run=0x1", "run=0x2");
    let (text, _) = merge_texts(100, &[&a, &b]).unwrap();
    let images = lines(&text, &["I"]);
    let tasks = lines(&text, &["T"]);
    assert_eq!(images.len(), 2, "{text}");
    for (image, run) in images.iter().zip(["0x1", "0x2"]) {
        let task = image.rsplit('=').next().unwrap();
        let wanted = format!("T\t{task}\t");
        let task = tasks.iter().find(|line| line.starts_with(&wanted)).unwrap();
        assert!(task.contains("\ttwo\t") && task.ends_with(run), "{text}");
    }
}

/// Many stacks of a named function, and a task that takes another name half way.
fn long(run: u32) -> String {
    let mut text = HEAD.replace("0x1", &format!("{run:#x}"));
    text += "@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\nT\t1\t100\t1\t1\t0\tinit\n";
    text += "T\t2\t100\t2\t2\t1\tearly\nI\t1\telf\t-\t/bin/a\nU\t1\tfun\t-\n";
    let mut node = 0;
    for i in 1..=50 {
        text += &format!("F\t{i}\t1\t{:#x}\tu\n", i % 7 + 16 * run);
        text += &format!("Y\t{i}\tnamed\t1,0,{i},0\nN\t{}\t0\t1\t{i}\t{i}\n", node + 1);
        node += 3;
        text += &format!("S\t{}\t1\t2\t0\t{node}\t{i}\t1\n", 100 + i);
        if i == 25 {
            text += "X\t125\t2\tcomm\tlate\nT\t3\t125\t3\t3\t1\tnew\n";
            text += "L\t125\t0\t-\t0\t3\trecorder\n";
        }
    }
    text
}

fn sums(text: &str) -> BTreeMap<String, u64> {
    let mut profile = Profile::new(GroupBy { task: true, cpu: true, ..GroupBy::default() });
    let (mut labels, mut sums) = (Labels::new(), BTreeMap::new());
    profile
        .read("x", text.as_bytes(), |tables, cell, sum| {
            let calls = tables.stack_calls(cell.node);
            let calls: Vec<_> =
                calls.map(|call| labels.label(tables, call, CallKey::Line)).collect();
            let names: Vec<_> =
                calls.iter().map(|&id| String::from_utf8_lossy(labels.names.get(id))).collect();
            let comm = String::from_utf8_lossy(tables.names.get(cell.comm));
            let parent = tables.task(cell.task).and_then(|task| tables.task(task.parent));
            let parent = parent.map(|parent| (parent.pid, tables.names.get(parent.comm)));
            let run = cell.run;
            let key = format!("{run} {} {comm} {parent:?} {names:?}", cell.event);
            *sums.entry(key).or_default() += sum.weight;
        })
        .unwrap();
    assert_eq!(profile.summary.events.len(), 1);
    sums
}

#[test]
fn epochs_bound_ids_and_keep_samples() {
    let inputs = [long(1), long(2)];
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let (whole, _) = merge_texts(1000, &inputs).unwrap();
    assert!(!whole.contains("@epoch"));
    for limit in [1, 4, 10] {
        let (text, _) = merge_texts(limit, &inputs).unwrap();
        assert!(text.matches("\n@epoch\t").count() >= 50 / limit, "{text}");
        assert_eq!(sums(&text), sums(&whole));
        let highest = lines(&text, &["N"])
            .into_iter()
            .filter_map(|line| line.split('\t').nth(1)?.parse::<usize>().ok());
        assert!(highest.max() <= Some(limit.max(3)));
    }
}

#[test]
fn task_of_a_later_epoch_has_the_image_that_it_executed_last() {
    let head = format!("{HEAD}T\t1\t100\t7\t7\t0\tsh\tcpu=3\texe=/bin/sh\n");
    let sample = |number: u32| {
        format!(
            "F\t{number}\t0\t{number:#x}\tu\nN\t{number}\t0\t{number}\n\
             S\t{}\t0\t1\t0\t{number}\t1\t1\n",
            100 + number
        )
    };
    for (change, expected) in [
        ("exec\tprog\texe=/bin/prog", "prog\tcpu=3\trun=0x1\texe=/bin/prog"),
        ("exec\tprog", "prog\tcpu=3\trun=0x1"),
        ("comm\tname", "name\tcpu=3\texe=/bin/sh\trun=0x1"),
    ] {
        let text = format!("{head}{}X\t101\t1\t{change}\n{}", sample(1), sample(2));
        let (text, _) = merge_texts(1, &[&text]).unwrap();
        let tasks = lines(&text, &["T"]);
        assert_eq!(tasks.last(), Some(&&*format!("T\t1\t5100\t7\t7\t0\t{expected}")), "{text}");
    }
}

#[test]
fn cycle_of_parents_is_cut() {
    let a = format!("{HEAD}T\t1\t1\t1\t1\t2\ta\nT\t2\t1\t2\t2\t1\tb\nT\t3\t1\t3\t3\t3\tc\n");
    let (text, _) = merge_texts(100, &[&a]).unwrap();
    let tasks = lines(&text, &["T"]);
    assert_eq!(tasks.len(), 3);
    // The second was not defined yet when the first was.
    let lost = nprof_stream::limits::ID;
    assert_eq!(tasks[0], format!("T\t1\t5001\t1\t1\t{lost}\ta\trun=0x1"));
    assert!(tasks[1].starts_with("T\t2\t5001\t2\t2\t1\t"), "{text}");
    assert!(tasks[2].starts_with("T\t3\t5001\t3\t3\t0\t"), "{text}");
}

#[test]
fn redefined_id_gets_its_new_meaning() {
    // As where damage took the beginning of an epoch.
    let again = "F\t1\t0\t0x20\tu\nS\t2\t0\t0\t0\t1\t1\t1\n";
    let text = format!("{HEAD}F\t1\t0\t0x10\tu\nN\t1\t0\t1\nS\t1\t0\t0\t0\t1\t1\t1\n{again}");
    let (text, _) = merge_texts(100, &[&text]).unwrap();
    assert_eq!(
        lines(&text, &["F", "S"]),
        [
            "F\t1\t0\t0x10\tu",
            "S\t5001\t0\t0\t0\t1\t1\t1\trun=0x1",
            "F\t2\t0\t0x20\tu",
            "S\t5002\t0\t0\t0\t2\t1\t1\trun=0x1",
        ]
    );
}

#[test]
fn late_location_holds_until_its_frame_is_redefined() {
    let sample = "S\t1\t0\t0\t0\t1\t1\t1\n";
    let (text, _) = merge_texts(
        100,
        &[&format!(
            "{HEAD}F\t1\t0\t0x10\tu\nN\t1\t0\t1\n{sample}Y\t1\tstripped\n{sample}\
             F\t1\t0\t0x20\tu\nN\t1\t0\t1\n{sample}"
        )],
    )
    .unwrap();
    let leaves = lines(&text, &["S"]).into_iter().map(|line| line.split('\t').nth(5));
    assert!(leaves.eq([Some("1"), Some("1"), Some("2")]), "{text}");
    assert_eq!(lines(&text, &["Y"]), ["Y\t1\tstripped"]);
}

#[test]
fn losses_keep_their_kinds() {
    let losses = "L\t5\t1\t-\t0\t3\tring\tothers=7\nL\t6\t0\t-\t0\t0\tring\trecords=9\n";
    let a = format!(
        "{HEAD}@event\tid=1\tname=e\n{losses}@end\tsamples=0\trecords=3\tlost=3\tunseen=4\n"
    );
    let (text, _) = merge_texts(100, &[&a, &a.replace("0x1", "0x2")]).unwrap();
    let end = end(&text);
    assert_eq!(end.unseen, Some(8));
    assert_eq!((end.lost, end.lost_others, end.lost_records), (6, Some(14), Some(18)));
}

#[test]
fn damage_is_counted_and_the_rest_merged() {
    let a = format!(
        "{HEAD}S\t1\t0\t0\t0\t0\t1\t1\n@end\tsamples=4\trecords=4\tlost=0\n\
         S\t5\t0\t0\t0\t0\t1\t9\n{}",
        HEAD.replace("0x1", "0x2")
    );
    let (text, merged) = merge_texts(100, &[&a]).unwrap();
    let lost = lines(&text, &["L"]);
    assert_eq!(lost.len(), 2, "{text}");
    // Three samples by the end's count, and nine observations in no segment.
    assert!(lost[0].ends_with("\t0\t-\t0\t3\tdamage"), "{text}");
    assert!(lost[1].ends_with("\t0\t-\t0\t9\tdamage"), "{text}");
    assert_eq!(end(&text).lost, 12);
    assert_eq!(merged.incomplete_inputs[0].input, "a");
    assert_eq!(merged.incomplete_inputs[0].verdict, Verdict::Damaged);
    assert_eq!(lines(&text, &["@run"]).len(), 2);
    assert_eq!(lines(&text, &["@run_end"]).len(), 1);
}

#[test]
fn run_without_time_of_day_is_refused() {
    let other = "@nprof\t1.1\trun=0x5\tclock=monotonic\ttime=1\n";
    let error = merge_texts(100, &[HEAD, other]).unwrap_err();
    assert!(error.to_string().starts_with("b: run 0x5 has no time of day"), "{error}");
}

#[test]
fn repeated_run_is_declared_once_and_reported() {
    let sample = "S\t1\t0\t0\t0\t0\t1\t1\n";
    let input = format!("{HEAD}{sample}");
    let (text, merged) = merge_texts(100, &[&input, &input]).unwrap();
    assert_eq!(merged.repeated, [RunId(1)]);
    assert_eq!(lines(&text, &["@run"]).len(), 1);
    assert_eq!(lines(&text, &["S"]).len(), 2);
}

#[test]
fn overlapping_runs_in_one_input_count_as_late() {
    let sample = "S\t1\t0\t0\t0\t0\t1\t1\n";
    let input = format!("{HEAD}S\t9\t0\t0\t0\t0\t1\t1\n{}{sample}", HEAD.replace("0x1", "0x2"));
    let (text, _) = merge_texts(100, &[&input]).unwrap();
    assert_eq!(end(&text).late, Some(1));
}

#[test]
fn relocated_frame_keeps_its_id() {
    let sample = "S\t1\t0\t0\t0\t1\t1\t1\n";
    let first = "F\t1\t0\t0x5\tu\nU\t1\tf\t-\nY\t1\tnamed\t1,0,0,0\nN\t1\t0\t1\n";
    let again = "U\t2\tg\t-\nD\t1\t/a.c\nY\t1\tnamed\t2,1,7,0\t1,1,9,0\n";
    let input = format!("{HEAD}{first}{sample}{again}{sample}");
    let (text, _) = merge_texts(100, &[&input]).unwrap();
    assert_eq!(lines(&text, &["F", "N", "S"]).len(), 4, "{text}");
    let located = ["Y\t1\tnamed\t1,0,0,0", "Y\t1\tnamed\t2,1,7,0\t1,1,9,0"];
    assert_eq!(lines(&text, &["Y"]), located, "{text}");
    // A frame that was not used yet gets only its latest location.
    let unused = format!("{HEAD}{first}{again}{sample}");
    let (text, _) = merge_texts(100, &[&unused]).unwrap();
    assert_eq!(lines(&text, &["Y"]), ["Y\t1\tnamed\t1,1,7,0\t2,1,9,0"], "{text}");
}

#[test]
fn unknown_records_are_counted() {
    let (text, merged) = merge_texts(100, &[&format!("{HEAD}waker\t1\n?80\t00\n")]).unwrap();
    assert_eq!(merged.unknown, 2);
    assert!(!text.contains("waker"));
}
