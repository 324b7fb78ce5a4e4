//! The complete output of every report in every format, compared with the files in tests/golden.
//! `NPROF_BLESS=1` rewrites them.

use std::fmt::Write as _;

use nprof_tests::{Shell, assert_golden};

/// The definitions of every recording, with ` | ` between fields: two threads, user and kernel code,
/// an inlined call, recursion, a frame without a name, and an incomplete stack.
const DEFINITIONS: &str = "\
@event | id=1 | name=cpu-clock | unit=ns | measure=cpu-time | frequency=997 | scope=user+kernel
@event | id=2 | name=page-faults | unit=count | period=1
I | 1 | elf | 0102030405060708 | /usr/bin/prog
I | 2 | elf | 1112131415161718 | /usr/lib/libdraw.so
I | 3 | kernel | - | [kernel]
T | 1 | 0 | 100 | 100 | 0 | prog
T | 2 | 0 | 100 | 101 | 1 | worker
U | 1 | main | -
U | 2 | draw(shape const&, int) | -
U | 3 | std::vector<int>::push_back(int const&) | -
U | 4 | walk(node*) | -
U | 5 | clear_page | -
U | 6 | run_worker | -
D | 1 | /src/main.cpp
D | 2 | /src/draw.cpp
F | 1 | 1 | 0x1100 | u,ra
F | 2 | 2 | 0x2200 | u
F | 3 | 1 | 0x1300 | u,ra
F | 4 | 1 | 0x1304 | u
F | 5 | 3 | 0x5500 | k
F | 6 | 1 | 0x1600 | u,ra
F | 7 | 2 | 0x2700 | u
F | 8 | 0 | 0x0 | u,stack-truncated
Y | 1 | named | 1,1,10,0
Y | 2 | named | 3,2,40,0 | 2,2,21,0
Y | 3 | named | 4,1,30,0
Y | 4 | named | 4,1,31,0
Y | 5 | named | 5,0,0,0
Y | 6 | named | 6,1,50,0
Y | 7 | no-symbol
N | 1 | 0 | 1 | 2
N | 3 | 1 | 3 | 3 | 4
N | 6 | 3 | 5
N | 7 | 0 | 6 | 7
N | 9 | 0 | 8 | 4
";

/// The stacks that samples are written for: task and node.
const STACKS: [(u32, u32); 5] = [(1, 2), (1, 5), (1, 6), (2, 8), (2, 10)];

/// Returns a complete text stream with `counts` samples of `cpu-clock` on each stack, and a tenth of
/// them of `page-faults`.
fn recording(run: u32, counts: [u32; 5]) -> String {
    let mut text = format!("@nprof | 1.1 | run={run:#x} | clock=monotonic | command=prog --fast\n");
    text += DEFINITIONS;
    let (mut time, mut samples) = (0, 0);
    let mut sample = |event: u32, (task, node): (u32, u32), weight: u32| {
        time += 1_003_009;
        samples += 1;
        format!("S | {time} | {event} | {task} | {} | {node} | {weight} | 1\n", task - 1)
    };
    // Weights are periods: at 997 Hz, 1,003,009 ns each.
    for (stack, count) in STACKS.into_iter().zip(counts) {
        for number in 0..count {
            text += &sample(1, stack, 1_003_009);
            if number % 10 == 0 {
                text += &sample(2, stack, 1);
            }
        }
    }
    // Everything before the samples but functions, files and locations counts as a record.
    let records =
        samples + DEFINITIONS.lines().filter(|line| !line.starts_with(['U', 'D', 'Y'])).count();
    let _ = writeln!(
        text,
        "L | {time} | 1 | 1 | 0 | 3 | ring\n\
         @end | reason=exit | status=0 | samples={samples} | records={} | lost=3 | task_ns=500000000 \
         | sampled_ns=498000000",
        records + 1
    );
    // Fields are separated by TAB, which would be hard to see above.
    text.replace(" | ", "\t")
}

/// Returns a shell with recordings base-1 to base-3 and new-1 to new-3, in which `draw` takes longer.
fn shell() -> Shell {
    let shell = Shell::new();
    for run in 1..=3 {
        // Runs differ a little: without variance every difference would be significant.
        let noise = run % 3;
        shell.write(&format!("base-{run}"), recording(run, [100 + noise, 80, 20, 150 - noise, 7]));
        shell.write(
            &format!("new-{run}"),
            recording(10 + run, [180 - noise, 82, 19, 148 + noise, 7]),
        );
    }
    shell
}

/// Compares the output of commands with golden files, given as pairs of file name and command.
#[track_caller]
fn assert_outputs(commands: &[(&str, &str)]) {
    let shell = shell();
    for (name, command) in commands {
        let run = shell.run(&format!("{command} 2>&1"));
        // nprof-diff exits with 1 for a regression.
        assert!(run.status <= 1, "{command}: {run:?}");
        assert_golden(name, &run.out);
    }
}

#[test]
fn flat_prints_expected_reports() {
    assert_outputs(&[
        ("flat.txt", "nprof-flat base-1"),
        ("flat-verbose.txt", "nprof-flat -v base-1"),
        ("flat.tsv", "nprof-flat --format tsv base-1"),
        ("flat.csv", "nprof-flat --format csv base-1"),
        ("flat.json", "nprof-flat --format json base-1"),
        ("flat-by-line.txt", "nprof-flat --by image,line --match event=cpu-clock base-1"),
        ("flat-by-thread.txt", "nprof-flat --by thread --match event=cpu-clock base-1 base-2"),
    ]);
}

#[test]
fn paths_prints_expected_reports() {
    assert_outputs(&[
        ("paths.txt", "nprof-paths base-1"),
        ("paths.tsv", "nprof-paths --format tsv base-1"),
        ("paths.csv", "nprof-paths --format csv base-1"),
        ("paths.json", "nprof-paths --format json base-1"),
        ("paths-folded.txt", "nprof-paths --format folded --event cpu-clock base-1"),
        ("paths-tree.txt", "nprof-paths --view tree --event cpu-clock base-1"),
        ("paths-callers.txt", "nprof-paths --view callers --event cpu-clock base-1"),
        ("paths-graph.txt", "nprof-paths --view graph --event cpu-clock base-1"),
    ]);
}

#[test]
fn diff_prints_expected_reports() {
    const SIDES: &str = "--base base-1 base-2 base-3 --new new-1 new-2 new-3";
    let command = |words: &str| format!("nprof-diff --event cpu-clock {words} {SIDES}");
    assert_outputs(&[
        ("diff.txt", &command("")),
        ("diff.tsv", &command("--format tsv")),
        ("diff.csv", &command("--format csv")),
        ("diff.json", &command("--format json")),
        ("diff-fail-on.txt", &command("--fail-on 'self>+5%'")),
        ("diff-by-path.txt", &command("--by path")),
        ("diff-markdown.txt", &command("--format markdown --fail-on 'self>+5%'")),
        ("diff-junit.xml", &command("--format junit --fail-on 'self>+5%,total>+40%'")),
    ]);
}

#[test]
fn format_prints_expected_reports() {
    assert_outputs(&[
        ("format-check.txt", "nprof-format check base-1"),
        ("format-stat.txt", "nprof-format stat base-1"),
        ("format-stat.json", "nprof-format stat --format json base-1"),
    ]);
}
