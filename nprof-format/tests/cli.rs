//! The small tool, run as a program.

use std::io::Write;
use std::process::{Command, Output, Stdio};

const TEXT: &str = "\
@nprof\t1.1\trun=0x7\tclock=monotonic\tcommand=./a\tcheck=crc32c
@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time
F\t1\t0\t0x0\tu,stack-truncated
F\t2\t0\t0x10\tu
U\t1\tmain\t-
Y\t2\tnamed\t1,0,0,0
N\t1\t0\t1\t2
N\t3\t0\t2
S\t1000\t1\t0\t0\t2\t10\t1
S\t2000\t1\t0\t0\t3\t10\t1
@end\treason=exit\tsamples=2\trecords=7\tlost=0\tcrc=0x11d0b5e0
";

/// Runs nprof-format with `input` on its standard input.
fn run(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_nprof-format"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool starts");
    // A tool that refuses its input may be gone before all of it is written.
    let _ = child.stdin.take().expect("it was piped").write_all(input);
    child.wait_with_output().expect("the tool ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn both_encodings_survive_a_round_trip() {
    let binary = run(&["binary"], TEXT.as_bytes());
    assert_eq!(binary.status.code(), Some(0));
    assert!(binary.stdout.starts_with(b"\x89NPF"));
    let back = run(&["text", "-"], &binary.stdout);
    assert_eq!(text(&back.stdout), TEXT);
}

#[test]
fn check_reports_verdict_and_place() {
    let whole = run(&["check"], TEXT.as_bytes());
    assert_eq!(whole.status.code(), Some(0));
    let said = text(&whole.stdout);
    assert!(said.starts_with("standard input: complete: 1 segment, 2 samples"), "{said}");

    let cut = run(&["check"], &TEXT.as_bytes()[..TEXT.len() - 5]);
    assert_eq!(cut.status.code(), Some(1));
    assert!(text(&cut.stdout).contains(": truncated: "));

    let mut binary = run(&["binary"], TEXT.as_bytes()).stdout;
    binary[60] ^= 1;
    let flipped = run(&["check", "--format", "json"], &binary);
    assert_eq!(flipped.status.code(), Some(1));
    let answer: serde_json::Value = serde_json::from_slice(&flipped.stdout).expect("JSON");
    assert_eq!(answer[0]["verdict"], "damaged");
    assert_eq!(answer[0]["damages"][0]["offset"], 0);
}

#[test]
fn changed_digit_in_text_is_damage() {
    let changed = TEXT.replace("S\t2000", "S\t2001");
    let output = run(&["check"], changed.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("line 11: a line was changed: the checksum is wrong"), "{said}");
    // Only the checksum reveals it.
    let unpromised = changed.replace("\tcheck=crc32c", "");
    let (unchecked, _) = unpromised.split_once("\tcrc=").expect("it has one");
    assert_eq!(run(&["check"], format!("{unchecked}\n").as_bytes()).status.code(), Some(0));
}

#[test]
fn converting_truncated_input_keeps_its_records_and_warns() {
    let cut = &TEXT.as_bytes()[..TEXT.len() - 5];
    let output = run(&["text"], cut);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stdout), TEXT[..TEXT.find("@end").expect("it has one")]);
    assert!(text(&output.stderr).starts_with("nprof-format: standard input: truncated"));
    assert_eq!(run(&["text", "--partial-ok"], cut).status.code(), Some(0));
}

#[test]
fn strip_restores_the_recording() {
    let output = run(&["text", "--strip"], TEXT.as_bytes());
    let expected: String =
        TEXT.lines().filter(|l| !l.starts_with(['U', 'Y'])).map(|l| format!("{l}\n")).collect();
    let without_checksum = |text: &str| text.split("\tcrc=").next().map(str::to_owned);
    assert_eq!(without_checksum(&text(&output.stdout)), without_checksum(&expected));
}

#[test]
fn images_are_listed_once_and_their_paths_for_tar() {
    let records = [
        "I\t1\telf\tabcd\t/usr/lib/b.so",
        "I\t2\telf\t-\t/opt/a b",
        "I\t3\telf\t0102\t/usr/lib/b.so",
        "I\t4\tkernel\t-\t[kernel]",
        "I\t5\tjit\t-\tfunction",
    ];
    let epoch = "@epoch\tnumber=1\nI\t1\telf\tabcd\t/usr/lib/b.so\n";
    let stream =
        format!("@nprof\t1.1\trun=0x7\n{}\n{epoch}@end\treason=exit\n", records.join("\n"));
    let output = run(&["images"], stream.as_bytes());
    let lines = text(&output.stdout);
    let expected = "elf\t-\t/opt/a b\nelf\t0102\t/usr/lib/b.so\nelf\tabcd\t/usr/lib/b.so\n\
                    kernel\t-\t[kernel]\n";
    assert_eq!(lines, expected, "{}", text(&output.stderr));
    let paths = run(&["images", "-0"], stream.as_bytes()).stdout;
    assert_eq!(text(&paths), "/opt/a b\0/usr/lib/b.so\0");
}

#[test]
fn stat_has_the_documented_numbers() {
    let output = run(&["stat", "--format", "json"], TEXT.as_bytes());
    let stat: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(stat["samples"], 2);
    assert_eq!(stat["complete_percent"], 50.0);
    assert_eq!(stat["achieved_hz"], 2_000_000.0);
    assert_eq!(stat["kinds"]["sample"]["records"], 2);
    assert_eq!(stat["events"][0]["incomplete"]["stack-truncated"], 1);
    assert_eq!(stat["verdict"], "complete");
    let table = text(&run(&["stat"], TEXT.as_bytes()).stdout);
    assert!(table.contains("\ncomplete_percent   50.00\n"), "{table}");
}

/// Two tasks and a thread, sampled by two events, of which one task comes again in an epoch.
const TASKS: &str = "\
@nprof\t1.1\trun=0x7\tclock=monotonic\ttime=0\tutc=0
@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time
@event\tid=2\tname=page-faults\tunit=count
T\t1\t5\t10\t10\t0\tsh
T\t2\t6\t10\t11\t1\tworker
T\t3\t7\t12\t12\t1\tidle
S\t10\t1\t1\t0\t0\t1\t1
S\t11\t1\t2\t0\t0\t1\t1
X\t12\t1\texec\tprog
@epoch\tnumber=1
@event\tid=1\tname=page-faults\tunit=count
T\t1\t6\t10\t11\t0\tworker
S\t13\t1\t1\t0\t0\t1\t3
L\t14\t1\t0\t1\t4\tring
@end\tsamples=3\trecords=13\tlost=4\tincomplete=0\tstitched=1
";

fn stat(inputs: &[&str]) -> serde_json::Value {
    let directory = tempfile::tempdir().expect("a directory");
    let mut args = ["stat", "--format", "json"].map(str::to_owned).to_vec();
    for (number, input) in inputs.iter().enumerate() {
        let path = directory.path().join(format!("{number}.nprof"));
        std::fs::write(&path, input).expect("a file");
        args.push(path.to_str().expect("UTF-8").to_owned());
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    serde_json::from_slice(&run(&args, b"").stdout).expect("JSON")
}

#[test]
fn stat_separates_tasks_with_reused_pids() {
    let tasks = stat(&[TASKS])["tasks"].clone();
    let wanted = serde_json::json!([
        {"run": 0, "pid": 10, "tid": 11, "comm": "worker", "samples": 4, "lost": 4, "events": [1, 3]},
        {"run": 0, "pid": 10, "tid": 10, "comm": "prog", "samples": 1, "lost": 0, "events": [1, 0]},
        {"run": 0, "pid": 12, "tid": 12, "comm": "idle", "samples": 0, "lost": 0, "events": [0, 0]},
    ]);
    assert_eq!(tasks, wanted);
    // A loss without a task may concern any.
    let tasks = stat(&[&TASKS.replace("L\t14\t1\t0\t1\t4", "L\t14\t1\t0\t0\t4")])["tasks"].clone();
    assert!((0..3).all(|task| tasks[task]["lost"].is_null()), "{tasks}");
    // Records of processes and mappings are no samples of any.
    let records = TASKS.replace("L\t14\t1\t0\t1\t4\tring", "L\t14\t0\t0\t0\t0\tring\trecords=9");
    let counted = stat(&[&records]);
    assert_eq!((&counted["lost"], &counted["lost_records"]), (&0.into(), &9.into()));
    assert_eq!(counted["tasks"][0]["lost"], 0);
    // A pid is used again in the same run, by a task that begins later.
    let again = TASKS.replace("T\t1\t6\t10\t11\t0\tworker", "T\t1\t9\t10\t11\t0\tother");
    assert_eq!(stat(&[&again])["tasks"].as_array().map(Vec::len), Some(4));
}

#[test]
fn stat_separates_tasks_of_several_runs() {
    let other = TASKS.replace("run=0x7", "run=0x8");
    let split = |stat: &serde_json::Value| -> Vec<(u64, u64)> {
        let tasks = stat["tasks"].as_array().expect("a list");
        let number = |task: &serde_json::Value, key: &str| task[key].as_u64().expect("a number");
        tasks.iter().map(|task| (number(task, "run"), number(task, "samples"))).collect()
    };
    let wanted = [(0, 4), (1, 4), (0, 1), (1, 1), (0, 0), (1, 0)];
    assert_eq!(split(&stat(&[TASKS, &other])), wanted);
    assert_eq!(split(&stat(&[&[TASKS, &other].concat()])), wanted);
    let directory = tempfile::tempdir().expect("a directory");
    let paths = ["a", "b"].map(|name| directory.path().join(name));
    for (path, stream) in paths.iter().zip([TASKS, &other]) {
        std::fs::write(path, stream).expect("a file");
    }
    let [a, b] = paths.map(|path| path.to_str().expect("UTF-8").to_owned());
    let merged = run(&["merge", &a, &b], b"");
    let merged = run(&["stat", "--format", "json"], &merged.stdout);
    let merged: serde_json::Value = serde_json::from_slice(&merged.stdout).expect("JSON");
    assert_eq!(split(&merged)[..4], wanted[..4], "a merge leaves out tasks without samples");
    assert_eq!(merged["stitched_percent"], 20.0);
}

#[test]
fn stat_table_lists_the_most_sampled_tasks() {
    let mut stream = "@nprof\t1.1\trun=0x7\n@event\tid=1\tname=cpu-clock\n".to_owned();
    for task in 1..=10_000 {
        stream += &format!("T\t{task}\t1\t{task}\t{task}\t0\ttask\\x1b{task}\n");
        stream += &format!("S\t9\t1\t{task}\t0\t0\t1\t{task}\n");
    }
    let said = text(&run(&["stat"], stream.as_bytes()).stdout);
    assert!(said.contains("\ntasks              10000\n"), "{said}");
    assert!(said.contains("\n  10000     0  10000  10000  task\\x1b10000\n"), "{said}");
    assert!(said.contains("\n9980 more tasks with 49805190 samples\n"), "{said}");
    assert!(said.lines().count() < 60, "{said}");
}

#[test]
fn missing_totals_are_unknown() {
    let stitched_percent = |text: &str| stat(&[text])["stitched_percent"].clone();
    assert_eq!(stitched_percent(TASKS), 20.0);
    assert!(stitched_percent(&TASKS.replace("\tstitched=1", "")).is_null());
}

#[test]
fn output_that_is_an_input_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("x.nprof");
    std::fs::write(&path, TEXT).expect("a file");
    let path = path.to_str().expect("UTF-8");
    for command in ["text", "binary", "merge"] {
        let output = run(&[command, "-o", path, path], b"");
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(text(&output.stderr).contains("is also an input"), "{command}");
        assert_eq!(std::fs::read_to_string(path).expect("a file"), TEXT);
    }
}

#[test]
fn usage_error_prints_nothing_on_standard_output() {
    for args in [&["frobnicate"][..], &["text", "--bogus"], &[]] {
        let output = run(args, b"");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    let missing = run(&["check", "/nonexistent/a.nprof"], b"");
    assert_eq!(missing.status.code(), Some(2));
    let said = text(&missing.stderr);
    assert_eq!(
        said,
        "nprof-format: /nonexistent/a.nprof: No such file or directory (os error 2)\n"
    );
}

#[test]
fn check_compares_the_times_of_threads() {
    let stream = nprof_tests::waits();
    let good = run(&["check"], &stream);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stdout));
    assert!(text(&good.stdout).ends_with(
        "standard input: 2 threads: wall 0.056 s = cpu 0.006 s + runnable 0.001 s + blocked 0.049 s, \
         remainder 0.000 s\n"
    ));
    // The idle thread was not seen for 20 ms.
    let bad = text(&stream).replace("blocked=28000000", "blocked=8000000");
    let bad = run(&["check"], bad.as_bytes());
    assert_eq!(bad.status.code(), Some(1));
    let lines = text(&bad.stdout);
    assert!(
        lines.contains("standard input: 7/8 idle: 0.020 s of 0.028 s unaccounted for: cpu 0.000 s"),
        "{lines}"
    );
    assert!(
        lines.contains("all threads: blocked is 0.049 s in the end record, and 0.029 s"),
        "{lines}"
    );
    let json = run(&["check", "--format", "json"], &stream);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json[0]["times"]["wall_ns"], 56_000_000);
    assert_eq!(json[0]["times"]["remainder_ns"], 0);
}
