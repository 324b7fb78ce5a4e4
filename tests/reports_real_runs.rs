//! Reports on real recordings: all views agree with each other and with the stream, the last live
//! report equals the ordinary one, tables fit terminals of any size, and unusual names survive in
//! every format.

use std::collections::BTreeMap;

use nprof_tests::{Row, Shell, compile, find_program, have, python, repository, rows};

/// Returns a shell with a recording `x.nprof`, by two events, of the compiler building a part of the
/// demo program: deep stacks, recursion, several processes, template names.
fn record_compiler() -> Shell {
    record_compiler_by("-e cpu-clock -e page-faults:7")
}

/// Like [`record_compiler`], with other events.
fn record_compiler_by(events: &str) -> Shell {
    let shell = Shell::new();
    let source = repository().join("demo/query.cpp");
    let run = shell.run(&format!(
        "nprof-record -q {events} -o - -- \
         g++ -std=c++17 -O2 -c -o query.o {} | nprof-symbolize > x.nprof",
        source.display()
    ));
    assert_eq!(run.stages, [0, 0], "{run:?}");
    shell
}

/// Returns the sums of a column by event, function and image.
fn by_function<'a>(
    rows: impl Iterator<Item = &'a Row>,
    function: &str,
    column: &str,
) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let name = [row.text("event"), row.text(function), row.text("image")].join(" ");
        *sums.entry(name).or_default() += row.number(column) as u64;
    }
    sums.retain(|_, sum| *sum > 0);
    sums
}

#[test]
fn all_views_of_recording_agree() {
    let shell = record_compiler();
    let report = |command: &str| shell.run(&format!("{command} x.nprof")).quiet();
    let tsv = |command: &str| rows(&report(&format!("{command} --format tsv")));
    let flat = tsv("nprof-flat");
    let own = by_function(flat.iter(), "function", "self_samples");

    // Self samples sum to the stream's total, and total samples never exceed it.
    let stat = report("nprof-format text").lines().filter(|line| line.starts_with("S\t")).count();
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    for row in &flat {
        *totals.entry(row.text("event").to_owned()).or_default() +=
            row.number("self_samples") as u64;
    }
    assert_eq!(totals.values().sum::<u64>(), stat as u64);
    // The recording has two events, which no report adds up.
    assert_eq!(totals.len(), 2, "{totals:?}");
    assert!(flat.iter().all(|row| row.number("total_samples") as u64 <= totals[row.text("event")]));

    let paths = tsv("nprof-paths");
    assert_eq!(by_function(paths.iter(), "leaf", "samples"), own);
    let tree = tsv("nprof-paths --view tree");
    assert_eq!(by_function(tree.iter(), "function", "self_samples"), own);
    let callers = tsv("nprof-paths --view callers");
    let roots = callers.iter().filter(|row| row.text("depth") == "0");
    assert_eq!(by_function(roots, "function", "total_samples"), own);
    let graph = tsv("nprof-paths --view graph");
    let parts = graph.iter().filter(|row| match row.text("kind") {
        "function" => !row.text("function").starts_with("cycle "),
        kind => kind == "member",
    });
    assert_eq!(by_function(parts, "function", "self_samples"), own);
    for (event, total) in totals {
        let folded = report(&format!("nprof-paths --format folded --event {event}"));
        let count =
            |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
        assert_eq!(folded.lines().filter_map(count).sum::<u64>(), total, "{event}");
    }
}

#[test]
fn last_live_report_equals_ordinary_report() {
    let shell = Shell::new();
    // The command runs until its own name appears in a report.
    let run = shell.run(
        "mkfifo go
         nprof-record -q -o - -- perl -e 'open F, \"+<go\"; vec($r, fileno F, 1) = 1;
             1 until select $x = $r, undef, undef, 0' |
         nprof-symbolize | tee x.nprof | nprof-flat --by image --format tsv --every 20ms |
         { grep -m1 perl > go; cat > rest; }",
    );
    assert_eq!(run.stages, [0, 0, 0, 0, 0], "{run:?}");
    let rest = String::from_utf8_lossy(&shell.read("rest")).into_owned();
    let whole = shell.run("nprof-flat --by image --format tsv x.nprof").quiet();
    assert!(rest.ends_with(&whole), "{rest}\n{whole}");
    // The output file is replaced each time: a reader that has it open keeps the old content.
    shell.write("out", "before");
    shell.run("exec 3<out; nprof-flat --by image --every 1us -o out x.nprof; cat <&3 >old").quiet();
    let once = shell.run("nprof-flat --by image x.nprof").quiet();
    assert_eq!(String::from_utf8_lossy(&shell.read("out")), once);
    assert_eq!(shell.read("old"), b"before");
}

/// Runs a report on a terminal of a size, checks that its table fits, and returns the output.
fn assert_fits(shell: &Shell, report: &str, size: &str, width: usize) -> String {
    let run =
        shell.run(&format!("script -qec 'stty {size}; {report} x.nprof' /dev/null < /dev/null"));
    let text = run.quiet().replace('\r', "");
    // The lines above the table may be longer than the terminal is wide.
    let table = text.lines().skip_while(|line| !line.is_empty()).skip(1);
    assert!(table.clone().count() > 5, "{report}: {text}");
    for line in table {
        assert!(line.chars().count() <= width, "{report}, {size}: {line}");
    }
    text
}

#[test]
fn tables_fit_terminals_of_any_size() {
    if !have(&["script", "stty"]) {
        return;
    }
    let shell = record_compiler();
    for (size, width) in [("cols 0 rows 0", 80), ("cols 100 rows 0", 100), ("cols 80 rows 5", 80)] {
        for report in [
            "nprof-flat -n 30",
            "nprof-flat --by thread,function -n 30",
            "nprof-paths -n 3",
            "nprof-paths --view graph -n 9",
            "nprof-paths --view callers --min-percent 4",
        ] {
            let text = assert_fits(&shell, report, size, width);
            assert!(
                text.contains("self %") || text.contains("share %") || text.contains("samples,"),
                "{text}"
            );
        }
    }
    let live = shell.run(
        "script -qec 'stty cols 80 rows 6; nprof-flat --every 1us x.nprof' /dev/null < /dev/null",
    );
    let text = live.quiet();
    // Cursor home and erase to the end of the screen precede each report.
    let reports: Vec<&str> = text.split("\x1b[H\x1b[J").collect();
    assert!(reports.len() > 2, "the report is repainted in place: {text}");
    let (last, before) = reports[1..].split_last().expect("reports");
    // Live reports fit the 6 rows of the terminal; the last one is complete.
    assert!(before.iter().all(|report| report.lines().count() <= 5), "{text}");
    assert!(last.lines().count() > 5, "{text}");
}

#[test]
fn shows_as_many_events_as_fit_terminal() {
    if !have(&["script", "stty"]) {
        return;
    }
    let events = ["cpu-clock", "page-faults", "task-clock", "minor-faults"];
    let shell = record_compiler_by("-e cpu-clock -e page-faults:7 -e task-clock -e minor-faults:7");
    for keys in [
        "function",
        "image,function",
        "thread,function",
        "line",
        "process,thread,cpu,image,function,line",
    ] {
        let text =
            assert_fits(&shell, &format!("nprof-flat --by {keys} -n 20"), "cols 80 rows 0", 80);
        let head = text.lines().find(|line| line.starts_with("self %")).expect("a head");
        let said = text.split("no room for ").nth(1).expect("a line about events without room");
        let left_out = events.iter().filter(|event| said.contains(*event)).count();
        // Each event has columns in the table or is named in the line below it.
        assert_eq!(head.matches("self %").count(), events.len() - left_out, "{text}");
        assert!(left_out < events.len(), "{text}");
    }
    let wide = assert_fits(&shell, "nprof-flat -n 20", "cols 200 rows 0", 200);
    assert!(!wide.contains("no room for") && wide.contains("samples  self %"), "{wide}");
    for view in ["paths", "tree", "callers", "graph"] {
        assert_fits(&shell, &format!("nprof-paths --view {view}"), "cols 80 rows 0", 80);
    }
}

/// Compiles a program with separators, quotes and control characters in the names of its thread
/// and its function.
fn compile_with_unusual_names(shell: &Shell) {
    let source = shell.write(
        "odd.cpp",
        "#include <sys/prctl.h>\n\
         extern \"C\" __attribute__((noinline)) void work() {\n\
         for (volatile long i = 0; i < 100000000; i = i + 1) {} }\n\
         int main() { prctl(PR_SET_NAME, \"a;b (c) [d] 1\"); work(); }\n",
    );
    compile(&[&source], &["-g0"], &shell.path("odd"));
    let rename = "objcopy --redefine-sym work=$'=w\\n\\e[31m,;\"<&> 12' odd odd2";
    shell.run(rename).quiet();
}

#[test]
fn unusual_names_survive_in_every_format() {
    let shell = Shell::new();
    compile_with_unusual_names(&shell);
    shell.run("nprof-record -q -o - -- ./odd2 | nprof-symbolize > x.nprof").quiet();
    let report = |command: &str| shell.run(&format!("{command} x.nprof")).quiet();
    let name = "=w\\n\\x1b[31m,;\"<&> 12";

    let flat = report("nprof-flat --by thread,function --format csv");
    let program = "import csv, sys
for row in csv.DictReader(sys.stdin):
    if row['function'].startswith(\"'=w\"): print(row['thread'].split(' ', 1)[1], row['function'])";
    if let Some(said) = python(program, flat.as_bytes()) {
        assert_eq!(said, format!("a;b (c) [d] 1 '{name}\n"));
    }
    let json = report("nprof-paths --format json");
    let program = "import json, sys; print(json.load(sys.stdin)['paths'][0]['path'][-1])";
    if let Some(said) = python(program, json.as_bytes()) {
        assert_eq!(said, format!("{name}\n"));
    }
    if find_program("jq").is_some() {
        let said = shell.run("nprof-flat --format json x.nprof | jq -r '.rows[0].function'");
        assert_eq!(said.out, format!("{name}\n"));
    }
    let tsv = rows(&report("nprof-flat --by command,function --format tsv"));
    assert!(
        tsv.iter()
            .any(|row| row.text("command") == "a;b (c) [d] 1" && row.text("function") == name)
    );

    let folded = report("nprof-paths --format folded");
    let leaf = name.replace(';', "\\x3b").replace(" 12", "\\x2012");
    let ends = |line: &&str| {
        line.rsplit_once(' ').is_some_and(|(stack, _)| stack.rsplit(';').next() == Some(&leaf))
    };
    let line = folded.lines().find(ends).expect(&folded);
    assert!(line.starts_with("a\\x3bb (c) [d] 1;"), "{line}");
    let svg = report("nprof-paths --format flamegraph");
    let program = "import sys, xml.etree.ElementTree as t
for title in t.parse(sys.stdin.buffer).iter('{http://www.w3.org/2000/svg}title'):
    if title.text and title.text.startswith('=w'): print(title.text.rsplit(' (', 1)[0])";
    if let Some(said) = python(program, svg.as_bytes()) {
        assert!(said.lines().any(|name| name == leaf), "{said}");
    }
    // No control character reaches the terminal.
    for report_of in ["nprof-flat", "nprof-paths", "nprof-paths --view graph"] {
        let table = report(report_of);
        assert!(table.contains(name) && !table.contains('\x1b'), "{table}");
    }
}
