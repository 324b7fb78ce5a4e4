//! Compares streams as a user does: reports, warnings, gates, exit statuses.

mod support;

use std::fs;

use support::{Run, command, diff, diff_of_stdin};
use tempfile::TempDir;

const BASE: &[(&str, u64)] = &[("parse", 600), ("solve", 300), ("old", 60), ("write", 40)];
const NEW: &[(&str, u64)] = &[("parse", 580), ("solve", 420), ("fresh", 60), ("write", 44)];

/// Returns a directory with the runs `base` and `new`.
fn directory() -> TempDir {
    let directory = TempDir::new().expect("a directory");
    Run::new(1, BASE).save(directory.path(), "base");
    Run::new(2, NEW).save(directory.path(), "new");
    directory
}

/// Returns the value of a column in the row of a function.
fn cell(tsv: &str, function: &str, column: &str) -> String {
    let mut rows = tsv.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let names = rows.next().expect("a header");
    let at = names.iter().position(|name| *name == column).expect("the column");
    rows.find(|row| row[2] == function).expect("the row")[at].to_owned()
}

#[test]
fn table_shows_changes() {
    let directory = directory();
    let ended = diff(directory.path(), "base new");
    assert_eq!((ended.status, &ended.stderr[..]), (0, ""));
    let expected = "\
base  1 run of ./demo 7: 1000 samples, 1.00 s of CPU time a run
new   1 run of ./demo 7: 1104 samples, 1.10 s, +104 ms
warning: single runs: the intervals assume independent samples and ignore
  differences between runs, so they are too narrow; give several runs per side
  (--base FILE... --new FILE...)
6 comparisons; changed: q, the chance of any false alarm, at most 0.05

                    base        new     change           95 % interval        q
added (1)
  fresh  (demo)
    self, total   0.00 %     5.43 %      +5.43          +4.19 .. +6.93  <0.0001
                    0 µs      60 ms     +60 ms        +46 ms .. +77 ms
removed (1)
  old  (demo)
    self, total   6.00 %     0.00 %      -6.00          -7.65 .. -4.64  <0.0001
                   60 ms       0 µs     -60 ms        -76 ms .. -46 ms
grown (1)
  solve  (demo)
    self, total  30.00 %    38.04 %      +8.04         +3.99 .. +12.05   0.0003
                  300 ms     420 ms    +120 ms       +77 ms .. +162 ms
shrunk (1)
  parse  (demo)
    self, total  60.00 %    52.54 %      -7.46         -11.67 .. -3.22   0.0007
                  600 ms     580 ms     -20 ms        -64 ms .. +25 ms

possible renames: same image, similar share (--rename FILE joins them):
  old  (demo)
    fresh  (demo)
      total 6.00 %, now 5.43 %

2 functions without significant change
";
    assert_eq!(ended.stdout, expected);
    let verbose = diff(directory.path(), "-v base new").stdout;
    let expected = "\
base  base
      ./demo 7
      2026-11-21 09:44:05 UTC
      1 run, 1000 samples, lost 0, with incomplete stack 0
new   new
      ./demo 7
      2026-11-21 09:44:05 UTC
      1 run, 1104 samples, lost 0, with incomplete stack 0
both  vm1, Linux 6.18
      cpu-clock (user) at 1000 Hz, stacks by dwarf
CPU time of a run: base 1.00 s, new 1.10 s, difference +104 ms
warning: single runs";
    assert!(verbose.starts_with(expected), "{verbose}");
    // The row limit keeps the largest change, not the first of each group.
    let short = diff(directory.path(), "-n 1 base new").stdout;
    assert!(short.contains("3 more with smaller changes (-n 0 prints all)"), "{short}");
    assert!(short.contains("\n  solve  (demo)\n") && short.contains("\nadded (1)\nremoved (1)\n"));
    assert!(short.lines().all(|line| line.chars().count() <= 80), "{short}");
}

#[test]
fn run_compared_with_itself_has_no_change() {
    let directory = directory();
    let ended = diff(directory.path(), "--fail-on any base base");
    assert_eq!((ended.status, ended.stdout.as_str()), (2, ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("is on both sides, so --fail-on would never fail"));
    let ended = diff(directory.path(), "base base");
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("is on both sides"));
    assert!(ended.stdout.ends_with("\n\n5 functions without significant change\n"));
    let tsv = diff(directory.path(), "--format tsv base base").stdout;
    assert_eq!(cell(&tsv, "solve", "self_diff"), "0.0");
    assert_eq!(cell(&tsv, "solve", "self_q"), "1.0");
}

#[test]
fn long_command_has_a_line_of_its_own() {
    let directory = TempDir::new().unwrap();
    let command = "./demo f(a) --input /data/tables/2026.csv --output /tmp/out";
    for (id, name) in [(1, "base"), (2, "new")] {
        let text = Run::new(id, &[("f", 1000)]).text().replace("./demo 7", command);
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let table = diff(directory.path(), "base new").stdout;
    for side in ["base ", "new  "] {
        let lines = format!("{side} 1 run of {command}\n      1000 samples, 1.00 s");
        assert!(table.contains(&lines), "{table}");
    }
}

#[test]
fn fails_if_whole_interval_is_beyond_bound() {
    let directory = directory();
    let status = |line: &str| diff(directory.path(), line).status;
    assert_eq!(status("--fail-on any base new"), 1);
    assert_eq!(status("--fail-on self>+2% base new"), 1);
    // solve grew by 8.04 points, but it may be as few as 3.99; fresh by at least 4.19.
    assert_eq!(status("--fail-on self>+4.1% base new"), 1);
    assert_eq!(status("--fail-on self>+4.2% base new"), 4);
    assert_eq!(status("--fail-on self>+12% base new"), 4);
    assert_eq!(status("--fail-on self>+12.1% base new"), 0);
    assert_eq!(status("--fail-on self>+75ms base new"), 1);
    assert_eq!(status("--fail-on self>+90ms base new"), 4);
    assert_eq!(status("--fail-on self>+170ms base new"), 0);
    // main has the whole time of both sides, which grew by 104 ms.
    assert_eq!(status("--fail-on total>+90ms base new"), 1);
    assert_eq!(status("--fail-on total>+170ms base new"), 0);
    let ended = diff(directory.path(), "--fail-on self>+50% --fail-on self>+10ms base new");
    assert_eq!((ended.status, &ended.stderr[..]), (1, "nprof-diff: changed beyond self>+10ms\n"));
    let comment = "--format markdown --fail-on self>+50% --fail-on self>+10ms base new";
    let comment = diff(directory.path(), comment).stdout;
    assert!(
        comment.starts_with("**nprof-diff: failed, changed beyond `self>+10ms`**"),
        "{comment}"
    );
    let ended = diff(directory.path(), "--fail-on self>+4.1% base new");
    assert!(ended.stdout.ends_with("beyond self>+4.1%: fresh  (demo): at least +4.19\n"));
    assert_eq!(ended.stderr, "nprof-diff: changed beyond self>+4.1%\n");
}

#[test]
fn table_lists_row_beyond_bound_in_time_only() {
    let directory = directory();
    let table = diff(directory.path(), "--fail-on total>+90ms base new").stdout;
    let (_, beyond) = table.split_once("\ngrown in time only, beyond a bound (1)\n").unwrap();
    assert!(beyond.starts_with("  main  (demo)\n    total       100.00 %   100.00 %"), "{table}");
    assert!(table.contains("\n1 function without significant change\n"), "{table}");
    assert!(!diff(directory.path(), "base new").stdout.contains("grown in time only"));
}

#[test]
fn blocks_of_memory_are_reported_beside_their_bytes() {
    let directory = TempDir::new().expect("a directory");
    // 1 MiB a sample, of blocks of 64 KiB. Of two runs of the new side, one has three times the blocks.
    for (id, name, functions, size) in
        [(1, "base", BASE, 65536), (2, "new", NEW, 65536), (3, "smaller", NEW, 21845)]
    {
        let weights = vec![1 << 20; functions.len()];
        let (event, unit, measure) = ("heap.alloc", "bytes", "bytes");
        let run = Run { event, unit, measure, weights, ..Run::new(id, functions) };
        let with_size = |line: &str| match line.starts_with("S\t") {
            true => format!("{line}\tsize={size}\n"),
            false => format!("{line}\n"),
        };
        let text: String = run.text().lines().map(with_size).collect();
        fs::write(directory.path().join(name), text).expect("a stream is written");
    }
    let table = diff(directory.path(), "base new").stdout;
    assert!(table.contains("\n    blocks        4.80 k     6.72 k    +1.92 k\n"), "{table}");
    let sides = "--format tsv --base base --new new smaller";
    let tsv = diff(directory.path(), sides).stdout;
    assert_eq!(cell(&tsv, "solve", "self_base_blocks"), "4800.0");
    assert_eq!(cell(&tsv, "solve", "self_new_blocks"), "13440.154");
    assert_eq!(cell(&tsv, "main", "self_new_blocks"), "0.0");
    assert_eq!(cell(&tsv, "main", "total_base_blocks"), "16000.0");
    let paths = diff(directory.path(), "--by path --format tsv base new").stdout;
    assert_eq!(cell(&paths, "main", "total_base_blocks"), "16000.0");
    let cycles = diff(directory.path(), "--by path --format json base new").stdout;
    assert!(cycles.contains("\"total_new_blocks\":17664.0"), "{cycles}");
}

#[test]
fn bytes_are_compared_as_amounts() {
    let directory = TempDir::new().expect("a directory");
    // 1 MiB a sample.
    for (id, name, functions) in [(1, "base", BASE), (2, "new", NEW)] {
        let weights = vec![1 << 20; functions.len()];
        let (event, unit, measure) = ("heap.peak", "bytes", "bytes");
        let run = Run { event, unit, measure, weights, ..Run::new(id, functions) };
        run.save(directory.path(), name);
    }
    let table = diff(directory.path(), "base new").stdout;
    assert!(table.contains("1000 samples, 1000 MiB a run\n"), "{table}");
    assert!(table.contains("1104 samples, 1.08 GiB, +104 MiB\n"), "{table}");
    let solve = "                300 MiB    420 MiB   +120 MiB";
    assert!(table.contains(solve), "{table}");
    // main has all bytes of both sides, which grew by 104 MiB.
    let status = |line: &str| diff(directory.path(), line).status;
    assert_eq!(status("--fail-on total>+90MiB base new"), 1);
    assert_eq!(status("--fail-on total>+170MiB base new"), 0);
    assert_eq!(status("--fail-on self>+64KiB base new"), 1);
    let beyond = diff(directory.path(), "--fail-on total>+90MiB base new").stdout;
    assert!(beyond.contains("\ngrown in bytes only, beyond a bound (1)\n  main"), "{beyond}");
    assert!(beyond.contains("beyond total>+90MiB: main  (demo): at least +100 MiB"), "{beyond}");
    let refusal = diff(directory.path(), "--fail-on total>+20ms base new");
    assert_eq!(refusal.status, 2);
    assert!(
        refusal.stderr.contains(
            "heap.peak (user) does not measure time; give bytes, such as 1MiB, or a share (P%)"
        ),
        "{}",
        refusal.stderr
    );
    let tsv = diff(directory.path(), "--format tsv base new").stdout;
    assert_eq!(cell(&tsv, "solve", "self_diff_bytes"), "125829120");
    assert_eq!(cell(&tsv, "solve", "self_diff_ns"), "");
    let noise = diff(directory.path(), "--noise --format tsv --base base new").stdout;
    assert!(
        noise.lines().next().is_some_and(|line| line.ends_with("\ttotal_floor_bytes")),
        "{noise}"
    );
    // Other events have no such columns, and no bounds in bytes.
    let times = self::directory();
    assert!(!diff(times.path(), "--format tsv base new").stdout.contains("_bytes"));
    let refusal = diff(times.path(), "--fail-on total>+1MiB base new");
    let remedy = "does not measure bytes; give a time, such as 20ms, or a share (P%)";
    assert!(refusal.stderr.contains(remedy), "{}", refusal.stderr);
}

#[test]
fn counts_are_compared_as_amounts() {
    let directory = TempDir::new().expect("a directory");
    let save = |event, unit, measure| {
        for (id, name, functions) in [(1, "base", BASE), (2, "new", NEW)] {
            let weights = vec![25; functions.len()];
            let run = Run { event, unit, measure, weights, ..Run::new(id, functions) };
            run.save(directory.path(), name);
        }
    };
    save("page-faults", "count", "count");
    let table = diff(directory.path(), "base new").stdout;
    assert!(table.contains("1000 samples, 25.0 k page-faults a run\n"), "{table}");
    assert!(table.contains("1104 samples, 27.6 k, +2.60 k\n"), "{table}");
    let solve = "                 7.50 k     10.5 k    +3.00 k";
    assert!(table.contains(solve), "{table}");
    // main has all faults of both sides, which grew by 2600.
    let ended = |line: &str| diff(directory.path(), line);
    assert_eq!(ended("--fail-on total>+2500 base new").status, 1);
    assert_eq!(ended("--fail-on total>+5000 base new").status, 0);
    let beyond = ended("--fail-on total>+2500 base new").stdout;
    assert!(beyond.contains("\ngrown in counts only, beyond a bound (1)\n  main"), "{beyond}");
    let refusal = ended("--fail-on total>+20ms base new");
    assert_eq!(refusal.status, 2);
    let remedy =
        "page-faults (user) does not measure time; give a number, such as 1000, or a share (P%)";
    assert!(refusal.stderr.contains(remedy), "{refusal:?}");
    let tsv = ended("--format tsv base new").stdout;
    assert_eq!(cell(&tsv, "solve", "self_diff_count"), "3000.0");
    assert_eq!(cell(&tsv, "solve", "self_diff_ns"), "");
    let noise = ended("--noise --format tsv --base base new").stdout;
    assert!(noise.lines().next().is_some_and(|it| it.ends_with("\ttotal_floor_count")), "{noise}");
    // Exact counts of calls, and cycles; a measure of a later version has shares only.
    for (measure, expected) in [("calls", true), ("cycles", true), ("volts", false)] {
        save("x", "count", measure);
        assert_eq!(ended("base new").stdout.contains("+3.00 k"), expected, "{measure}");
    }
    let refusal = diff(self::directory().path(), "--fail-on total>+1000 base new");
    assert!(refusal.stderr.contains("does not measure counts"), "{}", refusal.stderr);
}

#[test]
fn heading_joins_rates_of_one_event() {
    let directory = directory();
    for (id, hertz) in [(11, 997), (12, 1011), (13, 1004)] {
        let run = Run { hertz, ..Run::new(id, BASE) };
        run.save(directory.path(), &format!("at-{hertz}"));
    }
    let table = diff(directory.path(), "-v --base at-997 at-1011 at-1004 --new new").stdout;
    assert!(table.contains("cpu-clock (user) at 997 to 1011 Hz, stacks by dwarf\n"), "{table}");
    assert!(table.contains("cpu-clock (user) at 1000 Hz, stacks by dwarf\n"), "{table}");
}

#[test]
fn undecided_bound_reports_runs_needed() {
    let directory = directory();
    let ended = diff(directory.path(), "--fail-on self>+6% base new");
    assert_eq!(ended.status, 4);
    // solve grew by 8.04 points, at least by 3.99: twice as far from 8.04 as 6 is. fresh grew by
    // 5.43, at most by 6.93: a half-width of 1.5, where 0.57 is needed.
    assert_eq!(
        ended.stderr,
        "nprof-diff: not enough runs to decide: 2 rows may exceed self>+6%; about 7 more runs per side would decide\n"
    );
    let json = diff(directory.path(), "--format json --fail-on self>+6% base new").stdout;
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["result"], &report["more_runs"]), (&"undecided".into(), &7.into()));
}

#[test]
fn min_effect_hides_smaller_changes() {
    let directory = directory();
    let rows = |line: &str| {
        let table = diff(directory.path(), line).stdout;
        ["fresh", "old", "solve", "parse"]
            .map(|name| table.contains(&format!("\n  {name}  (demo)\n    ")))
    };
    assert_eq!(rows("--min-effect 5.5% base new"), [false, true, true, true]);
    assert_eq!(rows("--min-effect 50ms base new"), [true, true, true, false]);
    let ended = diff(directory.path(), "--min-effect 20% --fail-on any base new");
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("6 functions without significant change of this size"));
    // A significant change below the minimum effect is within the bound, not undecided.
    let ended = diff(directory.path(), "--min-effect 6% --fail-on self>+3.9% base new");
    assert_eq!(ended.status, 1, "{}", ended.stdout);
    assert!(ended.stdout.ends_with("beyond self>+3.9%: solve  (demo): at least +3.99\n"));
}

#[test]
fn closed_pipe_keeps_exit_status() {
    let directory = directory();
    let mut child = command(directory.path(), "--fail-on any base -").spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, Run::new(2, NEW).text().as_bytes()).unwrap();
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn different_rate_and_length_is_no_change() {
    let directory = directory();
    let mut long = Run::new(3, &BASE.iter().map(|(f, n)| (*f, 6 * n)).collect::<Vec<_>>());
    long.hertz = 499;
    long.save(directory.path(), "long");
    let ended = diff(directory.path(), "-v --fail-on any --min-effect 10% base long");
    assert_eq!(ended.status, 0, "{}", ended.stdout);
    assert!(ended.stdout.contains("at 1000 Hz") && ended.stdout.contains("at 499 Hz"));
}

#[test]
fn variance_between_runs_decides_significance() {
    let directory = TempDir::new().unwrap();
    for (i, solve) in [290, 310, 300, 305, 295].into_iter().enumerate() {
        let base = [("parse", 1000 - solve), ("solve", solve)];
        Run::new(1 + i as u64, &base).save(directory.path(), &format!("base{i}"));
        let new = [("parse", 900 - solve), ("solve", solve + 100)];
        Run::new(11 + i as u64, &new).save(directory.path(), &format!("new{i}"));
        let noisy = [("parse", 1000 - i as u64 * 150), ("solve", i as u64 * 150)];
        Run::new(21 + i as u64, &noisy).save(directory.path(), &format!("noisy{i}"));
    }
    let sets = |new: &str| {
        let names = |side: &str| (0..5).map(|i| format!("{side}{i} ")).collect::<String>();
        format!("-v --fail-on any --base {} --new {}", names("base"), names(new))
    };
    let ended = diff(directory.path(), &sets("new"));
    assert_eq!(ended.status, 1, "{}", ended.stdout);
    assert!(ended.stdout.contains("Welch's over runs") && !ended.stdout.contains("warning"));
    assert!(ended.stdout.contains("5 runs, 5000 samples"));
    // The runs differ so much that a change of two points cannot be excluded.
    let noisy = diff(directory.path(), &sets("noisy"));
    assert_eq!(noisy.status, 4, "{}", noisy.stdout);
    assert!(
        noisy.stderr.contains("2 rows may have changed by 2 points of a run or more; about"),
        "{}",
        noisy.stderr
    );
    let tolerant = sets("noisy").replace("any", "any --min-effect 60%");
    assert_eq!(diff(directory.path(), &tolerant).status, 0);
    // Segments of one file are runs as well; the same run twice is refused.
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    // A stream is the concatenation of its segments.
    fs::write(directory.path().join("both"), read("base0") + &read("base1")).unwrap();
    let ended = diff(directory.path(), "-v --base both --new new0 new1");
    assert!(ended.stdout.contains("2 runs, 2000 samples") && ended.stdout.contains("Welch"));
    let ended = diff(directory.path(), "--base base0 base0 --new new0 new1");
    assert_eq!((ended.status, &ended.stdout[..]), (2, ""));
    assert!(ended.stderr.contains("run 0x1 was already read"), "{}", ended.stderr);
}

#[test]
fn rejects_incomplete_input_without_partial_ok() {
    let directory = directory();
    let text = Run::new(2, NEW).text();
    // Without its end record, a stream is truncated.
    let cut = &text[..text.find("@end").unwrap()];
    fs::write(directory.path().join("cut"), cut).unwrap();
    fs::write(directory.path().join("damaged"), text.replace("S\t5\t1\t0", "S\t5\tx\t0")).unwrap();
    fs::write(directory.path().join("empty"), "").unwrap();
    fs::write(directory.path().join("foreign"), "once upon a time\n").unwrap();
    for input in ["cut", "damaged", "empty", "foreign", "absent", "."] {
        for line in [format!("base {input}"), format!("{input} base")] {
            let ended = diff(directory.path(), &line);
            assert_eq!((ended.status, &ended.stdout[..]), (2, ""), "{line}");
            assert!(ended.stderr.starts_with("nprof-diff: "), "{}", ended.stderr);
            assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        }
    }
    let ended = diff(directory.path(), "--partial-ok --format json base cut");
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["result"], "changed");
    assert_eq!(report["new"]["streams"][0]["incomplete_inputs"][0]["verdict"], "truncated");
    assert!(report["warnings"].to_string().contains("new: incomplete input: cut: truncated"));
}

#[test]
fn rejects_incomparable_streams_by_name() {
    let directory = directory();
    let mut cycles = Run::new(3, NEW);
    (cycles.event, cycles.unit, cycles.measure) = ("cycles", "cycles", "cycles");
    cycles.save(directory.path(), "cycles");
    let mut raw = Run::new(4, NEW);
    raw.symbolized = false;
    raw.save(directory.path(), "raw");
    for (line, message) in [
        ("base cycles", "base has cpu-clock (user), new has cycles (user)"),
        ("base raw", "raw: not symbolized, unlike other streams"),
        ("--event page-faults base new", "base: no samples of page-faults, only of cpu-clock"),
        (
            "--fail-on self>+5ms cycles cycles",
            "--fail-on self>+5ms: the event cycles (user) does not measure time",
        ),
        ("- -", "standard input (-) can be read only once"),
    ] {
        let ended = diff(directory.path(), line);
        assert_eq!((ended.status, &ended.stdout[..]), (2, ""), "{line}");
        assert!(ended.stderr.contains(message), "{}", ended.stderr);
    }
    // Images have names without symbolization.
    assert_eq!(diff(directory.path(), "--by image base raw").status, 0);
    let unnamed = diff(directory.path(), "--format tsv raw raw").stdout;
    assert_eq!(cell(&unnamed, "[unnamed in demo]", "total_base"), "100.0");
}

#[test]
fn too_few_samples_are_undecided() {
    let directory = directory();
    Run::new(3, &[("parse", 99)]).save(directory.path(), "few");
    Run::new(4, &[]).save(directory.path(), "none");
    Run::new(5, &[]).save(directory.path(), "nothing");
    let in_time = "--fail-on self>+5ms none nothing";
    for line in ["--fail-on any base few", "few base", "base none", in_time] {
        let ended = diff(directory.path(), line);
        assert_eq!(ended.status, 4, "{line}");
        assert!(ended.stderr.contains("not enough samples to decide"), "{}", ended.stderr);
        assert!(ended.stdout.contains("at least 100 are needed"), "{}", ended.stdout);
    }
    let ended = diff(directory.path(), "--format json base none");
    assert!(ended.stdout.contains("\"result\":\"undecided\""));
}

#[test]
fn tsv_csv_and_json_contain_every_row() {
    let directory = directory();
    let tsv = diff(directory.path(), "--format tsv base new").stdout;
    let csv = diff(directory.path(), "--format csv base new").stdout;
    let json = diff(directory.path(), "--format json base new").stdout;
    assert_eq!(tsv.lines().count(), 7);
    assert_eq!(tsv.replace('\t', ",").replace('\n', "\r\n"), csv);
    assert_eq!(cell(&tsv, "solve", "change"), "grown");
    assert_eq!(cell(&tsv, "write", "change"), "same");
    assert_eq!(cell(&tsv, "main", "self_base_samples"), "0");
    assert_eq!(cell(&tsv, "main", "total_new"), "100.0");
    assert_eq!(cell(&tsv, "fresh", "self_new_ns"), "60000000");
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["comparisons"], &report["method"]), (&6.into(), &"newcombe".into()));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        let columns: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(columns.join("\t"), tsv.lines().next().unwrap());
        let name = row["name"].as_str().unwrap();
        assert_eq!(row["self_low"].to_string(), cell(&tsv, name, "self_low"));
    }
    let by_name = diff(directory.path(), "--sort name --format tsv -n 2 base new").stdout;
    let names: Vec<&str> = by_name.lines().filter_map(|line| line.split('\t').nth(2)).collect();
    assert_eq!(names, ["name", "fresh", "main"]);
}

#[test]
fn escapes_names_in_reports() {
    let directory = TempDir::new().unwrap();
    let names = ["=cmd|' /C calc'!A0", "+1", "-x", "@sum", "a\\nb", "\\x1b[31m", "a,\"b\""];
    let functions: Vec<(&str, u64)> = names.iter().map(|name| (*name, 100)).collect();
    Run::new(1, &functions).save(directory.path(), "odd");
    Run::new(2, &[("plain", 700)]).save(directory.path(), "plain");
    let table = diff(directory.path(), "odd plain").stdout;
    assert!(table.contains("  a\\nb  (demo)\n") && table.contains("  \\x1b[31m  (demo)\n"));
    let csv = diff(directory.path(), "--format csv odd plain").stdout;
    for field in [",'=cmd|' /C calc'!A0,", ",'+1,", ",'-x,", ",'@sum,", ",\"a,\"\"b\"\"\","] {
        assert!(csv.contains(field), "{field} is not in {csv}");
    }
    assert!(csv.contains(",-14.285714,"), "numbers are numbers: {csv}");
}

#[test]
fn warns_about_different_hosts() {
    let directory = directory();
    let mut elsewhere = Run::new(3, NEW);
    elsewhere.host = "vm2";
    elsewhere.save(directory.path(), "elsewhere");
    let ended = diff(directory.path(), "base elsewhere");
    assert!(ended.stdout.contains("warning: hosts differ: base vm1; new vm2\n"));
    // Formats for programs leave the warnings to standard error.
    let ended = diff(directory.path(), "--format tsv base elsewhere");
    assert!(ended.stderr.contains("nprof-diff: warning: hosts differ"));
    assert!(!ended.stdout.contains("warning"));
}

#[test]
fn counts_lost_samples_of_the_recorded_processes() {
    let directory = directory();
    let losses = "L\t5\t1\t-\t0\t4\tring\tothers=9000\nL\t5\t0\t-\t0\t0\tring\trecords=60\n@end";
    let text = fs::read_to_string(directory.path().join("new")).unwrap();
    let records = text.split("\trecords=").nth(1).unwrap().split('\t').next().unwrap();
    // The two records of losses.
    let more = records.parse::<u64>().unwrap() + 2;
    let text = text.replace(&format!("records={records}"), &format!("records={more}"));
    let text = text.replace("@end", losses).replace("\tlost=0", "\tlost=4");
    fs::write(directory.path().join("losses"), text).unwrap();
    let printed = diff(directory.path(), "-v base losses").stdout;
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    let lost = "1104 samples, lost 4 (estimated; without 9000 of other processes), with";
    assert!(printed.contains(lost), "{printed}");
    let records = "warning: new: 60 records of processes and mappings were lost, so frames may be";
    assert!(printed.contains(records), "{printed}");
    assert!(!printed.contains("samples were lost"), "4 of 1104 are little: {printed}");
}

#[test]
fn warns_about_different_commands_order_and_failures() {
    let directory = TempDir::new().unwrap();
    for i in 0..2 {
        Run::new(1 + i, BASE).save(directory.path(), &format!("base{i}"));
        // Recorded an hour later, with another argument; the second one failed.
        let new = Run::new(11 + i, NEW).text();
        let new = new.replace("utc=1795254245", "utc=1795257845").replace("./demo 7", "new/demo 8");
        let new = new.replace("reason=exit", &format!("reason=exit\tstatus={i}"));
        fs::write(directory.path().join(format!("new{i}")), new).unwrap();
    }
    let printed =
        diff(directory.path(), "--base base0 base1 --new new0 new1").stdout.replace("\n  ", " ");
    for warning in [
        "warning: commands differ: base demo 7; new demo 8\n",
        "warning: all runs of one side were recorded before those of the other",
        "warning: new: 1 of 2 runs failed (exit status not 0), the first is new1\n",
    ] {
        assert!(printed.contains(warning), "{printed}");
    }
    let moved = fs::read_to_string(directory.path().join("base1")).unwrap();
    fs::write(directory.path().join("moved"), moved.replace("./demo", "old/demo")).unwrap();
    let printed = diff(directory.path(), "base0 moved").stdout;
    assert!(!printed.contains("commands differ"), "{printed}");
}

#[test]
fn rejects_time_bounds_on_different_processors() {
    let directory = directory();
    for (name, cpu) in [("base", "AMD"), ("new", "Intel")] {
        let path = directory.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replacen("\thost=", &format!("\tcpu={cpu}\thost="), 1)).unwrap();
    }
    for option in ["--fail-on self>+5ms", "--min-effect 5ms"] {
        let ended = diff(directory.path(), &format!("{option} base new"));
        assert_eq!((ended.status, &ended.stdout[..]), (2, ""));
        let printed = ": processors differ: base AMD; new Intel; CPU time is not comparable";
        assert!(ended.stderr.contains(printed), "{}", ended.stderr);
    }
    let ended = diff(directory.path(), "--fail-on self>+3% base new");
    assert_eq!(ended.status, 1);
    assert!(ended.stdout.contains("warning: processors differ: base AMD; new Intel\n"));
}

#[test]
fn usage_error_prints_nothing_on_standard_output() {
    let directory = directory();
    for line in
        ["", "base", "base new base", "--fail-on self base new", "--confidence 100 base new"]
    {
        let ended = diff_of_stdin(directory.path(), line, "");
        assert_eq!((ended.status, &ended.stdout[..]), (2, ""), "{line}");
    }
    let ended = diff(directory.path(), "-o out --format json base new");
    assert_eq!((ended.status, &ended.stdout[..]), (0, ""));
    assert!(fs::read_to_string(directory.path().join("out")).unwrap().starts_with('{'));
}

#[test]
fn joined_events_are_compared_as_one() {
    let directory = TempDir::new().expect("a directory");
    let save = |name: &str, run: u64, blocked_ms: u64| {
        let stream = String::from_utf8(nprof_tests::waits()).expect("text");
        let stream = stream.replace("run=0x2", &format!("run={run:#x}"));
        // Each of 20 waits on the first futex.
        let weight = format!("\t{}\t{}\tlasted=20000000", blocked_ms * 1_000_000, blocked_ms);
        let stream = stream.replace("\t20000000\t20\tlasted=20000000", &weight);
        fs::write(directory.path().join(name), stream).expect("a stream is written");
    };
    save("base", 1, 200);
    save("new", 2, 600);
    let wall = "--join cpu-clock,runnable,blocked=wall --event wall";
    let tsv = diff(directory.path(), &format!("{wall} --format tsv base new"));
    assert_eq!(tsv.status, 0, "{}", tsv.stderr);
    // 236 and 636 ms of both threads.
    assert_eq!(cell(&tsv.stdout, "crc", "self_base_samples"), "5");
    assert_eq!(cell(&tsv.stdout, "handle", "total_new_samples"), "608");
    let absent = diff(directory.path(), "--join cpu-clock,idle base new");
    assert_eq!(absent.status, 2);
    assert!(
        absent
            .stderr
            .contains("base: base: --join: no event \"idle\" in the input; it has cpu-clock"),
        "{}",
        absent.stderr
    );
}

#[test]
fn bounds_hold_for_waiting() {
    let directory = TempDir::new().expect("a directory");
    let mut line = [String::new(), String::new()];
    for run in 1..=6 {
        // Both sides compute the same; the new one waits longer in `lock`.
        let (side, lock) = if run <= 3 { ("base", 300) } else { ("new", 900) };
        let mut waits = Run::new(run, &[("parse", 600 + run), ("lock", lock + run)]);
        (waits.event, waits.measure) = ("blocked", "wait-time");
        waits.save(directory.path(), &format!("{side}{run}"));
        line[usize::from(run > 3)].push_str(&format!(" {side}{run}"));
    }
    let run = |options: &str| {
        let [base, new] = &line;
        diff(directory.path(), &format!("--event blocked {options} --base{base} --new{new}"))
    };
    let share = run("--fail-on total>+5%");
    assert_eq!(share.status, 1, "{}{}", share.stdout, share.stderr);
    assert!(share.stdout.contains("s of waiting a run"), "{}", share.stdout);
    assert!(run("--fail-on self>+100ms").stderr.contains("changed beyond self>+100ms"));
    assert_eq!(run("--fail-on self>+900ms").status, 0);
    assert!(run("-v").stdout.contains("waiting of a run: base 904 ms, new 1.51 s"));
}
