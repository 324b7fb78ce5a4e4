//! The Parquet files of a fleet: their sums, their ids on several hosts, their names.
#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use nprof_tests::{Report, waits};
use parquet::file::reader::{FileReader, SerializedFileReader};
use tempfile::TempDir;

fn tool() -> Report {
    Report::new("nprof-export", env!("CARGO_BIN_EXE_nprof-export"))
}

/// Exports a stream into a directory. Returns the exit status.
fn export(directory: &Path, options: &[&str], stream: &[u8]) -> Option<i32> {
    let directory = directory.to_str().unwrap();
    let args = [&["--to", "parquet", "-o", directory], options].concat();
    let output = tool().run(&args, stream);
    assert!(output.stdout.is_empty());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("not in the file: threads"), "{message}");
    output.status.code()
}

/// Returns the files below a directory, sorted.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Returns the rows of a table as columns by name, in text.
fn rows(directory: &Path, table: &str) -> Vec<BTreeMap<String, String>> {
    let mut all = Vec::new();
    for file in files(&directory.join(table)) {
        let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let columns = row.get_column_iter();
            all.push(columns.map(|(name, value)| (name.clone(), value.to_string())).collect());
        }
    }
    all
}

fn number(row: &BTreeMap<String, String>, column: &str) -> i64 {
    row[column].parse().unwrap()
}

/// Returns the stream of [`waits`] as of a service on a host.
fn on_host(run: &str, host: &str) -> Vec<u8> {
    let stream = String::from_utf8(waits()).unwrap();
    let head = format!("run={run}\tclock=monotonic\ttime=0\tutc=1795305600000000000\thost={host}");
    let stream = stream.replace("run=0x2", &head);
    stream.replace("command=server", "command=server\tservice=../api\tservice_version=1.2").into()
}

#[test]
fn sums_are_those_of_the_stream() {
    let directory = TempDir::new().unwrap();
    assert_eq!(export(directory.path(), &[], &on_host("0x2", "a")), Some(0));
    let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for row in rows(directory.path(), "samples") {
        let sum = sums.entry(row["event"].clone()).or_default();
        sum.0 += number(&row, "samples");
        sum.1 += number(&row, "weight");
    }
    let sum = |event: &str| sums[&format!("\"{event}\"")];
    assert_eq!([sum("cpu-clock"), sum("blocked")], [(6, 6_000_000), (49, 49_000_000)]);
    let runs = rows(directory.path(), "runs");
    assert_eq!(runs.len(), 4);
    assert_eq!(runs[0]["version"], "\"1.2\"");
    assert_eq!(runs[0]["is_complete"], "true");
    let leaves = rows(directory.path(), "stacks");
    assert!(leaves.iter().any(|row| row["position"] == "2"), "{leaves:?}");
    let names = rows(directory.path(), "symbols");
    assert!(names.iter().any(|row| row["function"] == "\"crc\"" && row["status"] == "\"named\""));
    // The service is a folder below the table, whatever its name.
    let folder = directory.path().join("samples/day=2026-11-22/service=%2E.%2Fapi");
    assert_eq!(files(&folder).len(), 1, "{:?}", files(directory.path()));
}

#[test]
fn ids_are_equal_on_all_hosts() {
    let directory = TempDir::new().unwrap();
    for (run, host) in [("0x2", "a"), ("0x3", "b"), ("0x2", "a")] {
        export(directory.path(), &[], &on_host(run, host));
    }
    // The third export replaced the files of the first.
    assert_eq!(files(&directory.path().join("samples")).len(), 2);
    let samples = rows(directory.path(), "samples");
    let of_host = |host: &str| -> Vec<(String, String)> {
        let is_here = |row: &&BTreeMap<String, String>| row["host"] == format!("\"{host}\"");
        let ids = samples.iter().filter(is_here);
        ids.map(|row| (row["stack_id"].clone(), row["weight"].clone())).collect()
    };
    assert_eq!(of_host("a"), of_host("b"));
    assert!(of_host("a").len() > 5);
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for directory in [&one, &other] {
        export(directory.path(), &[], &on_host("0x2", "a"));
    }
    for (one, other) in files(one.path()).iter().zip(files(other.path())) {
        assert_eq!(std::fs::read(one).unwrap(), std::fs::read(other).unwrap());
    }
}

#[test]
fn windows_divide_the_samples() {
    for (window, count) in [("1m", 7), ("1ns", 8)] {
        let directory = TempDir::new().unwrap();
        export(directory.path(), &["--window", window], &on_host("0x2", "a"));
        let samples = rows(directory.path(), "samples");
        assert_eq!(samples.iter().map(|row| number(row, "samples")).sum::<i64>(), 71);
        // The samples at 4 and 5 ns have one stack.
        assert_eq!(samples.len(), count);
    }
}

#[test]
fn names_of_one_stream_are_kept_if_another_has_none() {
    let stream = |number: u8, status: &str| {
        format!(
            "@nprof\t1.1\trun={number:#x}\tservice=api\n\
             @event\tid=1\tname=cycles\tperiod={number}\n\
             I\t1\telf\t0011\t/bin/prog\nF\t1\t1\t0x1010\tu\nU\t1\tmain\t-\n{status}\
             N\t1\t0\t1\nS\t5\t1\t0\t-\t1\t1\t1\n"
        )
    };
    let directory = TempDir::new().unwrap();
    let named = directory.path().join("named");
    let unnamed = directory.path().join("unnamed");
    std::fs::write(&named, stream(1, "Y\t1\tnamed\t1,0,0,0\n")).unwrap();
    std::fs::write(&unnamed, stream(2, "")).unwrap();
    let out = directory.path().join("out");
    for files in [[&named, &unnamed], [&unnamed, &named]] {
        export(&out, &files.map(|file| file.to_str().unwrap()), b"");
        let names = rows(&out, "symbols");
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(names[0]["function"], "\"main\"");
        let mut periods: Vec<i64> =
            rows(&out, "runs").iter().map(|row| number(row, "period")).collect();
        periods.sort_unstable();
        assert_eq!(periods, [1, 2]);
    }
}

#[test]
fn inlined_calls_that_one_host_knows_have_an_id_of_their_own() {
    let stream = |number: u8, names: &str| {
        format!(
            "@nprof\t1.1\trun={number:#x}\tservice=api\n@event\tid=1\tname=cycles\n\
             I\t1\telf\t0011\t/bin/prog\nF\t1\t1\t0x1010\tu\nU\t1\tmain\t-\nU\t2\tinlined\t-\n\
             {names}N\t1\t0\t1\nS\t5\t1\t0\t-\t1\t1\t1\n"
        )
    };
    let (plain, inlined) = ("Y\t1\tnamed\t1,0,0,0\n", "Y\t1\tnamed\t2,0,3,0\t1,0,0,0\n");
    let directory = TempDir::new().unwrap();
    for (number, names) in [(1, plain), (2, inlined), (3, inlined)] {
        export(directory.path(), &["--partial-ok"], stream(number, names).as_bytes());
    }
    let mut namings: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows(directory.path(), "symbols") {
        namings.entry(row["naming"].clone()).or_default().push(row["function"].clone());
    }
    let mut namings: Vec<Vec<String>> = namings.into_values().collect();
    namings.iter_mut().for_each(|names| names.sort());
    namings.sort_by_key(Vec::len);
    let (main, inlined) = ("\"main\"", "\"inlined\"");
    assert_eq!(namings, [vec![main], vec![inlined, inlined, main, main]]);
}

#[test]
fn attached_runs_of_several_programs_are_of_their_own_services() {
    let stream = |run: u8, program: &str| {
        format!(
            "@nprof\t1.1\trun={run:#x}\tcommand=pid {run}\n@event\tid=1\tname=cycles\n\
             I\t1\telf\t-\t/lib/libc.so.6\nI\t2\telf\t-\t/opt/{program}\nF\t1\t2\t0x10\tu,ra\nF\t2\t1\t0x10\tu\n\
             N\t1\t0\t1\t2\nS\t5\t1\t0\t-\t2\t1\t{run}\n"
        )
    };
    let directory = TempDir::new().unwrap();
    let streams = [
        ("web", stream(1, "web")),
        ("db", stream(9, "db")),
        // Without a stack, its program is not known.
        ("none", stream(4, "none").replace("\t2\t1\t4\n", "\t0\t1\t4\n")),
    ];
    let streams = streams.map(|(name, stream)| {
        let path = directory.path().join(name);
        std::fs::write(&path, stream).unwrap();
        path
    });
    let out = directory.path().join("out");
    let streams = streams.each_ref().map(|path| path.to_str().unwrap());
    assert_eq!(export(&out, &[&["--partial-ok"], &streams[..]].concat(), b""), Some(0));
    let mut services: Vec<(String, i64)> = rows(&out, "runs")
        .iter()
        .map(|row| (row["service"].clone(), number(row, "samples")))
        .collect();
    services.sort();
    let expected = [("db", 9), ("unknown", 4), ("web", 1)];
    assert_eq!(services, expected.map(|(name, samples)| (format!("\"{name}\""), samples)));
    assert!(out.join("samples/day=1970-01-01/service=db").is_dir());
}

#[test]
fn events_of_which_all_samples_are_lost_have_a_row() {
    let stream = "@nprof\t1.1\trun=0x1\tservice=api\ttime=0\tutc=1795305600000000000\n\
                  @event\tid=1\tname=cycles\n@event\tid=2\tname=faults\n\
                  L\t70000000000\t2\t-\t0\t4\tring\nL\t70000000000\t2\t-\t0\t3\tring\n\
                  L\t80000000000\t0\t-\t0\t5\tring\nL\t80000000000\t1\t-\t0\t0\tring\n";
    let directory = TempDir::new().unwrap();
    let row = |row: &BTreeMap<String, String>| {
        let count = |column| number(row, column);
        (row["event"].clone(), count("samples"), count("lost"))
    };
    let (faults, unknown) = (("\"faults\"".to_owned(), 0, 7), ("\"\"".to_owned(), 0, 5));
    // Without a sample, and with those of another event.
    for (sample, first) in [("", None), ("S\t5\t1\t0\t-\t0\t1\t1\n", Some("\"cycles\""))] {
        let out = directory.path().join(sample.len().to_string());
        export(&out, &["--partial-ok"], format!("{stream}{sample}").as_bytes());
        let mut found: Vec<(String, i64, i64)> = rows(&out, "runs").iter().map(row).collect();
        found.sort();
        let mut expected = vec![faults.clone(), unknown.clone()];
        expected.extend(first.map(|event| (event.to_owned(), 1, 0)));
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(files(&out.join("runs/day=2026-11-22/service=api")).len(), 1);
    }
}

#[test]
fn runs_of_several_exports_count_once() {
    let directory = TempDir::new().unwrap();
    let inputs = [("0x2", "a"), ("0x3", "b")].map(|(run, host)| {
        let path = directory.path().join(host);
        std::fs::write(&path, on_host(run, host)).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let out = directory.path().join("out");
    let samples = || rows(&out, "samples").iter().map(|row| number(row, "samples")).sum::<i64>();
    let [a, b] = inputs.each_ref().map(String::as_str);
    for one in [a, b] {
        export(&out, &[one], b"");
    }
    assert_eq!(samples(), 2 * 71);
    // Both at once replace the files of each.
    export(&out, &[a, b], b"");
    assert_eq!(samples(), 2 * 71);
    assert_eq!(files(&out).len(), 5);
    let before = files(&out);
    let args = ["--to", "parquet", "-o", out.to_str().unwrap(), a];
    let message = tool().refusal(&args, b"");
    assert!(message.contains("has the run 0x2 and others; export all of its runs"), "{message}");
    assert_eq!(files(&out), before);
    // The service that these runs had before.
    for path in &inputs {
        let stream =
            std::fs::read_to_string(path).unwrap().replace("service=../api", "service=web");
        std::fs::write(path, stream).unwrap();
    }
    let message = tool().refusal(&args, b"");
    assert!(message.contains("has the run 0x2 and others"), "{message}");
    export(&out, &[a, b], b"");
    assert_eq!((samples(), files(&out).len()), (2 * 71, 5));
    assert!(files(&out).iter().all(|path| path.to_str().unwrap().contains("/service=web/")));
}

#[test]
fn only_files_that_may_have_a_run_are_read() {
    let directory = TempDir::new().unwrap();
    export(directory.path(), &[], &on_host("0x2", "a"));
    // What another program left in the place of another service and run.
    let other = directory.path().join("runs/day=2026-11-22/service=other");
    std::fs::create_dir(&other).unwrap();
    let unread = other.join("0123456789abcdef-000009.parquet");
    std::fs::write(&unread, "no table").unwrap();
    assert_eq!(export(directory.path(), &[], &on_host("0x2", "a")), Some(0));
    std::fs::rename(&unread, other.join("0123456789abcdef-000002.parquet")).unwrap();
    let args = ["--to", "parquet", "-o", directory.path().to_str().unwrap()];
    let message = tool().refusal(&args, &on_host("0x2", "a"));
    assert!(message.contains("service=other/0123456789abcdef-000002.parquet: "), "{message}");
}

#[test]
fn samples_at_each_depth_of_a_recursion_are_refused_before_they_fill_the_memory() {
    let mut stream =
        "@nprof\t1.1\trun=0x1\n@event\tid=1\tname=cycles\nI\t1\telf\t0011\t/bin/prog\n\
         F\t1\t1\t0x1010\tu,ra\n"
            .to_owned();
    for node in 1..9000 {
        stream += &format!("N\t{node}\t{}\t1\nS\t5\t1\t0\t-\t{node}\t1\t1\n", node - 1);
    }
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("out");
    let args = ["--to", "parquet", "-o", out.to_str().unwrap()];
    let message = tool().refusal(&args, stream.as_bytes());
    assert!(message.contains("rows of stacks; export shorter recordings"), "{message}");
    assert!(!out.exists());
}

#[test]
fn incomplete_stream_is_exported_and_marked() {
    let directory = TempDir::new().unwrap();
    let whole = on_host("0x2", "a");
    assert_eq!(export(directory.path(), &[], &whole[..whole.len() - 20]), Some(3));
    assert_eq!(rows(directory.path(), "runs")[0]["is_complete"], "false");
}

#[test]
fn directory_is_required_and_errors_name_the_file() {
    assert!(tool().refusal(&["--to", "parquet"], &waits()).contains("name it with -o"));
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let message = tool().refusal(&["--to", "parquet", "-o", file.to_str().unwrap()], &waits());
    assert!(message.contains("/file: "), "{message}");
}
