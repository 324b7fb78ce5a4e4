//! `nprof-format merge`, run as a program.

use std::fs;
use std::process::{Command, Output};

/// Two samples of a run.
const ONE: &str = "\
@nprof\t1.1\trun=0x7\tclock=monotonic\ttime=1\tutc=5\tcommand=./a
@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time
F\t1\t0\t0x10\tu
N\t1\t0\t1
S\t1000\t1\t0\t0\t1\t10\t1
S\t2000\t1\t0\t0\t1\t10\t1
@end\treason=exit\tsamples=2\trecords=5\tlost=0
";

/// Runs nprof-format.
fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nprof-format")).args(args).output().expect("the tool starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A path of a test's own.
fn path(name: &str) -> String {
    format!("{}/merge-{name}", env!("CARGO_TARGET_TMPDIR"))
}

fn file(name: &str, content: &str) -> String {
    fs::write(path(name), content).expect("the file is written");
    path(name)
}

#[test]
fn streams_become_one_segment() {
    let one = file("whole-1", ONE);
    let two = file("whole-2", &ONE.replace("run=0x7", "run=0x9"));
    let output = path("whole");
    let merged = run(&["merge", "-o", &output, &one, &two]);
    assert_eq!((merged.status.code(), text(&merged.stderr)), (Some(0), String::new()));
    let said = text(&run(&["check", &output]).stdout);
    assert!(said.contains(": complete: 1 segment") && said.contains("4 samples"), "{said}");
    let stat = text(&run(&["stat", &output]).stdout);
    assert!(stat.contains(&format!("merge -o {output} {one} {two}")), "its own step: {stat}");
}

#[test]
fn incomplete_inputs_are_merged_and_reported() {
    let one = file("cut-1", ONE);
    let cut = file("cut-2", ONE.replace("run=0x7", "run=0x9").trim_end());
    let output = path("cut");
    let merged = run(&["merge", "-o", &output, &one, &cut]);
    assert_eq!(merged.status.code(), Some(3));
    let said = text(&merged.stderr);
    assert!(said.contains("merge-cut-2: truncated: "), "{said}");
    assert_eq!(run(&["check", &output]).status.code(), Some(0));
    let merged = run(&["merge", "--partial-ok", "-o", &output, &one, &cut]);
    assert_eq!(merged.status.code(), Some(0));
}

#[test]
fn unmergeable_inputs_are_refused_with_the_reason() {
    let one = file("refused-1", ONE);
    let timeless = file("refused-2", &ONE.replace("\tutc=5", ""));
    let cases = [
        ([&one[..], &timeless], "merge-refused-2: run 0x7 has no time of day"),
        (["-", "-"], "standard input can be an operand only once"),
        ([&one, &format!("-o{one}")], "merge-refused-1 is also an input"),
    ];
    for (operands, why) in cases {
        let refused = run(&["merge", operands[0], operands[1]]);
        assert_eq!(refused.status.code(), Some(2), "{operands:?}");
        assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
    }
    assert_eq!(fs::read_to_string(&one).expect("it is still there"), ONE);
}

#[test]
fn repeated_run_gets_a_warning() {
    let one = file("twice", ONE);
    let merged = run(&["merge", &one, &one]);
    assert_eq!(merged.status.code(), Some(0));
    assert!(text(&merged.stderr).contains("run 0x7 is in the input more than once"));
}
