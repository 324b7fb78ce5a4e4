//! The output, messages and exit status of nprof-flat.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use nprof_tests::{ODD_NAME, Report, heap, odd_names, python, waits};

fn flat() -> Report {
    Report::new("nprof-flat", env!("CARGO_BIN_EXE_nprof-flat"))
}

fn stdout(args: &[&str]) -> String {
    flat().stdout(args, &odd_names())
}

#[test]
fn follows_the_conventions_of_reports() {
    flat().check_conventions(&["table", "tsv", "csv", "json"]);
}

#[test]
fn names_the_wrong_option() {
    let refusal = |args: &[&str]| flat().refusal(args, &odd_names());
    assert!(refusal(&["--by", "colour"]).contains("unknown key \"colour\"; the keys are event"));
    assert!(refusal(&["--by", "slice"]).contains("slice=1s"));
    assert!(
        refusal(&["--sort", "size"])
            .contains("invalid value 'size' for '--sort <ORDER>' [possible values: self, total")
    );
    assert!(refusal(&["--frobnicate"]).contains("unexpected argument '--frobnicate' found"));
}

#[test]
fn events_are_side_by_side() {
    let table = stdout(&["-n", "1"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("command: prog\\n</title>"));
    let head = lines.iter().position(|line| line.starts_with("self %")).unwrap();
    assert!(lines[head - 1].contains("cpu-clock") && lines[head - 1].contains("faults"));
    // In the first event g has less: a third.
    assert!(lines[head + 1].starts_with(" 66.67") && lines[head + 1].contains(ODD_NAME), "{table}");
    // Of cpu-clock, the rows not shown have one of three samples; the only fault is in g.
    let last = "2 rows not shown, 33.33 %, 100.00 % of self (-n 0 prints all)";
    assert_eq!(lines.last(), Some(&last), "{table}");
    // The largest row of each event.
    let each = stdout(&["--by", "event,function", "-n", "1"]);
    assert!(each.contains(" g  ") && each.contains(ODD_NAME) && !each.contains("main"), "{each}");
    let by_total = stdout(&["--sort", "total", "-n", "1"]);
    let row = by_total.lines().find(|line| line.contains(" main ")).expect(&by_total);
    assert!(row.starts_with("  0.00 ") && row.contains(" 100.00 "), "{by_total}");
}

#[test]
fn one_event_has_margins_and_weights() {
    let table = stdout(&["--match", "event=cpu", "--rebase"]);
    let row = table.lines().find(|line| line.contains(ODD_NAME)).unwrap();
    assert!(row.contains("66.67 "), "{table}");
    assert!(
        table.contains(
            "counted: 3 of 3 samples of cpu-clock, 100.00 %; none of faults (--match event=cpu)"
        ),
        "{table}"
    );
}

#[test]
fn tsv_has_the_documented_columns() {
    let tsv = stdout(&["--format", "tsv"]);
    let mut lines = tsv.lines();
    assert_eq!(
        lines.next(),
        Some(
            "event\tfunction\timage\tself_samples\ttotal_samples\tself\ttotal\tself_percent\t\
             self_margin\ttotal_percent\ttotal_margin"
        )
    );
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 5);
    let names: Vec<&[&str]> = rows.iter().map(|row| &row[..2]).collect();
    let clock = "cpu-clock";
    assert_eq!(
        names,
        [[clock, ODD_NAME], [clock, "g"], ["faults", "g"], [clock, "main"], ["faults", "main"]]
    );
    // Two samples of 1 ms each, in the function itself.
    assert_eq!(rows[0][3..7], ["2", "2", "2000000", "2000000"]);
    let of_clock = rows.iter().filter(|row| row[0] == clock);
    let shares: f64 = of_clock.map(|row| row[7].parse::<f64>().unwrap()).sum();
    assert!((shares - 100.0).abs() < 1e-9);
}

#[test]
fn python_reads_csv_and_json() {
    let csv = stdout(&["--format", "csv"]);
    let program = "import csv,sys; print(list(csv.DictReader(sys.stdin))[0]['function'], end='')";
    if let Some(name) = python(program, csv.as_bytes()) {
        assert_eq!(name, format!("'{ODD_NAME}"));
    }
    let json = stdout(&["--format", "json"]);
    let program = "import json,sys; print(json.load(sys.stdin)['rows'][0]['function'], end='')";
    if let Some(name) = python(program, json.as_bytes()) {
        assert_eq!(name, ODD_NAME);
    }
}

#[test]
fn json_has_the_facts_of_the_heading() {
    let json = stdout(&["--format", "json", "--confidence", "99", "--match", "function=[^g]"]);
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(object["complete"], true);
    assert_eq!(object["live"], false);
    assert_eq!(object["confidence"], 99.0);
    assert_eq!(object["events"][1]["event"], "faults");
    assert_eq!(object["filters"], serde_json::json!(["--match function=[^g]"]));
    assert_eq!(object["uncounted_rows"], 1);
    assert_eq!(object["wholes"][0]["samples"], 3);
    assert_eq!(object["rows"].as_array().unwrap().len(), 3);
    assert_eq!(object["rows"][0]["function"], ODD_NAME);
    assert_eq!(object["rows"][0]["self"], 2_000_000);
    assert_eq!(object["rows"][1]["mean_total_percent"], 100.0);
}

#[test]
fn merges_files_and_standard_input() {
    let directory = tempfile::TempDir::new().unwrap();
    let one = directory.path().join("one");
    std::fs::write(&one, odd_names()).unwrap();
    // The same stream twice: every sum doubles.
    let merged = stdout(&["--format", "tsv", one.to_str().unwrap(), "-"]);
    assert!(merged.contains("\tprog\t4\t4\t4000000\t"));
    let cat = [odd_names(), odd_names()].concat();
    assert_eq!(merged, flat().stdout(&["--format", "tsv"], &cat));
    // Concatenated streams are separate runs.
    let runs = flat().stdout(&["--format", "tsv", "--by", "run"], &cat);
    assert!(runs.contains("cpu-clock\t1 prog\\n</title>\t3\t3\t3000000"), "{runs}");
    assert!(runs.contains("cpu-clock\t2 prog\\n</title>\t3\t3\t3000000"), "{runs}");
}

#[test]
fn match_without_result_lists_similar_names() {
    let run = flat().run(&["--match", "function=^mian$"], &odd_names());
    let message = String::from_utf8(run.stderr).unwrap();
    assert_eq!(
        message,
        "nprof-flat: --match function=^mian$ matches nothing; similar names: main\n"
    );
}

#[test]
fn keys_combine() {
    let tsv = stdout(&["--format", "tsv", "--by", "thread,cpu,slice=1ns"]);
    assert!(tsv.contains("cpu-clock\t7/7 a;b (c) [d] 1\t0\t0.000000002\t1\t1\t"), "{tsv}");
}

#[test]
fn omitted_rows_are_counted_below_the_table() {
    let clock = ["--match", "event=cpu"];
    let table = stdout(&[&clock[..], &["--match", "function=[^g]"]].concat());
    assert!(
        table.ends_with("1 row not counted, 33.33 % of self (--match function=[^g])\n"),
        "{table}"
    );
    // Its sample is gone, also from the total of main.
    let table = stdout(&[&clock[..], &["--exclude", "function=^g$"]].concat());
    let counted =
        "2 of 3 samples of cpu-clock, 66.67 %; none of faults (--match event=cpu --exclude";
    assert!(table.contains(counted) && !table.contains("not counted"), "{table}");
    assert!(
        table.lines().any(|line| line.starts_with("  0.00") && line.contains("66.67")),
        "{table}"
    );
    // The samples are at 0, 1 and 2 ns of their run.
    let table = stdout(&["--time", "1ns..3ns"]);
    assert!(
        table.contains("counted: 2 of 3 samples of cpu-clock, 66.67 %; ")
            && table.contains(" (--time 0.000000001s..0.000000003s)"),
        "{table}"
    );
    let json =
        stdout(&["--time", "0s..2ns", "--match", "event=cpu", "--rebase", "--format", "json"]);
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&object["rows"][0]["self_percent"], &object["rows"][0]["function"]),
        (&100.0.into(), &ODD_NAME.into())
    );
    // A program has few threads: their names help.
    let names = "nprof-flat: --match thread=no such matches nothing; there are 7/7 a;b (c) [d] 1\n";
    for (rule, message) in [("thread=no such", names), ("function=nothing", "")] {
        let output = flat().run(&["--match", rule], &odd_names());
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(table.ends_with(&format!("\nnothing is counted (--match {rule})\n")), "{table}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), message);
    }
}

/// Returns the value of a column in the row of this event and first key.
fn cell<'a>(tsv: &'a str, event: &str, key: &str, column: &str) -> &'a str {
    let mut rows = tsv.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let names = rows.next().expect("a header");
    let at = names.iter().position(|name| *name == column).expect("the column");
    rows.find(|row| row[0] == event && row[1] == key).expect(tsv)[at]
}

const WALL: &str = "cpu-clock,runnable,blocked=wall";

#[test]
fn joined_events_are_one() {
    let run = |args: &[&str]| flat().stdout(&[&["--join", WALL][..], args].concat(), &waits());
    let functions = run(&["--format", "tsv"]);
    // 4 ms on a CPU and 1 ms without one, of 56 ms.
    assert_eq!(cell(&functions, "wall", "crc", "self"), "5000000");
    assert_eq!(cell(&functions, "wall", "handle", "total"), "28000000");
    assert_eq!(cell(&functions, "wall", "handle", "total_percent"), "50.0");
    assert!(!functions.contains("blocked") && functions.contains("calls\thandle"));
    let threads = run(&["--by", "thread", "--format", "tsv"]);
    assert_eq!(cell(&threads, "wall", "7/7 worker", "self"), "28000000");
    assert_eq!(cell(&threads, "wall", "7/8 idle", "self"), "28000000");
    // Each millisecond is a sample of equal weight: the margin is that of 28 of 56.
    let margin: f64 = cell(&threads, "wall", "7/8 idle", "self_margin").parse().unwrap();
    assert!((margin - 12.67).abs() < 0.01, "{margin}");
    let table = run(&["--exclude", "function=^(loop|epoll_wait|ep_poll)$", "--rebase"]);
    assert!(
        table.contains("samples: 56 of wall = cpu-clock + runnable + blocked every 1000000 ns"),
        "{table}"
    );
    assert!(table.lines().any(|line| line.starts_with(" 75.00") && line.contains("futex_do_wait")));
    // That of an event that was added into another one is unknown.
    let threads = "threads: wall 0.056 s = cpu 0.006 + runnable 0.001 + blocked 0.049; coverage: ";
    assert!(table.contains(&format!("{threads}wall 100.0 %, cpu 100.0 %\n")), "{table}");
    let separate = flat().stdout(&[], &waits());
    let all = format!("{threads}cpu 100.0 %, runnable 100.0 %, blocked 100.0 %\n");
    assert!(separate.contains(&all), "{separate}");
    let json = run(&["--format", "json"]);
    assert!(json.contains(r#""threads":{"wall_ns":56000000,"cpu_ns":6000000"#), "{json}");
    assert!(json.contains(r#""joined":["cpu-clock","runnable","blocked"]"#), "{json}");
}

#[test]
fn heading_names_the_windows_of_an_event() {
    let text = String::from_utf8(waits()).expect("a text stream");
    let windows = text.replacen("name=blocked", "name=blocked\tduty=10000000/100000000", 1);
    assert_ne!(text, windows);
    let table = flat().stdout(&[], windows.as_bytes());
    assert!(
        table.contains("of blocked every 1000000 ns, in windows of 10 ms in each 100 ms"),
        "{table}"
    );
    let joined = flat().stdout(&["--join", WALL], windows.as_bytes());
    assert!(joined.contains("every 1000000 ns, in windows of 10 ms in each 100 ms"), "{joined}");
    let json = flat().stdout(&["--format", "json"], windows.as_bytes());
    assert!(json.contains(r#""duty":"10000000/100000000""#), "{json}");
    let unknown = windows.replace("duty=10000000/100000000", "duty=often");
    let table = flat().stdout(&[], unknown.as_bytes());
    assert!(table.contains("every 1000000 ns, in windows of often"), "{table}");
}

#[test]
fn join_needs_recorded_events_of_one_unit() {
    let refusal = |args: &[&str]| flat().refusal(args, &waits());
    let absent = refusal(&["--join", "cpu-clock,idle"]);
    assert!(
        absent.contains("no event \"idle\" in the input; it has cpu-clock, runnable"),
        "{absent}"
    );
    let units = refusal(&["--join", "blocked,calls"]);
    assert!(units.contains("blocked and calls cannot be added: their units are ns and count"));
    assert!(refusal(&["--join", "cpu-clock,blocked=calls"]).contains("another name"));
    assert!(refusal(&["--join", "blocked"]).contains("expected two or more events"));
    let twice = refusal(&["--join", "cpu-clock,blocked", "--join", "blocked,runnable"]);
    assert!(twice.contains("blocked is in cpu-clock+blocked and in"), "{twice}");
}

#[test]
fn waits_are_grouped_by_system_call_and_object() {
    let run = |args: &[&str]| {
        flat().stdout(&[args, &["--match", "event=blocked", "--format", "tsv"]].concat(), &waits())
    };
    let calls = run(&["--by", "call"]);
    assert_eq!(cell(&calls, "blocked", "futex", "self"), "21000000");
    assert_eq!(cell(&calls, "blocked", "epoll_wait", "self"), "28000000");
    let objects = run(&["--by", "on,call", "--match", "call=futex"]);
    assert_eq!(cell(&objects, "blocked", "futex:0x7f00", "self"), "20000000");
    assert_eq!(cell(&objects, "blocked", "futex:0x7f08", "self"), "1000000");
    assert!(!objects.contains("epoll_wait"), "{objects}");
    // A name of the stream is escaped like others.
    assert!(run(&["--by", "on"]).contains("blocked\tfd:5=a\\tb\t"));
    let all = flat().stdout(&["--by", "state", "--format", "tsv"], &waits());
    assert_eq!(cell(&all, "blocked", "S", "self_samples"), "49");
    assert_eq!(cell(&all, "cpu-clock", "-", "self_samples"), "6");
}

#[test]
fn events_are_divided_by_another_one() {
    let run = |args: &[&str]| {
        let per = ["--join", WALL, "--per", "calls", "--match", "event=wall"];
        flat().stdout(&[&per[..], args].concat(), &waits())
    };
    let tsv = run(&["--format", "tsv"]);
    // 28 ms of handle and its callees in 10 calls, 5 ms of crc in 5.
    assert_eq!(cell(&tsv, "wall", "handle", "total_per"), "10");
    assert_eq!(cell(&tsv, "wall", "handle", "total_ratio"), "2800000.0");
    assert_eq!(cell(&tsv, "wall", "handle", "self_ratio"), "200000.0");
    assert_eq!(cell(&tsv, "wall", "crc", "total_ratio"), "1000000.0");
    // 28 samples and 10 calls: exp(1.96 sqrt(1/28 + 1/10)) - 1.
    let margin: f64 = cell(&tsv, "wall", "handle", "total_ratio_margin").parse().unwrap();
    assert!((margin / 2_800_000.0 - 1.0590).abs() < 0.001, "{margin}");
    // No call of ep_poll was counted, and calls are no row of their own.
    assert_eq!(cell(&tsv, "wall", "ep_poll", "total_ratio"), "");
    assert!(!tsv.contains("\ncalls\t"), "{tsv}");
    let table = run(&[]);
    assert!(table.contains("total is divided by the calls of the row (--per calls)"), "{table}");
    let row = table.lines().find(|line| line.contains(" handle ")).unwrap();
    let numbers: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(numbers[..4], ["28.00", "10", "2.800", "2.964"], "{table}");
    // Time is divided by total time: waiting per CPU second.
    let per_cpu = ["--per", "cpu-clock", "--match", "event=blocked", "--format", "tsv"];
    let per_cpu = flat().stdout(&per_cpu, &waits());
    assert_eq!(cell(&per_cpu, "blocked", "main", "total_ratio"), "3.5");
    let refusal = flat().refusal(&["--per", "bytes"], &waits());
    assert!(
        refusal.contains("--per: no event \"bytes\" in the input; it has cpu-clock"),
        "{refusal}"
    );
}

#[test]
fn blocks_of_memory_have_number_size_and_age() {
    let run = |args: &[&str]| flat().stdout(args, &heap());
    let tsv = run(&["--format", "tsv"]);
    // 128 blocks of 64 bytes, one of 1 MiB, one of 64 KiB and 128 of 32 bytes.
    assert_eq!(cell(&tsv, "heap.alloc", "parse", "self_blocks"), "128");
    assert_eq!(cell(&tsv, "heap.alloc", "parse", "self_mean_size"), "64.0");
    assert_eq!(cell(&tsv, "heap.alloc", "main", "total_blocks"), "258");
    assert_eq!(cell(&tsv, "heap.alloc", "main", "self_blocks"), "0");
    assert_eq!(cell(&tsv, "heap.alloc", "main", "total_max"), "1048576");
    assert_eq!(cell(&tsv, "heap.alloc", "cache", "self_max"), "65536");
    assert_eq!(cell(&tsv, "heap.alloc", "cache", "self_mean_age_ns"), "");
    assert_eq!(cell(&tsv, "heap.free", "grow", "self_mean_age_ns"), "2000000.0");
    assert_eq!(cell(&tsv, "heap.live", "cache", "self_blocks"), "129");
    assert_eq!(cell(&tsv, "fd.open", "open_log", "self_blocks"), "");
    let table = run(&["--match", "event=heap.alloc", "--sort", "max"]);
    let row = |function: &str| {
        let row = table.lines().find(|line| line.contains(function)).expect(&table);
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert!(row(" cache ").contains(" 68.00 129 540 B 64.0 KiB - cache parser"), "{table}");
    assert!(row(" parse ").contains(" 8.00 128 64 B 64 B - parse parser"), "{table}");
    let order = [" grow ", " cache ", " parse "].map(|name| table.find(name));
    assert!(order.is_sorted() && table.contains("self KiB"), "{table}");
    // Blocks that lived for less than a millisecond.
    let temporary = ["--match", "event=heap.free", "--age", "..1ms", "--format", "tsv"];
    let temporary = run(&temporary);
    assert_eq!(cell(&temporary, "heap.free", "main", "total_blocks"), "128");
    assert!(!temporary.contains("grow"), "{temporary}");
    let free = run(&["--match", "event=heap.free"]);
    assert!(free.contains(" 64 B      64 B   20.0 µs  parse "), "{free}");
    // No column in reports of other events.
    for columns in [run(&["--match", "event=fd", "--format", "tsv"]), stdout(&["--format", "tsv"])]
    {
        assert!(!columns.contains("blocks"), "{columns}");
    }
    let files = run(&["--match", "event=fd.live", "--by", "on,function", "--format", "tsv"]);
    assert!(files.contains("fd.live\tfd:4=/var/log/b\topen_log\t"), "{files}");
}

#[test]
fn pipe_has_room_for_events_of_which_some_are_bytes() {
    let table = flat().stdout(&["-n", "0"], &heap());
    assert!(table.contains("heap.alloc") && table.contains("fd.open"), "{table}");
    assert!(!table.contains("no room for"), "{table}");
}
