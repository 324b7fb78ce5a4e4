//! Programs of Go, which switch between the stacks of goroutines and those of threads.

use std::fs;
use std::process::Command;

use nprof_stream::{Mark, Verdict};

use crate::support::{Directory, Stream, can_record, record, stderr};

/// Works in goroutines, and lets the garbage collector work on the stacks of threads.
const SOURCE: &str = r#"
    package main
    type node struct { left, right *node }
    //go:noinline
    func fib(n int) int { if n < 2 { return n }; return fib(n-1) + fib(n-2) }
    func tree(n int) *node { if n == 0 { return nil }; return &node{tree(n-1), tree(n-1)} }
    func main() {
        done := make(chan int)
        for i := 0; i < 2; i++ {
            go func() {
                n := 0
                for i := 0; i < 60; i++ { n += fib(30); if tree(15) == nil { n++ } }
                done <- n
            }()
        }
        if <-done != <-done { panic("differ") }
    }"#;

/// Builds the program. None if there is no Go.
fn build(directory: &Directory, name: &str, options: &[&str]) -> Option<String> {
    let (file, program) = (directory.path("program.go"), directory.path(name));
    fs::write(&file, SOURCE).expect("written");
    let mut build = Command::new("go");
    build.arg("build").args(options).args(["-o", &program, &file]);
    build.status().is_ok_and(|status| status.success()).then_some(program)
}

#[test]
fn unwinds_goroutines_to_goexit_and_threads_to_the_switch_of_stacks() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("go-programs");
    for (name, options) in [("whole", &[][..]), ("stripped", &["-ldflags", "-s -w"])] {
        let Some(program) = build(&directory, name, options) else {
            eprintln!("SKIPPED: there is no go");
            return;
        };
        let file = directory.path("out");
        let output = record(&["-o", &file, "--", &program]);
        assert!(output.status.success(), "{}", stderr(&output));
        let stream = Stream::from_file(&file);
        assert_eq!(stream.verdict, Verdict::Complete);
        let samples = stream.samples.len();
        assert!(samples > 100, "{samples}");
        // A signal handler has a stack of its own, too, and the kernel's copy of a new stack may fail.
        let expected = |mark| matches!(mark, Mark::None | Mark::OtherStack);
        let ended = stream.samples.iter().filter(|sample| expected(sample.mark)).count();
        assert!(ended * 100 >= samples * 95, "{name}: {ended} of {samples}");
        // Go before 1.18 has another table.
        assert!(stream.complete() >= 0.3, "{name}: {}", stream.complete());
    }
}
