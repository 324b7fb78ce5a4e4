//! The nprof-flat program: what it prints, and how it ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A complete stream whose fields are separated by ` | `; the names are what scripts trip over.
const STREAM: &str = "\
@nprof | 1.0 | run=0x1 | command=prog\\n</title>
@event | id=1 | name=cpu-clock | unit=ns
@event | id=2 | name=faults | unit=count
I | 1 | elf | - | /bin/prog
T | 1 | 0 | 7 | 7 | 0 | a;b (c) [d] 1
F | 1 | 1 | 0x10 | u,ra
F | 2 | 1 | 0x20 | u
F | 3 | 1 | 0x30 | u
N | 1 | 0 | 1 | 2
N | 3 | 1 | 3
S | 1 | 1 | 1 | 0 | 2 | 1000000 | 1
S | 2 | 1 | 1 | 0 | 2 | 1000000 | 1
S | 3 | 1 | 1 | 0 | 3 | 1000000 | 1
S | 4 | 2 | 1 | 0 | 3 | 1 | 1
U | 1 | main | -
U | 2 | =f;\\n\\x1b, \"<&> | -
U | 3 | g | -
Y | 1 | named | 1,0,0,0
Y | 2 | named | 2,0,0,0
Y | 3 | named | 3,0,0,0
@end | reason=exit | samples=4 | records=13 | lost=0
";

fn stream() -> Vec<u8> {
    STREAM.replace(" | ", "\t").into_bytes()
}

fn tool(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nprof-flat"));
    command.args(args).env_remove("COLUMNS");
    command
}

/// Runs the tool with `input` as its standard input.
fn run(args: &[&str], input: &[u8]) -> Output {
    let mut command = tool(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A tool that refuses its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn stdout(args: &[&str], input: &[u8]) -> String {
    let output = run(args, input);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    text(&output.stdout)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn file(dir: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_closed_pipe_is_a_quiet_success() {
    let mut command = tool(&["-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(&stream()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn misuse_writes_nothing_to_standard_output() {
    for args in MISUSES {
        let output = run(args, &stream());
        assert_eq!(text(&output.stdout), "", "{args:?}");
        assert_ne!(text(&output.stderr), "", "{args:?}");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn what_is_no_stream_is_trouble() {
    let output = run(&[], b"hello\n");
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).starts_with("nprof-flat: standard input: "));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn truncated_input_is_reported_on_and_told_of() {
    let whole = stream();
    let cut = &whole[..whole.len() - 10];
    let output = run(&[], cut);
    assert!(text(&output.stdout).contains("incomplete input: standard input: truncated"));
    assert!(text(&output.stdout).contains("66.67"));
    assert!(text(&output.stderr).contains("truncated"));
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(run(&["--partial-ok"], cut).status.code(), Some(0));
}

#[test]
fn a_stream_without_names_gets_a_hint_and_one_without_samples_a_heading() {
    let lines: Vec<String> =
        text(&stream()).lines().filter(|l| !l.starts_with(['U', 'Y'])).map(str::to_owned).collect();
    let output = run(&[], (lines.join("\n") + "\n").as_bytes());
    assert!(text(&output.stderr).contains("nprof-symbolize"));
    assert!(text(&output.stdout).contains("prog+0x20"));
    assert_eq!(output.status.code(), Some(0));
    let empty = b"@nprof\t1.0\trun=0x1\n@end\tsamples=0\trecords=0\tlost=0\n";
    assert!(stdout(&[], empty).contains("no samples"));
}

#[test]
fn the_same_input_gives_the_same_bytes_and_files_are_written() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    for format in FORMATS {
        let args = ["--format", format];
        let first = run(&args, &stream()).stdout;
        assert_eq!(first, run(&args, &stream()).stdout);
        run(&[&args[..], &["-o", out.to_str().unwrap()]].concat(), &stream());
        assert_eq!(std::fs::read(&out).unwrap(), first);
    }
}

/// Runs a python program on standard input; says so when there is no python3.
fn python(program: &str, input: &[u8]) -> Option<String> {
    let spawned = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        eprintln!("skipped: there is no python3");
        return None;
    };
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(text(&output.stdout))
}

const MISUSES: &[&[&str]] = &[
    &["--by", "colour"],
    &["--confidence", "100"],
    &["--min-percent", "-1"],
    &["--min-percent", "nan"],
    &["--frobnicate"],
    &["/nonexistent/file"],
];

const FORMATS: &[&str] = &["table", "tsv", "csv", "json"];

/// The name of the second function, as every format shows it.
const NAME: &str = "=f;\\n\\x1b, \"<&>";

#[test]
fn the_table_says_where_the_time_is() {
    let table = stdout(&["-n", "1"], &stream());
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("command: prog\\n</title>"));
    assert!(lines.contains(&"cpu-clock:") && lines.contains(&"faults:"), "{table}");
    assert!(lines.contains(&"2 rows not shown, 33.33 % of self (-n 0 prints all)"), "{table}");
    let row = lines.iter().find(|line| line.contains(NAME)).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[0], "66.67");
    assert_eq!(cells[4], "2");
    assert_eq!(cells.last(), Some(&"prog"));
}

#[test]
fn tsv_has_the_columns_scripts_rely_on() {
    let tsv = stdout(&["--format", "tsv"], &stream());
    let mut lines = tsv.lines();
    assert_eq!(
        lines.next(),
        Some(
            "event\tfunction\timage\tself_samples\ttotal_samples\tself\ttotal\tself_percent\t\
             self_margin\ttotal_percent\ttotal_margin"
        )
    );
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 5);
    assert_eq!(rows[0][..5], ["cpu-clock", NAME, "prog", "2", "2"]);
    let shares: f64 = rows[..3].iter().map(|row| row[7].parse::<f64>().unwrap()).sum();
    assert!((shares - 100.0).abs() < 1e-9);
}

#[test]
fn csv_is_what_other_readers_take_for_csv() {
    let csv = stdout(&["--format", "csv"], &stream());
    let rows: Vec<csv::StringRecord> =
        csv::Reader::from_reader(csv.as_bytes()).records().map(Result::unwrap).collect();
    assert_eq!(&rows[0][1], &format!("'{NAME}"));
    let program = "import csv,sys; print(list(csv.DictReader(sys.stdin))[0]['function'], end='')";
    if let Some(name) = python(program, csv.as_bytes()) {
        assert_eq!(name, format!("'{NAME}"));
    }
}

#[test]
fn json_is_one_object_with_the_facts_of_the_heading() {
    let json = stdout(&["--format", "json", "--confidence", "99"], &stream());
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(object["complete"], true);
    assert_eq!(object["confidence"], 99.0);
    assert_eq!(object["events"][1]["event"], "faults");
    assert_eq!(object["rows"].as_array().unwrap().len(), 5);
    assert_eq!(object["rows"][0]["function"], NAME);
    assert_eq!(object["rows"][0]["self"], 2_000_000);
}

#[test]
fn streams_are_merged_whether_files_or_standard_input() {
    let dir = TempDir::new().unwrap();
    let one = file(&dir, "one", &stream());
    let output = run(&["--format", "tsv", one.to_str().unwrap(), "-"], &stream());
    assert!(text(&output.stdout).contains("\tprog\t4\t4\t4000000\t"));
    let cat = [stream(), stream()].concat();
    assert_eq!(text(&output.stdout), stdout(&["--format", "tsv"], &cat));
}

#[test]
fn keys_combine() {
    let tsv = stdout(&["--format", "tsv", "--by", "thread,cpu"], &stream());
    assert!(tsv.contains("cpu-clock\t7/7 a;b (c) [d] 1\t0\t3\t3\t"), "{tsv}");
}
