//! `--per`: ratios of two events of hand-made runs.

mod support;

use std::fs;
use std::path::Path;

use support::{Run, diff};
use tempfile::TempDir;

/// A function with its waiting in samples of a millisecond, and its calls.
type Function = (&'static str, u64, u64);

/// Writes a run in which `main` calls these functions. `main` itself is called once.
fn save(directory: &Path, name: &str, id: u64, functions: &[Function]) {
    let mut text = format!(
        "@nprof\t1.1\trun={id:#x}\tutc=1795254245000000000\tcommand=./demo\n\
         @event\tid=1\tname=blocked\tunit=ns\tmeasure=wait-time\tperiod=1000000\n\
         @event\tid=2\tname=calls\tunit=count\tmeasure=calls\tperiod=1\texact_ns=1000000000\n\
         I\t1\telf\t-\t/opt/demo\n"
    );
    let (mut samples, mut records) = (0, 3);
    let all = std::iter::once(&("main", 0, 1)).chain(functions);
    for (frame, (name, waits, calls)) in (1..).zip(all) {
        text.push_str(&format!("F\t{frame}\t1\t{:#x}\tu\n", id * 0x1000 + frame * 16));
        text.push_str(&format!("U\t{frame}\t{name}\t-\nY\t{frame}\tnamed\t{frame},0,0,0\n"));
        text.push_str(&format!("N\t{frame}\t{}\t{frame}\n", u64::from(frame > 1)));
        records += 2;
        let ns = waits * 1_000_000;
        for (event, weight, count) in [(1, ns, *waits), (2, *calls, *calls)] {
            if count > 0 {
                text.push_str(&format!("S\t5\t{event}\t0\t0\t{frame}\t{weight}\t{count}\n"));
                (samples, records) = (samples + 1, records + 1);
            }
        }
    }
    text.push_str(&format!("@end\treason=exit\tsamples={samples}\trecords={records}\tlost=0\n"));
    fs::write(directory.join(name), text).expect("a stream is written");
}

/// Five runs of each side. On the new side `lock` is called twice as often, and `read` waits longer in
/// each call; `idle` is never called.
fn directory() -> TempDir {
    let directory = TempDir::new().expect("a directory");
    for (run, more) in (1..).zip([0, 4, 1, 3, 2]) {
        let base = [("lock", 1000 + more, 5000), ("read", 400 + more, 100), ("idle", 300, 0)];
        let new = [("lock", 2000 + 2 * more, 10_000), ("read", 600 + more, 100), ("idle", 300, 0)];
        save(directory.path(), &format!("base{run}"), run, &base);
        save(directory.path(), &format!("new{run}"), 10 + run, &new);
    }
    directory
}

const BOTH: &str =
    "--per calls --base base1 base2 base3 base4 base5 --new new1 new2 new3 new4 new5";

#[test]
fn rows_change_if_their_ratio_does() {
    let directory = directory();
    let ended = diff(directory.path(), BOTH);
    assert_eq!((ended.status, &ended.stderr[..]), (0, ""));
    let table = ended.stdout;
    assert!(table.contains("divided by calls (--per calls)"), "{table}");
    assert!(table.contains("the ratio is in"), "{table}");
    // 402 ms of 1706 ms in 100 calls became 602 ms.
    let grown = table.split("\n  read  (demo)\n").nth(1).expect("it has grown");
    let lines: Vec<&str> = grown.lines().take(3).collect();
    assert!(lines[0].trim().starts_with("self, total  23.59 %    35.33 %     +11.7"), "{table}");
    assert!(lines[1].trim().starts_with("402 ms     602 ms    +200 ms"), "{table}");
    assert!(lines[2].trim().starts_with("ratio"), "{table}");
    assert!(lines[2].contains("+49.8 %"), "{table}");
    // The time of lock has doubled, and its calls, too.
    assert!(!table.contains("lock"), "{table}");
    let table = table.replace("\n  ", " ");
    assert!(table.contains("nothing to divide by in a run: 1"), "{table}");
    let by_time = diff(directory.path(), &BOTH.replacen("--per calls", "--event blocked", 1));
    assert!(by_time.stdout.contains("  lock"), "{}", by_time.stdout);
}

#[test]
fn bounds_are_those_of_the_calls_of_the_base() {
    let directory = directory();
    let fail_on = |bound: &str| diff(directory.path(), &format!("--fail-on {bound} {BOTH}")).status;
    assert_eq!(fail_on("self>+10%"), 1);
    assert_eq!(fail_on("self>+15%"), 0);
    assert_eq!(fail_on("self>+150ms"), 1);
    assert_eq!(fail_on("self>+300ms"), 0);
}

#[test]
fn programs_get_ratios_in_columns_of_their_own() {
    let directory = directory();
    let tsv = diff(directory.path(), &format!("--format tsv {BOTH}")).stdout;
    let mut lines = tsv.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let names = lines.next().expect("names");
    assert_eq!(names[names.len() - 10], "self_base_ratio");
    assert_eq!(names[names.len() - 1], "total_high_ratio");
    let read = lines.find(|cells| cells[2] == "read").expect("a row");
    let cell = |name| {
        let at = names.iter().position(|other| *other == name).expect("a column");
        read[at].parse::<f64>().expect("a number")
    };
    // ns of each call.
    assert!((cell("self_base_ratio") - 4.02e6).abs() < 1e3);
    assert!((cell("self_new_ratio") - 6.02e6).abs() < 1e3);
    let (low, high) = (cell("self_low_ratio"), cell("self_high_ratio"));
    assert!(low < 2e6 && high > 2e6 && high - low < 0.5e6, "{low} {high}");
    let json = diff(directory.path(), &format!("--format json {BOTH}")).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["per"], &json["undivided"]), (&"calls".into(), &1.into()));
}

#[test]
fn single_runs_are_compared_by_their_samples() {
    let directory = directory();
    let ended = diff(directory.path(), "--per calls base1 new1");
    assert_eq!(ended.status, 0);
    assert!(ended.stdout.contains("single runs"), "{}", ended.stdout);
    assert!(ended.stdout.contains("\n  read  (demo)\n"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("  lock"), "{}", ended.stdout);
}

#[test]
fn options_without_a_meaning_are_refused() {
    let directory = directory();
    let refused = |line: &str| {
        let ended = diff(directory.path(), line);
        assert_eq!((ended.status, &ended.stdout[..]), (2, ""), "{line}");
        ended.stderr
    };
    let missing = refused("--per requests base1 new1");
    assert!(missing.contains("no samples of requests, only of blocked, calls"), "{missing}");
    Run::new(99, &[("read", 10)]).save(directory.path(), "clock");
    let other = refused("--per calls base1 clock");
    assert!(other.contains("no samples of calls, only of cpu-clock"), "{other}");
    refused("--per calls --format folded base1 new1");
    refused("--per calls --noise --base base1 base2");
    refused("--per calls --event calls base1 new1");
}
