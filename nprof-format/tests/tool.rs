//! The small tool, run as a program.

use std::io::Write;
use std::process::{Command, Output, Stdio};

const TEXT: &str = "\
@nprof\t1.0\trun=0x7\tclock=monotonic\tcommand=./a\tcheck=crc32c
@event\tid=1\tname=cpu-clock\tunit=ns
F\t1\t0\t0x0\tu,copy
F\t2\t0\t0x10\tu
U\t1\tmain\t-
Y\t2\tnamed\t1,0,0,0
N\t1\t0\t1\t2
N\t3\t0\t2
S\t1000\t1\t0\t0\t2\t10\t1
S\t2000\t1\t0\t0\t3\t10\t1
@end\treason=exit\tsamples=2\trecords=7\tlost=0\tcrc=0xb288931f
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
fn both_spellings_give_each_other_back() {
    let binary = run(&["binary"], TEXT.as_bytes());
    assert_eq!(binary.status.code(), Some(0));
    assert!(binary.stdout.starts_with(b"\x89NPF"));
    let back = run(&["text", "-"], &binary.stdout);
    assert_eq!(text(&back.stdout), TEXT);
}

#[test]
fn check_says_yes_or_no_and_where() {
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
fn a_changed_digit_in_text_is_found() {
    let changed = TEXT.replace("S\t2000", "S\t2001");
    let output = run(&["check"], changed.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("line 11: a line was changed: the checksum is wrong"), "{said}");
    // Without the checksum nobody can know.
    let unpromised = changed.replace("\tcheck=crc32c", "");
    let (unchecked, _) = unpromised.split_once("\tcrc=").expect("it has one");
    assert_eq!(run(&["check"], format!("{unchecked}\n").as_bytes()).status.code(), Some(0));
}

#[test]
fn converting_what_is_cut_off_gives_what_is_there_and_says_so() {
    let cut = &TEXT.as_bytes()[..TEXT.len() - 5];
    let output = run(&["text"], cut);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stdout), TEXT[..TEXT.find("@end").expect("it has one")]);
    assert!(text(&output.stderr).starts_with("nprof-format: standard input: truncated"));
    assert_eq!(run(&["text", "--partial-ok"], cut).status.code(), Some(0));
}

#[test]
fn stripping_leaves_the_recording() {
    let output = run(&["text", "--strip"], TEXT.as_bytes());
    let expected: String =
        TEXT.lines().filter(|l| !l.starts_with(['U', 'Y'])).map(|l| format!("{l}\n")).collect();
    let without_checksum = |text: &str| text.split("\tcrc=").next().map(str::to_owned);
    assert_eq!(without_checksum(&text(&output.stdout)), without_checksum(&expected));
}

#[test]
fn stat_counts_what_is_promised() {
    let output = run(&["stat", "--format", "json"], TEXT.as_bytes());
    let stat: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(stat["samples"], 2);
    assert_eq!(stat["complete_percent"], 50.0);
    assert_eq!(stat["achieved_hz"], 2_000_000.0);
    assert_eq!(stat["kinds"]["sample"]["records"], 2);
    assert_eq!(stat["events"][0]["incomplete"]["copy"], 1);
    assert_eq!(stat["verdict"], "complete");
    let table = text(&run(&["stat"], TEXT.as_bytes()).stdout);
    assert!(table.contains("\ncomplete_percent   50.00\n"), "{table}");
}

#[test]
fn an_input_is_not_written_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("x.nprof");
    std::fs::write(&path, TEXT).expect("a file");
    let path = path.to_str().expect("UTF-8");
    for command in ["text", "binary", "merge"] {
        let output = run(&[command, "-o", path, path], b"");
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(text(&output.stderr).contains("is an input as well"), "{command}");
        assert_eq!(std::fs::read_to_string(path).expect("a file"), TEXT);
    }
}

#[test]
fn misuse_prints_nothing_on_standard_output() {
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
