//! The tool on streams of schedules with a known truth.

mod live;
mod schedule;

use nprof_tests::{Finished, Shell, rows};
use schedule::{INTERRUPT, Schedule, Waker, convoy, pipeline};

const MS: u64 = 1_000_000;

/// Returns the weight of each row of a report of one event, by the value of its key.
fn weights(shell: &Shell, pipe: &str, event: &str, key: &str) -> Vec<(String, f64)> {
    let report = format!("{pipe} | nprof-flat --match event={event} --by {key} --format tsv");
    let table = shell.run(&report).quiet();
    rows(&table).iter().map(|row| (row.text(key).to_owned(), row.number("self"))).collect()
}

/// Returns the share of the rows with a word in their name.
fn share(weights: &[(String, f64)], of: &str) -> f64 {
    let total: f64 = weights.iter().map(|row| row.1).sum();
    weights.iter().filter(|row| row.0.contains(of)).map(|row| row.1).sum::<f64>() / total
}

/// Returns the samples of an event in a stream, as fields of text.
fn samples<'a>(text: &'a str, event: &str) -> Vec<Vec<&'a str>> {
    let name = format!("name={event}");
    let mut ids = Vec::new();
    let mut found = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[0] {
            "@event" if fields.contains(&name.as_str()) => ids.push(&fields[1]["id=".len()..]),
            "S" if ids.contains(&fields[2]) => found.push(fields),
            _ => {}
        }
    }
    found
}

/// Returns the sums of weights and counts.
fn sums(samples: &[Vec<&str>]) -> (u64, u64) {
    let sum =
        |field: usize| samples.iter().map(|s| s[field].parse::<u64>().expect("a number")).sum();
    (sum(6), sum(7))
}

fn text_of(shell: &Shell, pipe: &str) -> String {
    shell.run(&format!("{pipe} | nprof-format text")).quiet()
}

#[test]
fn pipeline_is_charged_to_its_slow_stage_and_function() {
    let shell = Shell::new();
    shell.write("x.nprof", pipeline().text());
    let pipe = "nprof-blame x.nprof";
    let threads = weights(&shell, pipe, "blamed", "thread");
    assert!(share(&threads, "gen") >= 0.9, "{threads:?}");
    let functions = weights(&shell, pipe, "blamed", "function");
    assert!(share(&functions, "make_line") >= 0.9, "{functions:?}");
    // The waits themselves name only the readers, the wake-ups only the stage before.
    assert_eq!(share(&weights(&shell, "cat x.nprof", "blocked", "thread"), "gen"), 0.0);
    assert!(share(&weights(&shell, "cat x.nprof", "wakes", "function"), "make_line") < 0.1);
}

#[test]
fn convoy_is_charged_to_the_slow_holder() {
    let shell = Shell::new();
    shell.write("x.nprof", convoy().text());
    let blamed = weights(&shell, "nprof-blame x.nprof", "blamed", "function");
    assert!(share(&blamed, "hold_long") >= 0.95, "{blamed:?}");
    // The plain rule charges the thread that ended the wait.
    let wakers = weights(&shell, "cat x.nprof", "wakes", "thread");
    assert!(share(&wakers, "slow") < 0.015, "{wakers:?}");
}

#[test]
fn charges_sum_to_the_waits_of_each_thread() {
    let shell = Shell::new();
    shell.write("x.nprof", pipeline().text());
    let text = text_of(&shell, "nprof-blame x.nprof");
    let (blocked, blamed) = (samples(&text, "blocked"), samples(&text, "blamed"));
    assert_eq!(sums(&blamed), sums(&blocked));
    for (task, waiter) in [("1", "101/101 sh"), ("3", "103/103 sort"), ("4", "104/104 uniq")] {
        let waits: Vec<_> = blocked.iter().filter(|s| s[3] == task).cloned().collect();
        let waiter = format!("waiter={waiter}");
        let charges: Vec<_> = blamed.iter().filter(|s| s[8] == waiter).cloned().collect();
        assert_eq!(sums(&charges), sums(&waits), "{waiter}");
    }
}

#[test]
fn output_is_the_input_with_additions_and_valid() {
    let shell = Shell::new();
    let input = pipeline().text();
    shell.write("x.nprof", &input);
    let text = text_of(&shell, "nprof-blame x.nprof");
    let mut lines = text.lines();
    for line in input.lines().filter(|line| !line.starts_with("@end")) {
        // The head announces checksums.
        let is_copy = |copy: &str| copy.strip_suffix("\tcheck=crc32c").unwrap_or(copy) == line;
        assert!(lines.any(is_copy), "{line} is missing or misplaced");
    }
    assert_eq!(text.matches("\n@step\t").count(), 1);
    for encoding in ["binary", "text"] {
        let pipe = format!("nprof-blame x.nprof | nprof-format {encoding} | nprof-format check");
        shell.run(&pipe).quiet();
    }
}

#[test]
fn frames_of_reasons_follow_the_stack_of_the_wait() {
    let shell = Shell::new();
    let mut s = Schedule::new(1);
    let [timer, ready] = ["timer", "ready"].map(|comm| s.task(comm));
    let sleeps = s.stack(&["main", "nap", "hrtimer_nanosleep"]);
    let is_ready = s.stack(&["main", "compute"]);
    let waits = s.stack(&["main", "lock", "futex_do_wait"]);
    s.waits(timer, sleeps, 0, 30 * MS, INTERRUPT);
    s.is_runnable(ready, is_ready, 30 * MS, 50 * MS);
    s.waits(timer, waits, 30 * MS, 50 * MS, Waker(ready, is_ready));
    shell.write("x.nprof", s.text());
    let folded =
        shell.run("nprof-blame x.nprof | nprof-paths --event blamed --format folded").quiet();
    let mut lines: Vec<&str> = folded.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 2, "{folded}");
    assert!(lines[0].contains("main;compute;[waiting for a CPU]"), "{folded}");
    assert!(lines[1].contains("main;nap;hrtimer_nanosleep;[interrupt]"), "{folded}");
}

#[test]
fn reports_and_filters_accept_the_output() {
    let shell = Shell::new();
    shell.write("x.nprof", pipeline().text());
    shell.write("y.nprof", convoy().text().replace("run=0x1", "run=0x2"));
    // Before the reports, so that each tests only itself.
    shell.run("for i in x y; do nprof-blame $i.nprof > $i.blamed; done").quiet();
    for pipe in [
        "nprof-flat x.blamed",
        "nprof-paths --view tree --event blamed x.blamed",
        "nprof-paths --format flamegraph --event blamed x.blamed",
        "nprof-diff --event blamed x.blamed y.blamed",
        "nprof-format merge x.blamed y.blamed | nprof-format check",
    ] {
        let run = shell.run(pipe);
        assert!(run.stages.iter().all(|&status| status == 0), "{pipe}: {run:?}");
    }
    // The names of the filter's frames survive a symbolizer that knows no such image.
    let functions = |pipe| weights(&shell, pipe, "blamed", "function");
    let again = functions("nprof-symbolize x.blamed 2> /dev/null");
    assert_eq!(again, functions("cat x.blamed"));
}

#[test]
fn merged_runs_are_charged_each_on_its_own() {
    let shell = Shell::new();
    shell.write("x.nprof", pipeline().text());
    // The same numbers of waits in both runs.
    shell.write("y.nprof", convoy().text().replace("run=0x1", "run=0x2"));
    shell
        .run("nprof-format merge x.nprof y.nprof > m.nprof; nprof-blame m.nprof > b.nprof")
        .quiet();
    shell.run("nprof-format check b.nprof").quiet();
    let charged = |pipe: &str| -> f64 {
        let functions = weights(&shell, pipe, "blamed", "function");
        let slow = functions.iter().filter(|row| row.0 == "hold_long" || row.0 == "make_line");
        slow.map(|row| row.1).sum()
    };
    let apart = charged("nprof-blame x.nprof") + charged("nprof-blame y.nprof");
    // The times of a merged stream are others, and with them the random points of each wait.
    let change = charged("cat b.nprof") / apart - 1.0;
    assert!(change.abs() < 0.01, "{change}");
}

#[test]
fn epoch_and_segment_end_charge_all_waits() {
    let shell = Shell::new();
    let text = pipeline().text();
    let definitions: String = text
        .lines()
        .filter(|line| {
            ["@event", "I", "T", "F", "U", "Y", "N"].contains(&line.split('\t').next().unwrap())
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    // An epoch in the middle of the samples, and the whole stream twice.
    let half = text.match_indices("\nS\t").nth(2000).unwrap().0 + 1;
    let records =
        definitions.lines().filter(|line| !matches!(line.as_bytes()[0], b'U' | b'Y')).count() + 1;
    let (begin, end) = text.rsplit_once("records=").unwrap();
    let (number, end) = end.split_once('\t').unwrap();
    let number: usize = number.parse::<usize>().unwrap() + records;
    let text = format!("{begin}records={number}\t{end}");
    let text = format!("{}@epoch\tnumber=1\n{definitions}{}", &text[..half], &text[half..]);
    shell.write("x.nprof", text.repeat(2));
    shell.run("nprof-format check x.nprof").quiet();
    shell.run("nprof-blame x.nprof > y.nprof; nprof-format check y.nprof").quiet();
    let text = text_of(&shell, "cat y.nprof");
    assert_eq!(sums(&samples(&text, "blamed")), sums(&samples(&text, "blocked")));
    assert_eq!(text.matches("\n@step\t").count(), 2);
}

#[track_caller]
fn assert_refused(run: &Finished, words: &str) {
    assert_eq!(run.status, 2, "{run:?}");
    assert!(run.err.starts_with("nprof-blame: ") && run.err.contains(words), "{}", run.err);
}

#[test]
fn stream_that_cannot_be_charged_is_refused_with_the_remedy() {
    let shell = Shell::new();
    let text = pipeline().text();
    let without = |event: &str| {
        let kept = text.lines().filter(|line| !line.contains(&format!("name={event}\t")));
        kept.flat_map(|line| [line, "\n"]).collect::<String>()
    };
    let remedy = "record with nprof-record -e wall -e wakes";
    shell.write("x.nprof", without("wakes"));
    let run = shell.run("nprof-blame x.nprof > y");
    assert_refused(&run, "no event wakes");
    assert_refused(&run, remedy);
    shell.write("x.nprof", without("blocked"));
    let run = shell.run("nprof-blame --partial-ok x.nprof > y");
    assert_refused(&run, "no event blocked");
    assert_refused(&run, remedy);
    shell.write("x.nprof", &text);
    assert_refused(
        &shell.run("set -o pipefail; nprof-blame x.nprof | nprof-blame > y"),
        "has the event blamed already",
    );
    shell.write("x.nprof", text.replace("I\t1\telf", "I\t40000000\telf"));
    assert_refused(&shell.run("nprof-blame x.nprof > y"), "ids above 33554432");
}

#[test]
fn truncated_input_is_charged_and_reported() {
    let shell = Shell::new();
    shell.write("x.nprof", pipeline().open_text());
    let run = shell.run("nprof-blame x.nprof > y.nprof");
    assert_eq!(run.status, 3, "{run:?}");
    assert!(run.err.contains("truncated"), "{run:?}");
    let text = shell.run("nprof-format text --partial-ok y.nprof").out;
    assert_eq!(sums(&samples(&text, "blamed")), sums(&samples(&text, "blocked")));
    assert!(!text.contains("\n@end"), "the filter writes no end that it has not read");
    assert_eq!(shell.run("nprof-blame --partial-ok x.nprof > y.nprof").status, 0);
}

#[test]
fn closed_pipe_is_success() {
    let shell = Shell::new();
    shell.write("x.nprof", convoy().text());
    let run = shell.run("nprof-blame x.nprof | head -c 100 > y");
    assert_eq!((&run.stages[..], run.err.as_str()), (&[0, 0][..], ""));
}

#[test]
fn live_input_is_charged_before_its_end() {
    let shell = Shell::new();
    let text = convoy().text();
    let half = text.match_indices("\nS\t").nth(2000).unwrap().0 + 1;
    shell.write("first", &text[..half]);
    shell.write("rest", &text[half..]);
    // The second half is written only when a charge of the first one has arrived.
    let run = shell.run(
        "mkfifo go; { cat first; read -r line < go; cat rest; } | nprof-blame | nprof-format text |
         { grep -m1 waiter= > go; cat > rest.out; }",
    );
    assert!(run.stages.iter().all(|&status| status == 0), "{run:?}");
    assert!(String::from_utf8_lossy(&shell.read("rest.out")).contains("@end"));
}

#[test]
fn name_with_newline_and_bytes_stays_one_field() {
    let shell = Shell::new();
    shell.write("x.nprof", pipeline().text().replace("\tuniq\n", "\tu\\n\\t\\xff q\n"));
    let text = text_of(&shell, "nprof-blame x.nprof");
    assert!(text.contains("\twaiter=104/104 u\\n\\t\\xff q\n"), "{text}");
}
