//! The files of each format have the samples of the stream, and programs that read them show these.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::process::Command;

use nprof_tests::{ODD_NAME, Report, have, odd_names, python, waits};
use serde_json::Value;

fn tool() -> Report {
    Report::new("nprof-export", env!("CARGO_BIN_EXE_nprof-export"))
}

/// Returns the file in a format. Exactly one line states its limits.
#[track_caller]
fn export(format: &str, stream: &[u8]) -> Vec<u8> {
    let output = tool().run(&["--to", format], stream);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("nprof-export: not in the file: "), "{message}");
    output.stdout
}

fn json(format: &str, stream: &[u8]) -> Value {
    serde_json::from_slice(&export(format, stream)).unwrap()
}

/// Prints the facts of a pprof file: sample types, mappings, and self and total of each function for each
/// type, with a decoder of its own.
const DECODE: &str = r#"
import gzip, sys
data = gzip.decompress(sys.stdin.buffer.read())
def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]; at += 1
        value |= (byte & 127) << shift; shift += 7
        if byte < 128: return value, at
def fields(data):
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0: value, at = varint(data, at)
        else:
            assert tag & 7 == 2
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        yield tag >> 3, value
def one(data, number): return next((v for n, v in fields(data) if n == number), 0)
def every(data, number): return [v for n, v in fields(data) if n == number]
def packed(data, number):
    out = []
    for v in every(data, number):
        if isinstance(v, int): out.append(v); continue
        at = 0
        while at < len(v):
            value, at = varint(v, at); out.append(value)
    return out
strings = [s.decode() for s in every(data, 6)]
assert strings[0] == "" and len(set(strings)) == len(strings)
assert not any(ord(c) < 32 for s in strings for c in s)
types = [(strings[one(t, 1)], strings[one(t, 2)]) for t in every(data, 1)]
print("types", *("/".join(t) for t in types))
print("default", strings[one(data, 14)], "period", one(data, 12))
ends = []
for m in every(data, 3):
    print("mapping", strings[one(m, 5)], [one(m, n) for n in (7, 8, 9, 10)])
    print("mapped", strings[one(m, 5)], hex(one(m, 2)), hex(one(m, 3)), hex(one(m, 4)))
    ends.append((one(m, 1), one(m, 2), one(m, 3)))
ranges = sorted((start, limit) for _, start, limit in ends)
assert all(limit <= start for (_, limit), (start, _) in zip(ranges, ranges[1:])), ranges
functions = {one(f, 1): strings[one(f, 2)] for f in every(data, 5)}
for f in every(data, 5):
    if one(f, 5): print("begins", strings[one(f, 2)], one(f, 5))
locations = {}
for l in every(data, 4):
    mapping = one(l, 2)
    if mapping:
        start, limit = next((s, e) for i, s, e in ends if i == mapping)
        assert start <= one(l, 3) < limit, (start, one(l, 3), limit)
    locations[one(l, 1)] = [functions[one(line, 1)] for line in every(l, 4)]
sums = {}
for s in every(data, 2):
    values = packed(s, 2)
    assert len(values) == len(types)
    calls = [c for l in packed(s, 1) for c in locations[l]]
    for i, value in enumerate(values):
        for name in set(calls): sums.setdefault((name, i), [0, 0])[1] += value
        if calls: sums.setdefault((calls[0], i), [0, 0])[0] += value
    for label in every(s, 3):
        key = strings[one(label, 1)]
        print("label", key, strings[one(label, 2)] if key == "comm" else one(label, 3))
for (name, i), (own, total) in sorted(sums.items()):
    if total: print("sum", types[i][0], own, total, name)
"#;

#[test]
fn pprof_has_a_pair_of_values_for_each_event() {
    let Some(facts) = python(DECODE, &export("pprof", &waits())) else { return };
    let has = |line: &str| assert!(facts.lines().any(|other| other == line), "{line}: {facts}");
    has("types cpu-clock_samples/count cpu-clock/nanoseconds runnable_samples/count \
         runnable/nanoseconds blocked_samples/count blocked/nanoseconds calls_samples/count calls/count");
    // The image of the command is first, though the kernel may be seen before it.
    assert!(facts.contains("mapping /bin/server"), "{facts}");
    for line in [
        "sum cpu-clock 4000000 4000000 crc",
        "sum cpu-clock 2000000 6000000 handle",
        "sum cpu-clock_samples 0 6 main",
        "sum blocked 21000000 21000000 futex_do_wait",
        "sum blocked_samples 28 28 ep_poll",
        "sum runnable 1000000 1000000 crc",
        "label pid 7",
        "label tid 8",
        "label comm idle",
    ] {
        has(line);
    }
}

/// Two functions of a program with two executable segments that share a page of the file, and one of a library of which no segment is known.
const SEGMENTS: &str = "@nprof\t1.1\trun=0x1\tclock=monotonic\tcommand=pid 7\n\
    @event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\nT\t1\t0\t7\t7\t0\ta\texe=/lib/ld.so\n\
    I\t1\telf\t-\t/lib/x.so\nF\t1\t1\t0x5000\tu\n\
    I\t2\telf\t0a\t/lib/ld.so\tload=0x0:0x400000:0x20:r,0x1010:0x401010:0x2000:x,0x3800:0x500800:0x10:x\n\
    F\t2\t2\t0x1020\tu\nF\t3\t2\t0x3808\tu\n\
    D\t1\t/a.c\nU\t1\tf\t-\tline=12\nU\t2\tg\t-\tline=30\nY\t2\tnamed\t1,1,14,0\nY\t3\tnamed\t2,1,31,0\n\
    N\t1\t0\t2\t3\nN\t3\t0\t1\nS\t10\t1\t1\t0\t2\t5\t1\nS\t11\t1\t1\t0\t3\t5\t1\n\
    @end\tsamples=2\trecords=11\tlost=0\n";

#[test]
fn segments_with_samples_are_mappings_and_functions_have_their_first_lines() {
    let Some(facts) = python(DECODE, &export("pprof", SEGMENTS.as_bytes())) else { return };
    let of = |word: &str| -> Vec<&str> {
        facts.lines().filter_map(|line| line.strip_prefix(word)).collect()
    };
    // The attached process executes the loader, which has the addresses at which it is linked.
    let mapped = [
        "/lib/ld.so 0x401000 0x404000 0x1000",
        "/lib/ld.so 0x500000 0x501000 0x3000",
        "/lib/x.so 0x600000 0x601000 0x5000",
    ];
    assert_eq!(of("mapped "), mapped, "{facts}");
    assert_eq!(of("begins "), ["f 12", "g 30"], "{facts}");
    // Segments that overlap where they are linked, or are not in the memory of programs.
    for address in ["0x403000", "0x10", "0xfffffffffffff800"] {
        let hostile = SEGMENTS.replace("0x3800:0x500800", &format!("0x3800:{address}"));
        python(DECODE, &export("pprof", hostile.as_bytes()));
    }
    let file = json("firefox", SEGMENTS.as_bytes());
    let shared = &file["shared"];
    // From the first loaded byte; -1 is unknown.
    assert_eq!(shared["frameTable"]["address"], serde_json::json!([0x1020, 0x10_0808, -1]));
    assert_eq!(shared["funcTable"]["lineNumber"], serde_json::json!([12, 30, null]));
    let file = String::from_utf8(export("callgrind", SEGMENTS.as_bytes())).unwrap();
    assert!(file.contains("cfn=(2) g\ncalls=1 30\n14 1 5\n"), "{file}");
}

#[test]
fn pprof_of_one_event_is_called_cpu() {
    let stream = String::from_utf8(odd_names()).unwrap();
    let without = |line: &&str| !line.contains("faults") && !line.starts_with("S\t4\t");
    let stream: Vec<&str> = stream.lines().filter(without).collect();
    let stream = stream.join("\n").replace("samples=4\trecords=13", "samples=3\trecords=11") + "\n";
    let Some(facts) = python(DECODE, &export("pprof", stream.as_bytes())) else { return };
    assert!(facts.starts_with("types samples/count cpu/nanoseconds\ndefault cpu period 1000000\n"));
    assert!(facts.contains("mapping /bin/prog [1, 0, 0, 1]"), "{facts}");
    assert!(facts.contains(&format!("sum cpu 2000000 2000000 {ODD_NAME}")), "{facts}");
}

#[test]
fn go_shows_the_numbers_of_the_stream() {
    if !have(&["go"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("p.pb.gz");
    std::fs::write(&file, export("pprof", &waits())).unwrap();
    let output = Command::new("go")
        .args(["tool", "pprof", "-top", "-unit=ns", "-sample_index=cpu-clock"])
        .arg(&file)
        .env("HOME", directory.path())
        .env("PPROF_TMPDIR", directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert!(text.starts_with("File: server\n"), "{text}");
    let row = |name: &str| {
        let row = rows.iter().find(|row| row.last() == Some(&name));
        row.unwrap_or_else(|| panic!("no {name}: {text}")).clone()
    };
    assert_eq!((row("crc")[0], row("crc")[3]), ("4000000ns", "4000000ns"), "{text}");
    assert_eq!((row("handle")[0], row("handle")[3]), ("2000000ns", "6000000ns"), "{text}");
}

#[test]
fn speedscope_has_a_profile_for_each_thread_and_event() {
    let file = json("speedscope", &waits());
    let frames = file["shared"]["frames"].as_array().unwrap();
    let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
    for profile in file["profiles"].as_array().unwrap() {
        let (samples, weights) = (&profile["samples"], &profile["weights"]);
        let pairs = samples.as_array().unwrap().iter().zip(weights.as_array().unwrap());
        let mut end = 0;
        for (stack, weight) in pairs {
            let leaf = stack.as_array().unwrap().last().unwrap().as_u64().unwrap() as usize;
            let name = frames[leaf]["name"].as_str().unwrap().to_owned();
            let thread = profile["name"].as_str().unwrap().to_owned();
            *sums.entry((thread, name)).or_default() += weight.as_u64().unwrap();
            end += weight.as_u64().unwrap();
        }
        assert_eq!(samples.as_array().unwrap().len(), weights.as_array().unwrap().len());
        assert_eq!(profile["endValue"].as_u64(), Some(end));
    }
    let of = |thread: &str, name: &str| sums[&(thread.to_owned(), name.to_owned())];
    assert_eq!(of("worker 7/7 (cpu-clock)", "crc"), 4_000_000);
    assert_eq!(of("worker 7/7 (cpu-clock)", "handle"), 2_000_000);
    assert_eq!(of("worker 7/7 (blocked)", "futex_do_wait"), 21_000_000);
    assert_eq!(of("idle 7/8 (blocked)", "ep_poll"), 28_000_000);
    assert_eq!(file["profiles"][0]["unit"], "nanoseconds");
    assert_eq!(file["profiles"].as_array().unwrap().len(), 5);
}

#[test]
fn firefox_has_self_and_total_of_each_function() {
    let file = json("firefox", &waits());
    assert_eq!(file["meta"]["preprocessedProfileVersion"], 60);
    let threads = file["threads"].as_array().unwrap();
    let names: Vec<&str> = threads.iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names[0], "worker (cpu-clock)");
    let (thread, shared) = (&threads[0], &file["shared"]);
    let of_threads = ["samples", "markers"].map(|table| (table, &thread[table]));
    let tables = ["frameTable", "funcTable", "stackTable", "resourceTable", "sources"];
    for (table, columns) in
        of_threads.into_iter().chain(tables.map(|table| (table, &shared[table])))
    {
        let length = columns["length"].as_u64().unwrap() as usize;
        for (column, values) in columns.as_object().unwrap() {
            if let Some(values) = values.as_array() {
                assert_eq!(values.len(), length, "{table}.{column}");
            }
        }
    }
    let index = |table: &str, column: &str, row: &Value| {
        shared[table][column][row.as_u64().unwrap() as usize].clone()
    };
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let samples = &thread["samples"];
    for (stack, weight) in
        samples["stack"].as_array().unwrap().iter().zip(samples["weight"].as_array().unwrap())
    {
        let (mut stack, mut is_leaf) = (stack.clone(), true);
        while !stack.is_null() {
            let function = index("frameTable", "func", &index("stackTable", "frame", &stack));
            let name = index("funcTable", "name", &function).as_u64().unwrap() as usize;
            let name = shared["stringArray"][name].as_str().unwrap().to_owned();
            let sum = sums.entry(name).or_default();
            sum.0 += if is_leaf { weight.as_u64().unwrap() } else { 0 };
            sum.1 += weight.as_u64().unwrap();
            is_leaf = false;
            stack = index("stackTable", "prefix", &stack);
        }
    }
    assert_eq!((sums["crc"], sums["handle"], sums["main"]), ((4, 4), (2, 6), (0, 6)));
    // The CPU graph: microseconds of each sample.
    assert_eq!(samples["threadCPUDelta"], serde_json::json!([4000.0, 2000.0]));
}

#[test]
fn size_of_formats_does_not_grow_with_threads_times_names() {
    let long = "f".repeat(60_000);
    let mut stream = format!(
        "@nprof\t1.1\trun=0x1\tclock=monotonic\n@event\tid=1\tname=cpu-clock\tunit=ns\t\
         measure=cpu-time\nI\t1\telf\t-\t/bin/a\nF\t1\t1\t0x10\tu\nD\t1\t/{long}.c\n\
         U\t1\t{long}\t-\nY\t1\tnamed\t1,1,14,0\nN\t1\t0\t1\n"
    );
    for thread in 1..=200 {
        stream += &format!("T\t{thread}\t0\t7\t{thread}\t0\t{long}\n");
        stream += &format!("S\t{thread}\t1\t{thread}\t0\t1\t5\t1\n");
    }
    stream += "@end\tsamples=200\trecords=404\tlost=0\n";
    for format in ["pprof", "firefox", "speedscope", "callgrind"] {
        let bytes = export(format, stream.as_bytes()).len();
        assert!(bytes < 600_000, "{format}: {bytes} bytes");
    }
}

#[test]
fn losses_and_incomplete_stacks_are_markers() {
    let stream = "@nprof\t1.1\trun=0x1\tclock=monotonic\ttime=0\tutc=1000\n\
                  @event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\nT\t1\t0\t7\t7\t0\ta\n\
                  F\t1\t0\t0x0\tu,max-depth\nI\t1\telf\t-\t/bin/a\nF\t2\t1\t0x10\tu\nN\t1\t0\t1\t2\n\
                  S\t10\t1\t1\t0\t2\t5\t1\nL\t20\t1\t0\t0\t3\tring\n\
                  @end\tsamples=1\trecords=8\tlost=3\n";
    // Without names a second line advises to symbolize.
    let output = tool().run(&["--to", "firefox"], stream.as_bytes());
    let file: Value = serde_json::from_slice(&output.stdout).unwrap();
    let data = file["threads"][0]["markers"]["data"].as_array().unwrap();
    assert_eq!(
        (data[0]["cause"].as_str(), data[0]["count"].as_u64()),
        (Some("[incomplete:max-depth]"), Some(1))
    );
    assert_eq!((data[1]["cause"].as_str(), data[1]["count"].as_u64()), (Some("ring"), Some(3)));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("pipe the stream through nprof-symbolize")
    );
}

#[test]
fn callgrind_annotate_shows_the_numbers_of_the_stream() {
    let file = String::from_utf8(export("callgrind", &odd_names())).unwrap();
    assert!(file.contains("events: cpu_clockSamples cpu_clockNs faultsSamples faultsWeight\n"));
    assert!(file.contains("\nsummary: 3 3000000 1 1\n"), "{file}");
    if !have(&["callgrind_annotate"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("callgrind.out");
    std::fs::write(&path, file).unwrap();
    let annotate = |option: &str| {
        let output = Command::new("callgrind_annotate")
            .args(["--threshold=100", option])
            .arg(&path)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let first = |text: &str, name: &str| -> String {
        let row = text.lines().find(|line| line.contains(&format!(":{name}")));
        let row = row.unwrap_or_else(|| panic!("no {name}: {text}"));
        row.split_whitespace().next().unwrap().to_owned()
    };
    let own = annotate("--inclusive=no");
    assert_eq!((first(&own, ODD_NAME), first(&own, "g")), ("2".to_owned(), "1".to_owned()));
    let inclusive = annotate("--inclusive=yes");
    assert_eq!(first(&inclusive, "main"), "3", "{inclusive}");
}

/// A sample of a function whose name is all brackets, and one without a stack.
const BRACKETS: &str = "@nprof\t1.1\trun=0x1\tclock=monotonic\n@event\tid=1\tname=cpu-clock\tunit=ns\t\
    measure=cpu-time\nT\t1\t0\t7\t7\t0\ta\nI\t1\telf\t-\t/bin/a\nF\t1\t1\t0x10\tu\n\
    U\t1\t<u32 as Add<u8>>::add(u8)\t-\nY\t1\tnamed\t1,0,0,0\nN\t1\t0\t1\n\
    S\t10\t1\t1\t0\t1\t5\t1\nS\t11\t1\t1\t0\t0\t3\t1\n@end\tsamples=2\trecords=7\tlost=0\n";

#[test]
fn go_shows_whole_names_and_samples_without_stack() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.pb.gz");
    std::fs::write(&path, export("pprof", BRACKETS.as_bytes())).unwrap();
    if !have(&["go"]) {
        return;
    }
    let output = Command::new("go")
        .env("HOME", directory.path())
        .args(["tool", "pprof", "-top", "-unit=ns", "-sample_index=cpu"])
        .arg(&path)
        .output()
        .unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    for row in ["5ns 62.50%  <u32 as Add<u8>>::add(u8)", "3ns 37.50%  [no stack]"] {
        assert!(table.contains(row), "{table}");
    }
}

#[test]
fn samples_without_stack_are_of_a_function() {
    let file = json("speedscope", BRACKETS.as_bytes());
    assert_eq!(file["shared"]["frames"][1]["name"], "[no stack]");
    assert_eq!(file["profiles"][0]["samples"], serde_json::json!([[0], [1]]));
    let file = json("firefox", BRACKETS.as_bytes());
    assert_eq!(file["threads"][0]["samples"]["stack"], serde_json::json!([0, 1]));
    let file = String::from_utf8(export("callgrind", BRACKETS.as_bytes())).unwrap();
    assert!(file.contains(") [no stack]\n0 1 3\n"), "{file}");
}

#[test]
fn hostile_names_stay_in_their_place() {
    for format in ["speedscope", "firefox", "callgrind"] {
        let file = String::from_utf8(export(format, &odd_names())).unwrap();
        assert!(!file.contains('\x1b'), "{format}");
        assert_eq!(file, String::from_utf8(export(format, &odd_names())).unwrap(), "{format}");
    }
    assert_eq!(export("pprof", &odd_names()), export("pprof", &odd_names()));
    let file = json("speedscope", &odd_names());
    let frames = file["shared"]["frames"].as_array().unwrap();
    assert!(frames.iter().any(|frame| frame["name"] == ODD_NAME), "{frames:?}");
}

#[test]
fn incomplete_input_is_exported_and_reported() {
    let whole = odd_names();
    let cut = &whole[..whole.len() - 10];
    for format in ["pprof", "speedscope", "firefox", "callgrind"] {
        let output = tool().run(&["--to", format], cut);
        assert_eq!(output.status.code(), Some(3), "{format}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("truncated"), "{format}");
        assert!(!output.stdout.is_empty(), "{format}");
        let tolerant = tool().run(&["--to", format, "--partial-ok"], cut);
        assert_eq!(tolerant.status.code(), Some(0), "{format}");
    }
    assert!(tool().refusal(&["--to", "pprof"], b"hello\n").contains("standard input: "));
    assert!(tool().refusal(&["--to", "svg"], b"").contains("possible values: pprof"));
    assert!(tool().refusal(&[], b"").contains("--to"));
}

#[test]
fn equal_stacks_of_several_streams_are_one() {
    let twice = [waits(), waits()].concat();
    let Some(facts) = python(DECODE, &export("pprof", &twice)) else { return };
    assert!(facts.contains("sum cpu-clock 8000000 8000000 crc"), "{facts}");
    // Threads of different recordings are different, even with the same ids.
    assert_eq!(facts.matches("label tid 8\n").count(), 2, "{facts}");
}
