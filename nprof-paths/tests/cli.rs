//! The nprof-paths program: what it prints, and how it ends.

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
    let mut command = Command::new(env!("CARGO_BIN_EXE_nprof-paths"));
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
    assert!(text(&output.stderr).starts_with("nprof-paths: standard input: "));
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
    &["--view", "callers-of"],
    &["--view", "tree", "-n", "3"],
    &["--min-percent", "101"],
    &["--event", "cycles"],
    &["--format", "svg"],
    &["/nonexistent/file"],
];

const FORMATS: &[&str] = &["table", "tsv", "csv", "json", "folded"];

/// The name of the second function, as every format but folded shows it.
const NAME: &str = "=f;\\n\\x1b, \"<&>";

#[test]
fn paths_are_printed_leaf_first() {
    let table = stdout(&["--event", "cpu-clock"], &stream());
    let expected = format!(
        "66.67 % ± 36.54, 2 samples, 2000.00 µs\n    {NAME}  (prog)\n           2  prog+0x20\n    main\n"
    );
    assert!(table.contains(&expected), "{table}");
}

#[test]
fn the_tree_is_printed_from_the_roots_down() {
    let table = stdout(&["--view", "tree", "--event", "cpu-clock", "--limit", "1"], &stream());
    let expected = format!(
        "total %  self %  function\n 100.00    0.00  main  (prog)\n  66.67   66.67  {NAME}\n"
    );
    assert!(table.contains(&expected), "{table}");
    assert!(table.contains("1 smaller call left out"), "{table}");
}

#[test]
fn folded_shows_one_event_and_says_so() {
    let output = run(&["--format", "folded"], &stream());
    assert_eq!(
        text(&output.stdout),
        "a\\x3bb (c) [d] 1;main;=f\\x3b\\n\\x1b, \"<&> 2\na\\x3bb (c) [d] 1;main;g 1\n"
    );
    assert!(text(&output.stderr).contains("faults"));
    let faults = stdout(&["--format", "folded", "--event", "faults"], &stream());
    assert_eq!(faults, "a\\x3bb (c) [d] 1;main;g 1\n");
}

#[test]
fn the_flame_graph_is_xml() {
    let svg = stdout(&["--format", "flamegraph", "--event", "cpu-clock"], &stream());
    assert!(svg.contains("prog\\n&lt;/title&gt;"));
    assert!(svg.contains("2 samples"));
    python("import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.stdin.buffer)", svg.as_bytes());
    let empty = b"@nprof\t1.0\trun=0x1\n@end\tsamples=0\trecords=0\tlost=0\n";
    stdout(&["--format", "flamegraph"], empty);
}

#[test]
fn csv_is_what_other_readers_take_for_csv() {
    let csv = stdout(&["--format", "csv"], &stream());
    let program = "import csv,sys; r=list(csv.DictReader(sys.stdin)); print(r[0]['leaf'], r[0]['path'], end='')";
    if let Some(line) = python(program, csv.as_bytes()) {
        assert_eq!(line, format!("'{NAME} main;{}", NAME.replace(';', "\\x3b")));
    }
    let tree = stdout(&["--format", "csv", "--view", "tree"], &stream());
    let rows: Vec<csv::StringRecord> =
        csv::Reader::from_reader(tree.as_bytes()).records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 5);
    assert_eq!((&rows[1][1], &rows[1][2], &rows[1][3]), ("2", "1", "1"));
}

#[test]
fn json_has_paths_and_nodes() {
    let json = stdout(&["--format", "json"], &stream());
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(object["paths"][0]["path"], serde_json::json!(["main", NAME]));
    assert_eq!(object["paths"][0]["lines"][0]["samples"], 2);
    let json = stdout(&["--format", "json", "--view", "tree", "--min-percent", "50"], &stream());
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(object["hidden_nodes"], 1);
    assert_eq!(object["nodes"][0]["total_samples"], 3);
}

#[test]
fn streams_are_merged_whether_files_or_standard_input() {
    let dir = TempDir::new().unwrap();
    let one = file(&dir, "one", &stream());
    let args = ["--format", "folded", "--event", "cpu-clock", one.to_str().unwrap(), "-"];
    assert!(stdout(&args, &stream()).ends_with(";main;g 2\n"));
}
