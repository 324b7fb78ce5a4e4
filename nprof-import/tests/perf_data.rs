//! Recordings of the installed perf: their samples are those that perf reports.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use nprof_tests::{Shell, have, rows};

/// Work in two programs, in user and kernel code.
const WORK: &str =
    "sh -c 'perl -e \"\\$x += \\$_ ** 0.5 for 1 .. 5e5\"; ls -R /usr/lib > /dev/null'";

/// Samples by command and file.
type Samples = BTreeMap<(String, String), u64>;

/// Returns the samples that `perf report` shows.
fn perf_report(shell: &Shell, input: &str) -> Samples {
    let report = shell.run(&format!(
        "perf report --stdio -F sample --sort comm,dso --no-children -g none -t '|' {input} 2> /dev/null"
    ));
    let mut samples = Samples::new();
    for line in report.out.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        // nprof calls the kernel by another name, and anonymous memory.
        let file = match fields[2] {
            "[kernel.kallsyms]" => "[kernel]",
            path => path.rsplit('/').next().unwrap(),
        };
        *samples.entry((fields[1].to_owned(), file.to_owned())).or_default() +=
            fields[0].parse::<u64>().unwrap();
    }
    assert!(!samples.is_empty(), "{report:?}");
    samples
}

/// Returns the samples of a stream.
fn nprof_flat(shell: &Shell, stream: &str) -> Samples {
    let table = shell
        .run(&format!("nprof-flat --by command,image --format tsv -n 0 {stream} 2> /dev/null"));
    let mut samples = Samples::new();
    for row in rows(&table.out) {
        let count: u64 = row.text("self_samples").parse().unwrap();
        if count > 0 {
            let image = row.text("image").rsplit('/').next().unwrap().to_owned();
            *samples.entry((row.text("command").to_owned(), image)).or_default() += count;
        }
    }
    samples
}

#[test]
fn samples_by_command_and_file_are_those_of_perf() {
    if !have(&["perf"]) {
        return;
    }
    let shell = Shell::new();
    for (kind, options) in [
        ("call chains", "-g"),
        ("copies of stacks", "--call-graph dwarf,4096"),
        ("compressed", "-g -z"),
        ("without call chains", ""),
    ] {
        let record = format!("perf record -q -e cpu-clock -F 997 {options} -o perf.data -- {WORK}");
        let run = shell.run(&record);
        if run.status != 0 {
            nprof_tests::skipped(&format!("perf cannot record {kind}: {}", run.err));
            continue;
        }
        let import = shell.run("nprof-import -o x.nprof perf.data");
        assert_eq!(import.status, 0, "{kind}: {import:?}");
        assert_eq!(import.err.contains("not unwound"), kind == "copies of stacks", "{import:?}");
        shell.run("nprof-format check x.nprof").quiet();
        let incomplete =
            shell.run("nprof-paths --format folded x.nprof 2> /dev/null | grep -c no-stack");
        assert_eq!(incomplete.out.trim() != "0", kind == "copies of stacks", "{incomplete:?}");
        assert_eq!(nprof_flat(&shell, "x.nprof"), perf_report(&shell, "-i perf.data"), "{kind}");
    }
    let run = shell.run(&format!(
        "set -o pipefail; perf record -q -e cpu-clock -F 997 -g -o - -- {WORK} | tee pipe.data | nprof-import > x.nprof"
    ));
    assert_eq!(run.status, 0, "{run:?}");
    assert_eq!(nprof_flat(&shell, "x.nprof"), perf_report(&shell, "-i - < pipe.data"), "a pipe");
}

#[test]
fn file_cannot_be_read_from_a_pipe() {
    if !have(&["perf"]) {
        return;
    }
    let shell = Shell::new();
    shell.run("perf record -q -e cpu-clock -o perf.data -- true");
    let run = shell.run("cat perf.data | nprof-import > x.nprof");
    assert_eq!(run.status, 2, "{run:?}");
    assert!(run.err.contains("name the file"), "{}", run.err);
    // Redirected, it is a file.
    let run = shell.run("nprof-import < perf.data > x.nprof");
    assert!(run.err.is_empty() || run.err.contains("no records"), "{run:?}");
}

#[test]
fn closed_pipe_is_success_and_full_disk_an_error() {
    if !have(&["perf"]) {
        return;
    }
    let shell = Shell::new();
    shell.run("perf record -q -e cpu-clock -F 997 -o perf.data -- perl -e '$x += $_ for 1 .. 1e5'");
    // The pipe is closed before the first write.
    let run = shell.run("{ sleep 0.2; nprof-import perf.data; } | true");
    assert_eq!((run.stages.as_slice(), run.err.as_str()), (&[0, 0][..], ""), "{run:?}");
    let run = shell.run("nprof-import perf.data > /dev/full");
    assert_eq!(run.status, 2, "{run:?}");
    assert!(run.err.contains("No space left"), "{run:?}");
}

#[test]
fn damaged_file_is_an_error_and_never_a_panic() {
    if !have(&["perf"]) {
        return;
    }
    let shell = Shell::new();
    let run = shell.run(
        "perf record -q -e cpu-clock -F 997 -g -o perf.data -- perl -e '$x += $_ for 1 .. 1e5'",
    );
    assert_eq!(run.status, 0, "{run:?}");
    let whole = shell.read("perf.data");
    // The highest and lowest byte of each number of the header, and a byte of each part of the rest.
    let header = (0..104).filter(|at| at % 8 == 0 || at % 8 == 7);
    for at in header.chain((104..whole.len()).step_by(whole.len() / 30)) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        shell.write("damaged.data", &damaged);
        let run = shell.run("nprof-import -o x.nprof damaged.data");
        assert!([0, 2, 3].contains(&run.status), "byte {at}: {run:?}");
        assert_eq!(run.status == 0, run.err.is_empty(), "byte {at}: {run:?}");
    }
    for length in [0, 7, 50, 103, 104, whole.len() / 2] {
        shell.write("cut.data", &whole[..length]);
        let run = shell.run("nprof-import -o x.nprof cut.data");
        assert!([2, 3].contains(&run.status), "{length}: {run:?}");
        assert!(
            !run.err.contains("panicked") && run.err.starts_with("nprof-import: cut.data: "),
            "{run:?}"
        );
    }
}
