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
        shell.run("nprof-format check x.nprof").quiet();
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
        "perf record -q -e cpu-clock -F 997 -g -o perf.data -- perl -e '$x += $_ for 1 .. 1e7'",
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
        // Damaged attributes may state copies of stacks.
        let is_silent = run.err.is_empty() || run.err.contains("are incomplete");
        assert!(run.status != 0 || is_silent, "byte {at}: {run:?}");
        assert!(run.status == 0 || !run.err.is_empty(), "byte {at}: {run:?}");
    }
    // The middle of the records: the facts after them can be the larger half of the file.
    let number = |at: usize| -> usize {
        let bytes = whole[at..at + 8].try_into().unwrap();
        u64::from_le_bytes(bytes) as usize
    };
    let middle = number(40) + number(48) / 2;
    for length in [0, 7, 50, 103, 104, middle] {
        shell.write("cut.data", &whole[..length]);
        let run = shell.run("nprof-import -o x.nprof cut.data");
        assert!([2, 3].contains(&run.status), "{length}: {run:?}");
        assert!(
            !run.err.contains("panicked") && run.err.starts_with("nprof-import: cut.data: "),
            "{run:?}"
        );
    }
}

/// A program of which all stacks are known: `leaf` and `other` are called by `middle`, which is called by
/// `recurse`, 20 times deep, below `main`.
const KNOWN: &str = r#"
#include <time.h>
volatile unsigned long sum;
__attribute__((noinline)) void leaf(void) { for (int i = 0; i < 3000; i++) sum += i; }
__attribute__((noinline)) void other(void) { for (int i = 0; i < 1000; i++) sum ^= i; }
__attribute__((noinline)) void middle(void) { leaf(); other(); sum++; }
__attribute__((noinline)) void recurse(int depth) {
    if (depth) recurse(depth - 1); else for (int i = 0; i < 100; i++) middle();
    sum++;
}
int main(void) {
    while (clock() < CLOCKS_PER_SEC / 2) recurse(20);
    return 0;
}
"#;

/// Returns the folded stacks of a stream below `main`, given the arguments of nprof-symbolize: names from the
/// root, and counts.
fn stacks_from_main(shell: &Shell, arguments: &str) -> BTreeMap<String, u64> {
    let folded = shell.run(&format!(
        "nprof-symbolize {arguments} 2> /dev/null | nprof-paths --format folded 2> /dev/null"
    ));
    let mut stacks = BTreeMap::new();
    for line in folded.out.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let from_main = stack.find(";main;").map_or("", |at| &stack[at + 1..]);
        *stacks.entry(from_main.to_owned()).or_default() += count.parse::<u64>().unwrap();
    }
    stacks
}

#[test]
fn copied_stacks_are_unwound_to_the_root_by_the_files_of_the_recorded_build() {
    if !have(&["perf", "gcc"]) {
        return;
    }
    let shell = Shell::new();
    shell.write("known.c", KNOWN.as_bytes());
    shell
        .run("gcc -O2 -g -fomit-frame-pointer -fno-optimize-sibling-calls known.c -o known")
        .quiet();
    let run = shell
        .run("perf record -q -e cpu-clock:u -F 997 --call-graph dwarf -o perf.data -- ./known");
    if run.status != 0 {
        nprof_tests::skipped(&format!("perf cannot copy stacks: {}", run.err));
        return;
    }
    shell.run("nprof-import -o x.nprof perf.data").quiet();
    shell.run("nprof-format check x.nprof").quiet();
    let stacks = stacks_from_main(&shell, "x.nprof");
    let total: u64 = stacks.values().sum();
    let path = format!("main{};middle;", ";recurse".repeat(21));
    let below = |leaf: &str| stacks.get(&format!("{path}{leaf}")).copied().unwrap_or(0);
    // The rest are the loops of their callers, the start of the process and clock().
    assert!(below("leaf") > below("other") && below("other") > 0, "{stacks:?}");
    assert!((below("leaf") + below("other")) * 10 > total * 9, "{stacks:?}");

    // Another build has other rules. perf has a copy of the first one in its cache.
    shell.run("gcc -O1 -g known.c -o known").quiet();
    let import = shell.run("HOME=/none nprof-import -o y.nprof perf.data");
    assert_eq!(import.status, 0, "{import:?}");
    assert!(import.err.contains("/known (of another build)"), "{import:?}");
    let marked =
        shell.run("nprof-paths --format folded y.nprof 2> /dev/null | grep no-unwind-info");
    assert!(!marked.out.is_empty(), "{marked:?}");
    assert_eq!(nprof_flat(&shell, "y.nprof"), perf_report(&shell, "-i perf.data"));
    // The build of the recording below a root.
    shell.run(
        "mkdir -p root$PWD && gcc -O2 -g -fomit-frame-pointer -fno-optimize-sibling-calls known.c \
         -o root$PWD/known && ln -s /lib /lib64 /usr root",
    );
    shell.run("HOME=/none nprof-import --symfs root -o z.nprof perf.data").quiet();
    assert_eq!(
        stacks_from_main(&shell, "--symfs root z.nprof").get(&format!("{path}leaf")),
        Some(&below("leaf"))
    );
}

#[test]
fn stack_that_is_larger_than_its_copy_is_marked_as_truncated() {
    if !have(&["perf", "gcc"]) {
        return;
    }
    let shell = Shell::new();
    shell.write("known.c", KNOWN.replace("recurse(20)", "recurse(2000)").as_bytes());
    shell.run("gcc -O2 -g -fno-optimize-sibling-calls known.c -o known").quiet();
    let run = shell.run(
        "perf record -q -e cpu-clock:u -F 499 --call-graph dwarf,1024 -o perf.data -- ./known",
    );
    if run.status != 0 {
        nprof_tests::skipped(&format!("perf cannot copy stacks: {}", run.err));
        return;
    }
    shell.run("nprof-import -o x.nprof perf.data").quiet();
    let folded = shell.run("nprof-paths --format folded x.nprof 2> /dev/null");
    let (mut marked, mut others) = (0, 0);
    for line in folded.out.lines() {
        let count: u64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
        *if line.contains("stack-truncated") { &mut marked } else { &mut others } += count;
    }
    assert!(marked > others, "{folded:?}");
}
