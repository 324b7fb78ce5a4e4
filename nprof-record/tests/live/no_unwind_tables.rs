//! Code without unwind tables: musl, its programs, and `main` of Rust programs that abort on panic.

use std::fs;
use std::process::Command;

use crate::support::{Directory, Stream, can_record, record, stderr};
use crate::symbols::{Symbols, names};
use nprof_stream::Verdict;

/// Works in the C library (snprintf) and in callbacks from it (qsort), in two threads.
const SOURCE: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
    __attribute__((noinline)) long work(int rounds) {
        static _Thread_local int numbers[4096];
        long sum = 0; char text[64];
        for (int round = 0; round < rounds; round++) {
            for (unsigned i = 0; i < 4096; i++) numbers[i] = (i * 2654435761u) >> 3;
            qsort(numbers, 4096, sizeof *numbers, order);
            for (int i = 0; i < 200; i++) {
                snprintf(text, sizeof text, "%d %d", i, numbers[i]); sum += strlen(text);
            }
        }
        return sum;
    }
    void *run(void *sum) { *(long *)sum = work(150); return 0; }
    int main(void) {
        pthread_t thread; long sum = 0, other;
        if (pthread_create(&thread, 0, run, &other)) return 1;
        sum = work(150);
        pthread_join(thread, 0);
        return sum != other;
    }"#;

fn recorded(directory: &Directory, program: &str) -> Stream {
    let file = directory.path("out");
    let output = record(&["-o", &file, "--", program]);
    assert!(output.status.success(), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    assert!(stream.samples.len() > 100, "{}", stream.samples.len());
    stream
}

/// Counts the samples with these outermost functions, outermost first.
fn through(stream: &Stream, symbols: &Symbols, outer: &[&str]) -> usize {
    let samples = stream.samples.iter().filter(|sample| {
        let names = names(sample, symbols);
        names.iter().rev().zip(outer).filter(|(name, outer)| name == outer).count() == outer.len()
    });
    samples.count()
}

fn musl(name: &str, options: &[&str], outer: [&[&str]; 2]) {
    if !can_record() {
        return;
    }
    let directory = Directory::new(name);
    let Some(program) = directory.compile("musl-gcc", SOURCE, options) else { return };
    let (stream, symbols) = (recorded(&directory, &program), Symbols::from_file(&program));
    assert!(stream.complete() >= 0.99, "{}", stream.complete());
    // Both threads do the same work: each has at least 30 % of the samples, both nearly all.
    let through = outer.map(|outer| through(&stream, &symbols, outer));
    let all = stream.samples.len();
    assert!(through.iter().all(|&count| count * 10 >= all * 3), "{through:?} of {all}");
    assert!((through[0] + through[1]) * 100 >= all * 95, "{through:?} of {all}");
}

#[test]
fn unwinds_static_musl_program_to_start() {
    // musl's assembly (`_start`, `__clone`) has no symbols of type function: "?".
    let main = ["?", "libc_start_main_stage2", "main", "work"];
    let thread = ["?", "start", "run", "work"];
    musl("musl-static", &["-O2", "-static"], [&main, &thread]);
}

#[test]
fn unwinds_dynamic_musl_program_to_start() {
    let main = ["?", "libc.so", "main", "work"];
    let thread = ["libc.so", "libc.so", "run", "work"];
    musl("musl-dynamic", &["-O2"], [&main, &thread]);
}

#[test]
fn unwinds_panic_abort_rust_to_start() {
    let source = r#"
        #[inline(never)]
        fn work(rounds: u64) -> u64 {
            let mut counts = std::collections::BTreeMap::new();
            for round in 0..rounds { *counts.entry(round * 7919 % 1009).or_insert(0) += round; }
            counts.values().sum()
        }
        fn main() {
            let thread = std::thread::spawn(|| work(20_000_000));
            assert_eq!(work(20_000_000), thread.join().unwrap());
        }"#;
    if !can_record() {
        return;
    }
    let directory = Directory::new("rust-abort");
    let (file, program) = (directory.path("program.rs"), directory.path("program"));
    fs::write(&file, source).expect("written");
    let words = ["--edition=2024", "-O", "-C", "panic=abort", &file, "-o", &program];
    if !Command::new("rustc").args(words).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: there is no rustc");
        return;
    }
    let (stream, symbols) = (recorded(&directory, &program), Symbols::from_file(&program));
    assert!(stream.complete() >= 0.99, "{}", stream.complete());
    let main = through(&stream, &symbols, &["_start", "libc.so.6", "libc.so.6", "main"]);
    assert!(main * 10 >= stream.samples.len() * 3, "{main}");
}
